// --- palette: one box for things, places and commands; a combobox over GET /palette?q= ----------
const palette = find("dialog.pal");
const asked = palette && find("input", palette);
const listed = palette && find("[role=listbox]", palette);
let question = 0;
const recent = {
  get() { try { return JSON.parse(kept.get("recent") ?? "[]"); } catch { return []; } },
  add(one) { kept.set("recent", JSON.stringify([one, ...this.get().filter((other) => other.href !== one.href)].slice(0, 6))); },
};
function select(option) {
  for (const one of all("[role=option]", listed)) one.setAttribute("aria-selected", String(one === option));
  if (option) asked.setAttribute("aria-activedescendant", option.id); else asked.removeAttribute("aria-activedescendant");
  option?.scrollIntoView({ block: "nearest" });
}
function showFound(groups) {
  let number = 0;
  const shown = groups.filter((group) => group.items.length).map((group, index) => {
    const heading = made("h3", { id: `pal-g${index}`, role: "presentation" }, group.title);
    const options = group.items.map((one) => {
      const option = made("div", { role: "option", id: `pal-${number++}`, "aria-selected": "false", "data-href": one.href }, icon(one.icon ?? "search"), made("span", { class: "grow cut" }, one.label));
      if (one.small) option.append(made("small", { class: "cut" }, one.small));
      option.found = one;
      return option;
    });
    return made("div", { role: "group", "aria-labelledby": `pal-g${index}` }, heading, ...options);
  });
  listed.replaceChildren(...shown);
  find(".pal-none", palette).hidden = shown.length > 0;
  find(".pal-count", palette).textContent = `${number} found`;
  select(find("[role=option]", listed));
}
async function ask() {
  const q = asked.value.trim();
  const mine = ++question;
  if (!q) { showFound([{ title: "Recent", items: recent.get() }, { title: "Go to", items: all("nav.side a[href]").slice(1).map((place) => ({ label: find("span", place).textContent, href: place.getAttribute("href"), icon: find("use", place)?.getAttribute("href").slice(1) })) }]); return; }
  try {
    const answer = await fetch(`/palette?${new URLSearchParams({ q })}`, { headers: FRAGMENT, redirect: "manual", cache: "no-store" });
    if (mine !== question) return; // an older answer
    if (answer.type === "opaqueredirect") { location.reload(); return; }
    if (answer.ok) showFound((await answer.json()).groups);
  } catch { find(".pal-count", palette).textContent = "The server does not answer."; }
}
function openPalette() {
  if (!palette || palette.open) return;
  palette.showModal();
  asked.value = "";
  ask();
}
function go(option, isNew) {
  if (!option) { if (asked.value.trim()) location.assign(`/find?${new URLSearchParams({ q: asked.value.trim() })}`); return; }
  const { href, label, small = "", icon: name } = option.found;
  if (!href.startsWith("/")) return;
  if (!href.startsWith("/do/")) recent.add({ href, label, small, icon: name });
  if (isNew) { open(href, "_blank", "noopener"); return; }
  palette.close();
  if (href.startsWith("/do/")) showDeed(href); else location.assign(href);
}
if (palette) {
  asked.addEventListener("input", () => later("palette", ask, 80));
  palette.addEventListener("keydown", (event) => {
    const options = all("[role=option]", listed);
    const place = options.findIndex((one) => one.getAttribute("aria-selected") === "true");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) { event.preventDefault(); select(options[(place + step + options.length) % options.length]); }
    if (event.key === "Home" || event.key === "End") { event.preventDefault(); select(options[event.key === "Home" ? 0 : options.length - 1]); }
    if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); go(options[place], event.ctrlKey || event.metaKey); }
  });
  listed.addEventListener("click", (event) => { const option = event.target.closest("[role=option]"); if (option) go(option, event.ctrlKey || event.metaKey); });
  listed.addEventListener("mousemove", (event) => { const option = event.target.closest("[role=option]"); if (option && option.getAttribute("aria-selected") !== "true") select(option); });
  const box = find("form.find input");
  box?.addEventListener("focus", () => { if (!palette.open) { const words = box.value; box.blur(); openPalette(); if (words) { asked.value = words; ask(); } } });
}
