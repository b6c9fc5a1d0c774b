// --- live: hints say that something changed; the page then asks for its changed part ----------
// Without a stream the page asks every 5 seconds; with one, after a hint and every 15 seconds,
// because not everything that changes leaves a hint; with a log that grows, every 5 seconds. The ETag makes an unchanged answer small.
const topics = document.body.dataset.live;
const POLL = 5_000, SLOW = 15_000, SILENT = 25_000, STALE = 60_000;
const BACKOFF = [1, 2, 4, 8, 15, 30];
const mark = find("button.live");
const live = { etag: document.body.dataset.etag ? `"${document.body.dataset.etag}"` : "", source: null, after: "", failures: 0, refused: 0, isPaused: false, isAsked: false, isAsking: false, held: null, at: Date.now(), sign: Date.now() };
const timers = {};
function later(name, work, wait) { clearTimeout(timers[name]); timers[name] = setTimeout(work, wait); }

function setMark() {
  if (!mark) return;
  const age = Date.now() - live.at;
  const isCut = live.failures > 2 || (age > STALE && !isBusy());
  const state = live.isPaused ? "late" : isCut ? "off" : live.source && Date.now() - live.sign < SILENT ? "" : "late";
  const words = live.isPaused ? "Paused" : isCut ? "Cut off" : live.source ? "Live" : "Every 5 s";
  if (mark.textContent !== words) mark.textContent = words;
  if (state) mark.dataset.state = state; else delete mark.dataset.state;
  const bar = find(".stale");
  if (!bar || bar.hidden === !(isCut && !live.isPaused)) return;
  bar.hidden = !bar.hidden;
  const shown = find("time", bar);
  shown.dateTime = new Date(live.at).toISOString();
  shown.textContent = `${shown.dateTime.slice(11, 19)}Z`;
  delete shown.dataset.said;
  showZone(bar);
}
function isBusy() {
  const focused = document.activeElement;
  const isTyping = focused?.closest?.("main") && focused.matches("input,textarea,select");
  return document.hidden || live.isPaused || isTyping || find("dialog[open]") || String(getSelection()) !== "";
}
// New rows do not push away what is being read: they wait behind a button.
function newRows(fresh) {
  if (scrollY < 300 && !all("[data-chosen]").length) return 0;
  const known = new Set(all("main [data-row]").map(keyOf));
  return known.size ? all("main [data-row]", fresh).filter((row) => !known.has(keyOf(row))).length : 0;
}
function takeOver(fresh) {
  const count = newRows(fresh);
  const button = find("button.fresh");
  live.held = count ? fresh : null;
  if (button) { button.hidden = !count; button.textContent = `${count} new`; }
  if (count) return;
  const isAtEnd = followsLog();
  morphPage(fresh);
  if (isAtEnd) showLogEnd();
}
// The log of a running run stays at its newest line, unless its reader has scrolled up.
function followsLog() {
  const log = find("[data-tail]");
  return Boolean(log) && log.scrollHeight - log.scrollTop - log.clientHeight < 30;
}
function showLogEnd() {
  const log = find("[data-tail]");
  if (log) log.scrollTop = log.scrollHeight;
}
async function refresh() {
  if (live.isAsking) return;
  live.isAsked = true;
  if (isBusy()) { later("again", refresh, 2_000); return; }
  live.isAsking = true;
  live.isAsked = false;
  try {
    const headers = live.etag ? { ...FRAGMENT, "If-None-Match": live.etag } : FRAGMENT;
    const answer = await fetch(location.href, { headers, redirect: "manual", cache: "no-store" });
    if (answer.type === "opaqueredirect" || answer.status === 401) { location.reload(); return; }
    if (answer.status === 200) {
      const text = await answer.text();
      live.etag = answer.headers.get("ETag") ?? "";
      takeOver(new DOMParser().parseFromString(text, "text/html"));
    } else if (answer.status !== 304) throw new Error(String(answer.status));
    const date = Date.parse(answer.headers.get("Date") ?? "");
    if (date) clockOffset = Math.abs(date - Date.now()) > 2_000 ? date - Date.now() : 0;
    if (live.failures > 2) say("The server answers again.");
    live.failures = 0;
    live.at = Date.now();
  } catch { live.failures += 1; }
  live.isAsking = false;
  setMark();
  schedule();
}
function schedule() {
  if (topics === undefined) return; // the page does not change by itself
  const wait = live.failures ? BACKOFF[Math.min(live.failures, BACKOFF.length) - 1] * 1_000 : live.source && !find("[data-tail]") ? SLOW : POLL;
  later("next", refresh, wait * (0.85 + 0.3 * Math.random()));
}
function heard(event) {
  live.sign = Date.now();
  live.after = event.lastEventId || live.after;
  live.refused = 0;
  if (event.type === "hint" || event.type === "hello" && event.data !== "same") later("hint", refresh, 50 + 400 * Math.random());
  setMark();
}
function connect() {
  if (!topics || live.source || live.isPaused || document.hidden || !window.EventSource) return;
  const query = new URLSearchParams({ on: topics });
  if (live.after) query.set("after", live.after);
  const source = new EventSource(`/live?${query}`);
  live.source = source;
  live.sign = Date.now();
  for (const name of ["hello", "hint", "ping"]) source.addEventListener(name, heard);
  source.addEventListener("end", () => { disconnect(); refresh(); reconnect(); });
  source.onerror = () => { disconnect(); refresh(); reconnect(); };
}
function disconnect() {
  live.source?.close();
  live.source = null;
}
function reconnect() {
  const wait = BACKOFF[Math.min(live.refused, BACKOFF.length - 1)] * 1_000;
  live.refused += 1;
  later("connect", connect, wait * (0.7 + 0.6 * Math.random()));
  setMark();
}
if (topics !== undefined) {
  showLogEnd();
  connect();
  schedule();
  setInterval(() => {
    if (live.source && Date.now() - live.sign > STALE) { disconnect(); reconnect(); }
    setMark();
  }, 5_000);
  addEventListener("online", () => { connect(); refresh(); });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => { if (event.persisted) { connect(); refresh(); } });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { later("hide", () => { if (document.hidden) disconnect(); }, 10_000); return; }
    clearTimeout(timers.connect);
    connect();
    refresh();
  });
  mark?.addEventListener("click", () => {
    live.isPaused = !live.isPaused;
    if (live.isPaused) disconnect(); else { connect(); refresh(); }
    say(live.isPaused ? "Updates are paused." : "Updates go on.");
    setMark();
  });
  find("button.fresh")?.addEventListener("click", (event) => {
    event.target.hidden = true;
    if (live.held) morphPage(live.held);
    live.held = null;
    scrollTo({ top: 0 });
  });
}
