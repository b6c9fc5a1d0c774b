// An external worker in plain JavaScript (Node 20 or later, no dependencies).
//
// PENSTOCK_URL=http://127.0.0.1:8080 PENSTOCK_API_KEY=pnk_... node worker.mjs

import { hostname } from "node:os";
import { setTimeout as pause } from "node:timers/promises";

const { PENSTOCK_URL: URL, PENSTOCK_API_KEY: KEY, BEAT_SECONDS = 60, WAIT_SECONDS = 10 } = process.env;
if (!URL || !KEY) {
  console.error("set PENSTOCK_URL and PENSTOCK_API_KEY (penstock keys create NAME --role worker)");
  process.exit(1);
}
const NAME = process.env.WORKER_ID ?? `${hostname()}-${process.pid}`;
let stopping = false;

// Do the work; replace this. Update `progress`; return null if `stop` ended it.
async function work(run, progress, stop) {
  const { steps = 10, step_seconds = 0.1, error } = run.parameters ?? {};
  for (let step = 0; step < steps; step++) {
    Object.assign(progress, { current_stage: `step ${step}`, progress_percentage: (100 * step) / steps });
    await pause(1000 * step_seconds, null, { signal: stop }).catch(() => {});
    if (stop.aborted) return null;
  }
  if (error) throw new Error(error);
  return { steps };
}

class Refused extends Error {}
class BadKey extends Refused {}

// POST; retry while the server is unreachable or busy, since every call may be repeated.
async function call(path, body = {}, tries = 60) {
  const headers = { Authorization: `Bearer ${KEY}`, "Content-Type": "application/json" };
  const data = JSON.stringify({ worker_id: NAME, ...body });
  for (let left = tries - 1; ; left--) {
    const response = await fetch(`${URL}/api/v1${path}`, {
      method: "POST", headers, body: data, signal: AbortSignal.timeout(90_000),
    }).catch((error) => error);
    if (response.ok) return response.json();
    const unavailable = response instanceof Error || [429, 503].includes(response.status);
    const kind = [401, 403].includes(response.status) ? BadKey : Refused;
    if (!unavailable) throw new kind(await response.text());
    if (!left) throw new Error(`no response: ${response.message ?? response.status}`);
    await pause(1000);
  }
}

// Execute one run; heartbeats extend its lease during the work and report a cancellation.
async function execute(run) {
  const report = (verb, body, tries) =>
    call(`/pipeline-runs/${run.run_id}/${verb}`, { fencing_token: run.fencing_token, ...body }, tries);
  const [progress, stop, done] = [{}, new AbortController(), new AbortController()];

  async function beat() {
    while (!done.signal.aborted && !stop.signal.aborted) {
      await pause(1000 * BEAT_SECONDS, null, { signal: done.signal }).catch(() => {});
      if (done.signal.aborted) return;
      const response = await report("heartbeat", progress, 1).catch((error) => error);
      if (response.cancel_requested || response instanceof Refused) stop.abort(); // refused: another holder
    }
  }

  try {
    await report("start");
    beat();
    const end = await work(run, progress, stop.signal).then(
      (result) => (result === null ? ["cancelled"] : ["complete", { result_summary: result }]),
      (error) => ["fail", { error_type: error.name, error_details: { message: error.message } }],
    );
    console.log(run.run_id, (await report(...end)).state);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    console.log(run.run_id, "refused", error.message);
  } finally {
    done.abort();
  }
}

process.on("SIGTERM", () => { stopping = true; }); // the current run is finished first
console.log(NAME, "waiting for work");
while (!stopping) {
  try {
    const wait = { wait_seconds: Number(WAIT_SECONDS) };
    const { claimed_runs } = await call("/scheduler/claim-runs", wait, 1);
    for (const run of claimed_runs) await execute(run);
  } catch (error) {
    console.log("cannot work:", error.message);
    if (error instanceof BadKey) process.exit(1); // waiting does not fix a key
    await pause(1000);
  }
}
