// The dashboard's script. Pages can be read and used without it: it adds live updates, dialogs, the
// palette, the time zone, the theme, the keyboard and the copy buttons. No framework, no innerHTML,
// no eval. The files of this folder are served as one, in the order of `assets.py`.
"use strict";

const root = document.documentElement;
const kept = {
  get(key) { try { return localStorage.getItem(`penstock.${key}`); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(`penstock.${key}`, value); } catch { /* a private window keeps nothing */ } },
};
const FRAGMENT = { "X-Penstock-Fragment": "1" };
const find = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
function made(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "i");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#${name}`);
  svg.append(use);
  return svg;
}
// Said to screen readers, and shown for a moment.
function say(words) {
  const box = find("#said");
  if (!box) return;
  box.textContent = words;
  box.dataset.shown = "";
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { delete box.dataset.shown; }, 4000);
}
async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
    say("Copied.");
  } catch { say("The browser does not let pages copy; select the text."); }
}

// --- theme: system, light, dark --------------------------------------------------------------
const themes = ["", "light", "dark"];
function setTheme(name) {
  if (name) root.dataset.theme = name; else delete root.dataset.theme;
  kept.set("theme", name);
  say(name ? `Theme: ${name}.` : "Theme: as the system.");
}

// --- times: the server writes UTC; the browser can show its own zone -------------------------
const two = (number) => String(number).padStart(2, "0");
const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const isLocal = () => kept.get("zone") === "local";
function localText(at, said) {
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const day = `${at.getDate()} ${months[at.getMonth()]}`;
  if (/^\d\d:\d\d(:\d\d)?Z$/.test(said)) {
    const short = said.length > 6 ? clock : clock.slice(0, 5);
    return at.toDateString() === new Date().toDateString() ? short : `${day} ${clock.slice(0, 5)}`;
  }
  if (/^\d+ \w{3} \d\d:\d\dZ$/.test(said)) return `${day} ${clock.slice(0, 5)}`;
  if (/^\d{4}-\d\d-\d\d \d\d:\d\dZ$/.test(said)) return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock.slice(0, 5)}`;
  return said;
}
function showZone(within = document) {
  for (const node of all("time[datetime]", within)) {
    if (node.dataset.tick) continue;
    node.dataset.said ??= node.textContent;
    const words = isLocal() ? localText(new Date(node.dateTime), node.dataset.said) : node.dataset.said;
    if (node.textContent !== words) node.textContent = words;
  }
}
function setZone(name) {
  kept.set("zone", name);
  for (const button of all("[data-zone]")) button.setAttribute("aria-pressed", String(button.dataset.zone === name));
  showZone();
}
function nameZone() {
  const local = find("[data-zone=local]");
  if (!local) return;
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(new Date());
  const name = parts.find((part) => part.type === "timeZoneName")?.value ?? "local";
  local.textContent = name === "UTC" ? "local" : name;
  local.title = `Your zone: ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
}

// --- ages and countdowns: `<time data-tick="age">` and `data-tick="until"`, once a second -----
let clockOffset = 0; // of the server against this machine, in milliseconds
function durationText(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const whole = Math.max(0, Math.floor(seconds));
  const first = units.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0 s";
  const [name, size] = units[first];
  const rest = first + 1 < units.length ? Math.floor((whole % size) / units[first + 1][1]) : 0;
  return `${Math.floor(whole / size)} ${name}${rest ? ` ${rest} ${units[first + 1][0]}` : ""}`;
}
function tick(within = document) {
  const now = Date.now() + clockOffset;
  for (const node of all("time[data-tick]", within)) {
    const seconds = (now - Date.parse(node.dateTime)) / 1000;
    const words = node.dataset.tick === "until" ? (seconds < 0 ? `in ${durationText(-seconds)}` : "now") : durationText(seconds);
    if (node.textContent !== words) node.textContent = words;
  }
}
setInterval(() => { if (!document.hidden) tick(); }, 1000);

// --- clicks, by delegation --------------------------------------------------------------------
addEventListener("click", (event) => {
  const hit = event.target.closest("[data-copy],[data-zone],[data-theme-next],[data-close],[data-help]");
  if (!hit) return;
  if ("copy" in hit.dataset) copy(find("code", hit.parentElement).textContent);
  else if ("zone" in hit.dataset) setZone(hit.dataset.zone);
  else if ("themeNext" in hit.dataset) setTheme(themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % 3]);
  else if ("help" in hit.dataset) find("dialog.help")?.showModal();
  else if ("close" in hit.dataset) hit.closest("dialog").close();
});
// A click beside a menu closes it, and so does Escape.
addEventListener("click", (event) => {
  for (const menu of all("details.drop[open]")) if (!menu.contains(event.target)) menu.open = false;
});
addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest?.("details.drop[open]");
  if (menu) { menu.open = false; find("summary", menu).focus(); }
});
// A click beside a dialog closes it.
addEventListener("mousedown", (event) => { if (event.target.matches?.("dialog")) event.target.close(); });
// A form is sent once; without scripts a second confirmation does nothing either.
addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.target.dataset.sent) { event.preventDefault(); return; }
  event.target.dataset.sent = "yes";
});
addEventListener("pageshow", () => { for (const form of all("form[data-sent]")) delete form.dataset.sent; });

nameZone();
setZone(isLocal() ? "local" : "utc");
tick();
