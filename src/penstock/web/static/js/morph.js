// --- morph: make the page equal to a fresh one and touch nothing else ----------------------------
// Nodes that stay are kept, so focus, selection, scroll positions and open details stay too. A child
// is the same as before if it has the same key (id, or the first link of a row), else by its place.
const OWN = ["data-said", "data-chosen", "data-shown", "data-sent", "data-flash", "open"];
function keyOf(node) {
  if (node.nodeType !== 1) return "";
  return node.id || (node.dataset.row === undefined ? "" : find("a[href]", node)?.getAttribute("href") ?? "");
}
const isAlike = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName;
function morphAttributes(before, after) {
  for (const { name } of [...before.attributes]) if (!after.hasAttribute(name) && !OWN.includes(name)) before.removeAttribute(name);
  for (const { name, value } of after.attributes) if (before.getAttribute(name) !== value) before.setAttribute(name, value);
}
function morph(before, after) {
  if (before.nodeType !== 1) {
    if (before.nodeValue !== after.nodeValue) {
      before.nodeValue = after.nodeValue;
      const cell = before.parentElement?.closest("td,dd,.st,.nw");
      if (cell && !before.parentElement.closest("time")) cell.dataset.flash = "";
    }
    return;
  }
  if (before.isEqualNode(after) || before === document.activeElement && before.matches("input,textarea,select")) return;
  morphAttributes(before, after);
  const keyed = new Map();
  for (const child of before.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  let place = before.firstChild;
  for (const child of [...after.childNodes]) {
    const key = keyOf(child);
    let same = null;
    if (key) same = keyed.get(key) ?? null;
    else for (let next = place; next && !same; next = next.nextSibling) if (!keyOf(next) && isAlike(next, child)) same = next;
    if (!same || !isAlike(same, child)) { before.insertBefore(document.adoptNode(child), place); continue; }
    if (same === place) place = place.nextSibling; else before.insertBefore(same, place);
    morph(same, child);
  }
  while (place) { const next = place.nextSibling; place.remove(); place = next; }
}
function morphPage(fresh) {
  const focused = document.activeElement;
  const rows = focused?.closest?.("main") ? all("main [data-row]") : [];
  const index = rows.indexOf(focused?.closest?.("[data-row]"));
  showZone(fresh);
  tick(fresh);
  for (const selector of ["nav.side", "main", "nav.tabs"]) {
    const before = find(selector);
    const after = find(selector, fresh);
    if (before && after) morph(before, after);
  }
  document.title = fresh.title;
  if (focused && focused !== document.body && document.activeElement !== focused) {
    if (focused.isConnected) focused.focus({ preventScroll: true });
    else if (index >= 0) find("a,button", all("main [data-row]")[index] ?? find("main"))?.focus({ preventScroll: true });
  }
  showChosen();
  setTimeout(() => { for (const cell of all("[data-flash]")) delete cell.dataset.flash; }, 700);
}
