// --- actions: preview, confirmation and result in one dialog ------------------------------------
// A link to /do/… opens its preview; without scripts it is a page of its own. The form is sent as it
// is, and what the server answers takes the place of the preview.
const deed = find("dialog.deed");
let deedFrom = null, isDone = false;
async function showDeed(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, { ...options, headers: { ...FRAGMENT, ...options.headers }, redirect: "manual", cache: "no-store" });
  } catch { say("The server does not answer; nothing was done."); return; }
  if (answer.type === "opaqueredirect") { location.assign(address); return; }
  if (!answer.headers.get("Content-Type")?.startsWith("text/html")) {
    const problem = await answer.json().catch(() => ({}));
    say(problem.detail ?? `The server refused: ${answer.status}.`);
    return;
  }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const main = find("main", fresh);
  if (!main) return;
  showZone(main);
  const title = find("h1", main);
  const heading = made("h2", { id: "h-deed" }, ...(title ? title.childNodes : []));
  title?.closest(".head").remove();
  const panel = find(".panel.deed", main);
  if (panel) { panel.removeAttribute("aria-labelledby"); panel.className = "deed-in"; }
  deed.replaceChildren(heading, ...main.childNodes);
  isDone = Boolean(find("[data-done]", deed));
  for (const back of all("footer a[data-back]", deed)) { back.setAttribute("role", "button"); back.dataset.close = ""; }
  if (!deed.open) deed.showModal();
  // What cannot be undone is not one Enter away.
  for (const wanted of [".form .field", "button.go[type=submit]", "footer a", "button"]) {
    const first = find(wanted, deed);
    if (first) { first.focus(); break; }
  }
  if (isDone) say(find("[data-done]", deed).textContent.trim());
}
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest("a[href]");
  if (!link || !deed) return;
  if (deed.contains(link) && "close" in link.dataset) { event.preventDefault(); deed.close(); return; }
  if (!link.getAttribute("href").startsWith("/do/")) return;
  event.preventDefault();
  deedFrom ??= link;
  showDeed(link.href);
});
addEventListener("submit", (event) => {
  const form = event.target;
  if (!deed?.contains(form) || event.defaultPrevented) return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form));
  if (event.submitter?.name) body.set(event.submitter.name, event.submitter.value);
  const submit = event.submitter ?? find("button[type=submit]", form);
  if (submit) submit.disabled = true;
  const address = form.getAttribute("action");
  // Fields without which there is no preview are asked for first.
  if (form.method === "get") showDeed(`${address.split("?")[0]}?${body}`);
  else showDeed(address, { method: "POST", body });
});
deed?.addEventListener("close", () => {
  const from = deedFrom;
  deedFrom = null;
  deed.replaceChildren();
  if (isDone) { choose.clear(); refresh(); }
  isDone = false;
  if (from?.isConnected) from.focus();
});
