// --- keyboard: single keys act on the row or thing in focus; never while typing -----------------
const places = { o: "/", a: "/alerts", d: "/dead-letters", i: "/interventions", g: "/grid", f: "/flows", r: "/runs", c: "/customers", l: "/limits", p: "/topics", t: "/trends", e: "/trace", s: "/system" };
const ID = /\b(run|flow|dl|cfg|alert|int)_[0-9a-z]{8,13}\b/;
const commands = { run: "penstock runs show", flow: "penstock explain", dl: "penstock dlq show", cfg: "penstock configs show", alert: "penstock alerts show", int: "penstock interventions show" };
const redo = { dl: ["replay-letter", "dead_letter_id", "replay-chosen"], run: ["retry-run", "run_id", "retry-runs"] };
const acknowledge = { alert: ["acknowledge", "alert_id", "acknowledge-alerts"] };
let going = 0;

const rows = () => all("main [data-row]");
const rowInFocus = () => document.activeElement?.closest?.("[data-row]");
function idOf(node) {
  for (const link of all("a[href]", node)) { const id = ID.exec(link.getAttribute("href")); if (id) return id[0]; }
  return "";
}
const idInFocus = () => (rowInFocus() ? idOf(rowInFocus()) : ID.exec(location.pathname)?.[0] ?? "");

// Rows that are chosen stay chosen when the page refreshes.
const choose = {
  keys: new Set(), last: null,
  toggle(row, isRange) {
    const listed = rows();
    const from = isRange && this.last ? listed.findIndex((one) => keyOf(one) === this.last) : -1;
    const to = listed.indexOf(row);
    const chosen = from < 0 ? [row] : listed.slice(Math.min(from, to), Math.max(from, to) + 1);
    const isOn = from >= 0 || !this.keys.has(keyOf(row));
    for (const one of chosen) if (isOn) this.keys.add(keyOf(one)); else this.keys.delete(keyOf(one));
    this.last = keyOf(row);
    showChosen();
    say(`${this.keys.size} chosen.`);
  },
  clear() { this.keys.clear(); this.last = null; showChosen(); },
  ids() { return rows().filter((row) => this.keys.has(keyOf(row))).map(idOf).filter(Boolean); },
};
function showChosen() {
  for (const row of rows()) if (choose.keys.has(keyOf(row))) row.dataset.chosen = ""; else delete row.dataset.chosen;
  const bar = find(".chosen");
  if (!bar) return;
  const ids = choose.ids();
  const kind = ids[0]?.split("_")[0];
  const act = redo[kind] ?? acknowledge[kind];
  bar.hidden = !choose.keys.size;
  find("b", bar).textContent = `${choose.keys.size} chosen`;
  const button = find("[data-act]", bar);
  button.hidden = !act || !ids.length;
  if (act) button.textContent = { dl: "Replay…", run: "Retry…", alert: "Acknowledge…" }[kind];
}
function act(map) {
  const chosen = choose.ids();
  const verbs = map === redo ? ["replay", "retry"] : ["acknowledge"];
  const own = chosen.length ? null : verbs.map((verb) => find(`a[href^='/do/${verb}']`, rowInFocus() ?? document.createElement("i"))).find(Boolean);
  if (own) { own.click(); return; }
  const ids = chosen.length ? chosen : [idInFocus()].filter(Boolean);
  const [one, name, many] = map[ids[0]?.split("_")[0]] ?? [];
  if (!one) { say("Nothing here can be done that way: move to a row with j and k."); return; }
  const same = ids.filter((id) => id.split("_")[0] === ids[0].split("_")[0]);
  deedFrom = document.activeElement;
  showDeed(same.length > 1 ? `/do/${many}?${new URLSearchParams({ ids: same.join(" ") })}` : `/do/${one}?${new URLSearchParams({ [name]: same[0] })}`);
}
function move(step) {
  const listed = rows();
  if (!listed.length) return;
  const place = listed.indexOf(rowInFocus());
  const next = listed[Math.min(listed.length - 1, Math.max(0, place + step))];
  (next.matches("a,button,[tabindex]") ? next : find("a,button", next))?.focus();
}
// In the grid, h and l move within a row, j and k between rows.
function moveAcross(step) {
  const cells = all("a,button", rowInFocus() ?? document.createElement("i"));
  cells[Math.min(cells.length - 1, Math.max(0, cells.indexOf(document.activeElement) + step))]?.focus();
}
// [ and ] walk through the list from which the page was opened; the window remembers it.
const walked = {
  get() { try { return JSON.parse(sessionStorage.getItem("penstock.list") ?? "[]"); } catch { return []; } },
  keep() {
    const listed = rows().map((row) => [idOf(row), find("a[href]", row)?.getAttribute("href")]).filter(([id]) => id);
    if (listed.length > 1) try { sessionStorage.setItem("penstock.list", JSON.stringify(listed)); } catch { /* kept nowhere */ }
  },
};
addEventListener("pagehide", () => { if (!ID.test(location.pathname)) walked.keep(); });
function moveToNeighbour(step) {
  const link = find(`main a[rel=${step > 0 ? "next" : "prev"}]`);
  if (link) { link.click(); return; }
  const listed = walked.get();
  const place = listed.findIndex(([id]) => id === idInFocus());
  const next = place < 0 ? undefined : listed[place + step];
  if (next?.[1]?.startsWith("/")) location.assign(next[1]); else say(step > 0 ? "There is no next one." : "There is no previous one.");
}
function openMenu() {
  const menu = find("dialog.menu");
  const row = rowInFocus();
  const links = all("a[href^='/do/']", row ?? find("main"));
  const id = idInFocus();
  const [one, name] = redo[id.split("_")[0]] ?? acknowledge[id.split("_")[0]] ?? [];
  const found = links.map((link) => [link.getAttribute("href"), link.textContent.trim()]);
  if (row && one) found.unshift([`/do/${one}?${name}=${id}`, { dl: "Replay…", run: "Retry…", alert: "Acknowledge…" }[id.split("_")[0]]]);
  const seen = new Map(found.filter(([, label]) => label));
  if (!menu || !seen.size) { say("There is nothing to do here."); return; }
  find("ul", menu).replaceChildren(...[...seen].map(([href, label]) => made("li", {}, made("a", { class: "btn", href }, label))));
  find("h2", menu).textContent = id ? `Actions of ${id}` : "Actions of this page";
  deedFrom = document.activeElement;
  menu.showModal();
}
find("dialog.menu")?.addEventListener("click", (event) => { if (event.target.closest("a")) find("dialog.menu").close(); });

