// The dashboard's script. Pages can be read and used without it: it adds live updates, the time
// zone, the theme, the keyboard and the copy buttons. No framework, no innerHTML, no eval.
"use strict";

const root = document.documentElement;
const kept = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); } catch { /* a private window keeps nothing */ } },
};

// --- theme: system, light, dark --------------------------------------------------------------
const themes = ["", "light", "dark"];
function setTheme(name) {
  if (name) root.dataset.theme = name; else delete root.dataset.theme;
  kept.set("penstock.theme", name);
}

// --- times: the server writes UTC; the browser can show its own zone -------------------------
const two = (number) => String(number).padStart(2, "0");
const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
function localText(at, said) {
  if (/^\d\d:\d\d:\d\dZ$/.test(said)) {
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
    return at.toDateString() === new Date().toDateString() ? clock : `${at.getDate()} ${months[at.getMonth()]} ${clock.slice(0, 5)}`;
  }
  if (/^\d+ \w{3} \d\d:\d\dZ$/.test(said)) return `${at.getDate()} ${months[at.getMonth()]} ${two(at.getHours())}:${two(at.getMinutes())}`;
  if (/^\d{4}-\d\d-\d\d \d\d:\d\dZ$/.test(said)) return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
  return said;
}
function showZone() {
  const isLocal = kept.get("penstock.zone") === "local";
  for (const button of document.querySelectorAll("[data-zone]")) button.setAttribute("aria-pressed", String((button.dataset.zone === "local") === isLocal));
  for (const node of document.querySelectorAll("time[datetime]")) {
    node.dataset.said ??= node.textContent;
    node.textContent = isLocal ? localText(new Date(node.dateTime), node.dataset.said) : node.dataset.said;
  }
}
function nameZone() {
  const local = document.querySelector("[data-zone=local]");
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(new Date());
  const name = parts.find((part) => part.type === "timeZoneName")?.value ?? "local";
  if (!local) return;
  local.textContent = name === "UTC" ? "local" : name;
  local.title = `Your zone: ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
}

// --- live: ask for the page again, and take over what has changed -----------------------------
const seconds = Number(document.body.dataset.live || 0);
const mark = document.querySelector(".live");
let etag = document.body.dataset.etag || null;
let failures = 0;
let isPaused = false;
let timer = 0;

function setMark(state, words) {
  if (!mark) return;
  if (state) mark.dataset.state = state; else delete mark.dataset.state;
  mark.textContent = words;
}
function isBusy() {
  const focused = document.activeElement;
  const isTyping = focused?.closest?.("main")?.contains(focused) && focused.matches("input,textarea,select");
  return document.hidden || isPaused || isTyping || document.querySelector("dialog[open]") || String(getSelection()) !== "";
}
function takeOver(fresh) {
  const focused = document.activeElement;
  const place = focused && focused.closest("main") ? focused.getAttribute("href") : null;
  const opened = new Set([...document.querySelectorAll("main details[open]")].map((one) => one.id));
  for (const selector of ["main", "nav.side", "nav.tabs"]) {
    const before = document.querySelector(selector);
    const after = fresh.querySelector(selector);
    if (before && after) before.replaceChildren(...document.adoptNode(after).childNodes);
  }
  document.title = fresh.title;
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  if (place) document.querySelector(`main a[href="${CSS.escape(place)}"]`)?.focus({ preventScroll: true });
  showZone();
}
async function refresh() {
  clearTimeout(timer);
  if (!isBusy()) {
    try {
      const answer = await fetch(location.href, { headers: etag ? { "If-None-Match": etag } : {}, redirect: "manual", cache: "no-store" });
      if (answer.type === "opaqueredirect" || answer.status === 401) { location.reload(); return; }
      if (answer.status === 200) {
        etag = answer.headers.get("ETag");
        takeOver(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } else if (answer.status !== 304) throw new Error(String(answer.status));
      failures = 0;
      delete document.body.dataset.stale;
      setMark("", "Live");
    } catch {
      failures += 1;
      setMark(failures > 3 ? "off" : "late", failures > 3 ? "Cut off" : "Late");
      if (failures > 3) document.body.dataset.stale = "";
    }
  }
  const wait = seconds * 1000 * Math.min(2 ** failures, 12);
  timer = setTimeout(refresh, wait * (0.85 + 0.3 * Math.random()));
}
if (seconds > 0) {
  timer = setTimeout(refresh, seconds * 1000);
  addEventListener("online", refresh);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
}

// --- keyboard: g then a letter goes somewhere, j and k move, Enter opens ----------------------
const places = { o: "/", a: "/alerts", d: "/dead-letters", i: "/interventions", f: "/flows", r: "/runs", c: "/configs", l: "/limits", p: "/topics", e: "/trace", s: "/system" };
let going = 0;
function move(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const place = rows.indexOf(document.activeElement.closest?.("[data-row]"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, place + step))];
  next.querySelector("a,button")?.focus();
}
addEventListener("keydown", (event) => {
  const find = document.querySelector(".find input");
  if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); find?.focus(); find?.select(); return; }
  if (event.key === "Escape" && event.target === find) { find.blur(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input,textarea,select,dialog")) return;
  if (going && performance.now() - going < 1200 && places[event.key]) { going = 0; location.assign(places[event.key]); return; }
  going = event.key === "g" ? performance.now() : 0;
  if (event.key === "/") { event.preventDefault(); find?.focus(); }
  if (event.key === "?") document.querySelector("dialog.help")?.showModal();
  if (event.key === "j") move(1);
  if (event.key === "k") move(-1);
  if (event.key === "u") { kept.set("penstock.zone", kept.get("penstock.zone") === "local" ? "utc" : "local"); showZone(); }
});

// --- clicks, by delegation --------------------------------------------------------------------
addEventListener("click", async (event) => {
  const hit = event.target.closest("[data-copy],[data-zone],[data-theme-next],[data-close],.live");
  if (!hit) return;
  if ("copy" in hit.dataset) {
    await navigator.clipboard?.writeText(hit.parentElement.querySelector("code").textContent);
    hit.setAttribute("aria-label", "Copied");
    hit.title = "Copied";
  } else if ("zone" in hit.dataset) { kept.set("penstock.zone", hit.dataset.zone); showZone(); }
  else if ("themeNext" in hit.dataset) setTheme(themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % 3]);
  else if ("close" in hit.dataset) hit.closest("dialog").close();
  else if (hit.matches(".live") && seconds > 0) {
    isPaused = !isPaused;
    setMark(isPaused ? "late" : "", isPaused ? "Paused" : "Live");
    if (!isPaused) refresh();
  }
});

// --- a form is sent once ------------------------------------------------------------------------
addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.target.dataset.sent) { event.preventDefault(); return; }
  event.target.dataset.sent = "yes";
});

nameZone();
showZone();
