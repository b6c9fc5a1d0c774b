"""An external worker in plain Python: claim, start, heartbeat, complete, fail, cancel.

PENSTOCK_URL=http://127.0.0.1:8080 PENSTOCK_API_KEY=pnk_... python worker.py
"""

import json
import os
import signal
import socket
from threading import Event, Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

URL, KEY = os.environ.get("PENSTOCK_URL"), os.environ.get("PENSTOCK_API_KEY")
NAME = os.environ.get("WORKER_ID", f"{socket.gethostname()}-{os.getpid()}")
HEARTBEAT_SECONDS = float(os.environ.get("BEAT_SECONDS", "60"))
WAIT_SECONDS = float(os.environ.get("WAIT_SECONDS", "10"))
HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
Json = dict[str, Any]
stopping = Event()


def work(run: Json, progress: Json, stop: Event) -> Json | None:
    """Do the work; replace this. Update `progress`; return None if `stop` ended it."""
    given = run["parameters"] or {}
    steps = given.get("steps", 10)
    for step in range(steps):
        progress.update(current_stage=f"step {step}", progress_percentage=100 * step / steps)
        if stop.wait(given.get("step_seconds", 0.1)):
            return None
    if "error" in given:
        raise RuntimeError(given["error"])
    return {"steps": steps}


def call(path: str, tries: int = 60, **body: Any) -> Json:
    """Make a call about a run, as this worker."""
    return post(path, {"worker_id": NAME, **body}, tries)


def post(path: str, body: Json, tries: int = 60) -> Json:
    """POST; retry while the server is unreachable or busy, since every call may be repeated."""
    data = json.dumps(body).encode()
    while True:
        try:
            with urlopen(Request(f"{URL}/api/v1{path}", data, HEADERS), timeout=90) as response:  # noqa: S310
                return dict(json.load(response))
        except OSError as error:
            tries -= 1
            if not tries or is_refusal(error):
                raise
            Event().wait(1)


def is_refusal(error: OSError) -> bool:
    """Return whether the server refused.

    Otherwise it is unreachable or busy, and retrying helps.
    """
    return isinstance(error, HTTPError) and error.code not in (429, 503)


def execute(run: Json) -> None:
    """Execute one run; a second thread sends heartbeats and learns of a cancellation."""
    path, token = f"/pipeline-runs/{run['run_id']}", {"fencing_token": run["fencing_token"]}
    progress: Json = {}
    stop, done = Event(), Event()

    def send_heartbeats() -> None:
        while not done.wait(HEARTBEAT_SECONDS) and not stop.is_set():
            try:
                if call(f"{path}/heartbeat", tries=1, **token, **progress)["cancel_requested"]:
                    stop.set()
            except OSError as error:
                if is_refusal(error):  # the run has another holder now
                    stop.set()

    try:
        call(f"{path}/start", **token)
        Thread(target=send_heartbeats).start()
        try:
            result = work(run, progress, stop)
            verb = "cancelled" if result is None else "complete"
            report: Json = {} if result is None else {"result_summary": result}
        except Exception as error:
            details = {"message": str(error)}
            verb, report = "fail", {"error_type": type(error).__name__, "error_details": details}
        print(run["run_id"], call(f"{path}/{verb}", **token, **report)["state"], flush=True)
    except HTTPError as refused:
        print(run["run_id"], "refused", refused.read().decode(), flush=True)
    finally:
        done.set()


if __name__ == "__main__":
    if not URL or not KEY:
        raise SystemExit(
            "set PENSTOCK_URL and PENSTOCK_API_KEY (penstock keys create NAME --role worker)"
        )
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())  # the current run is finished first
    print(NAME, "waiting for work", flush=True)
    while not stopping.is_set():
        try:
            claim = call("/scheduler/claim-runs", tries=1, wait_seconds=WAIT_SECONDS)
            for claimed in claim["claimed_runs"]:
                execute(claimed)
        except OSError as error:
            if isinstance(error, HTTPError) and error.code in (
                401,
                403,
            ):  # waiting does not fix a key
                raise SystemExit(f"cannot work: {error.read().decode()}") from None
            print("cannot work:", error, flush=True)
            stopping.wait(1)
