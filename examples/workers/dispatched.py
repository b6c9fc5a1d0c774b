"""An external worker dispatched by the broker: a message names the run, the worker claims that run.

    penstock subscriptions create images --topic penstock.runs
    PENSTOCK_URL=... PENSTOCK_API_KEY=pnk_... SUBSCRIPTION=images python dispatched.py

Any broker that is fed from the topic `penstock.runs` may dispatch workers in the same way.
"""

import base64
import json
import os
import signal
from urllib.error import HTTPError

from worker import (  # type: ignore[import-not-found]  # the file next to this one
    KEY,
    NAME,
    URL,
    WAIT_SECONDS,
    Json,
    call,
    execute,
    post,
    stopping,
)

SUBSCRIPTION = f"/subscriptions/{os.environ.get('SUBSCRIPTION', 'images')}"


def dispatch(delivery: Json) -> None:
    """Claim and execute the run that a message names, then ack the message.

    A run that another worker holds, or that this worker cannot execute, needs nothing more.
    """
    announced = json.loads(base64.b64decode(delivery["message"]["data"]))
    try:
        run = call(f"/pipeline-runs/{announced['run_id']}/claim")
    except HTTPError as refused:
        if refused.code not in (404, 409):
            raise
        print(announced["run_id"], "skipped", refused.code, flush=True)
    else:
        execute(run)
    post(f"{SUBSCRIPTION}/ack", {"ack_ids": [delivery["ack_id"]]})


if __name__ == "__main__":
    if not URL or not KEY:
        raise SystemExit("set PENSTOCK_URL and PENSTOCK_API_KEY")
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())  # the current run is finished first
    print(NAME, "waiting for messages", flush=True)
    while not stopping.is_set():
        wanted = {"max_messages": 1, "wait_seconds": WAIT_SECONDS}
        pulled = post(f"{SUBSCRIPTION}/pull", wanted)
        for one in pulled["received_messages"]:
            dispatch(one)
