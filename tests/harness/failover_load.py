"""Load of the failover test: runs and flows over HTTP, each repeated until it is accepted.

A request is repeated under the same idempotency key until its outcome is known. What was asked and
accepted is written to a history, as publishers of the bus do. `queue` and `flow` are the pipelines
that the server executes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from penstock.core.clock import SystemClock
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import text
from penstock.worker.context import RunContext
from tests.harness.crash_bus_roles import ACCEPTED, ASKED, record

QUEUE: Final = "failover_queue"
FLOW: Final = "failover_flow"
SENDERS: Final = {"runs": 3, "flows": 1}
"""Threads that send requests of each kind, one request at a time."""
REST_SECONDS: Final = {"runs": 0.05, "flows": 0.25}
RETRY_SECONDS: Final = 0.1
TIMEOUT_SECONDS: Final = 10

stopping = threading.Event()

queue = Pipeline(QUEUE, partition=text("number"))
flow = Pipeline(FLOW, partition=text("number"))
first = flow.phase("first")


@queue.processor("work")
@first.processor("left")
@first.processor("right")
@flow.phase("second", after=first).processor("end")
def work(run: RunContext) -> None:
    """Do nothing: only the bookkeeping is under test."""


def submitter(url: str, key: str, folder: Path) -> None:
    """Submit runs and trigger flows until asked to stop."""
    threads = [
        threading.Thread(target=_sender, args=(url, key, folder, kind, sender))
        for kind, senders in SENDERS.items()
        for sender in range(senders)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def history_of(folder: Path, kind: str, sender: int) -> Path:
    """Return the path of a thread's history."""
    return folder / f"{kind}-{sender}.history"


def _sender(url: str, key: str, folder: Path, kind: str, sender: int) -> None:
    clock = SystemClock()
    written = os.open(history_of(folder, kind, sender), os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    n = sender
    while not stopping.wait(REST_SECONDS[kind]):
        record(written, ASKED, [str(n)])
        while not _accepted(url, key, kind, n):
            clock.sleep(RETRY_SECONDS)  # a stop waits for the outcome of the last request
        record(written, ACCEPTED, [str(n)])
        n += SENDERS[kind]


def _accepted(url: str, key: str, kind: str, n: int) -> bool:
    path = "customers/acme/pipeline-runs" if kind == "runs" else "flows"
    body = {"pipeline_template": QUEUE if kind == "runs" else FLOW, "partition": f"n{n}"}
    if kind == "flows":
        body["customer_id"] = "acme"
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    headers["Idempotency-Key"] = f"{kind}-{n}"
    request = urllib.request.Request(f"{url}/api/v1/{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            json.load(response)
            return True
    except urllib.error.HTTPError as error:
        with error:
            if error.code < 500 and error.code != 429:
                sys.stderr.write(f"refused: {error.code} {error.read()[:300]!r}\n")
        return False
    except (OSError, ValueError):
        return False  # the server is starting, or the response is incomplete


def main(arguments: list[str]) -> None:
    """Send load until asked to stop."""
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    given: dict[str, Any] = json.loads(arguments[0])
    submitter(given["url"], given["key"], Path(given["folder"]))


if __name__ == "__main__":
    main(sys.argv[1:])