const actions = {
  "/": openPalette,
  "?": () => find("dialog.help")?.showModal(),
  j: () => move(1), k: () => move(-1), h: () => moveAcross(-1), l: () => moveAcross(1),
  o: () => find("a[href]", rowInFocus() ?? document.createElement("i"))?.click(),
  x: () => { if (rowInFocus()) choose.toggle(rowInFocus(), false); },
  X: () => { if (rowInFocus()) choose.toggle(rowInFocus(), true); },
  r: () => act(redo),
  a: () => act(acknowledge),
  c: () => { const id = idInFocus(); if (id) copy(`${commands[id.split("_")[0]]} ${id}`); },
  w: () => { const id = idInFocus(); if (id.startsWith("run_")) location.assign(`/runs/${id}#why`); else if (id.startsWith("flow_")) location.assign(`/flows/${id}#why`); },
  u: () => { setZone(isLocal() ? "utc" : "local"); say(isLocal() ? "Local time." : "UTC."); },
  ".": openMenu,
  "[": () => moveToNeighbour(-1), "]": () => moveToNeighbour(1),
  Escape: () => choose.clear(),
};
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); openPalette(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.target.closest("input,textarea,select,dialog")) return;
  if (event.key !== "Escape" && kept.get("keys") === "off") return;
  if (going && performance.now() - going < 1200 && places[event.key]) { event.preventDefault(); going = 0; location.assign(places[event.key]); return; }
  going = event.key === "g" ? performance.now() : 0;
  const work = Object.hasOwn(actions, event.key) ? actions[event.key] : null;
  if (!work) return;
  if (event.key !== "Escape") event.preventDefault();
  work();
});
const keySwitch = find("dialog.help input[type=checkbox]");
if (keySwitch) {
  keySwitch.checked = kept.get("keys") !== "off";
  keySwitch.addEventListener("change", () => kept.set("keys", keySwitch.checked ? "on" : "off"));
}
addEventListener("click", (event) => {
  if (event.target.closest(".chosen [data-act]")) act(redo[choose.ids()[0]?.split("_")[0]] ? redo : acknowledge);
  else if (event.target.closest(".chosen [data-clear]")) choose.clear();
});
