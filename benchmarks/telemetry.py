"""Telemetry: the queue with and without exporters, in turn.

The receiver is another process that reads and drops what it gets. Rounds alternate, so that a
machine that becomes slower affects both; the value is the throughput with telemetry divided by that
of the other rounds. `cpu_ratio` compares the CPU time of the process per run, with its exporting
threads, which other programs on the machine disturb less.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.load import CUSTOMERS, customers, settle
from benchmarks.raw import Raw
from benchmarks.result import Result, print_progress
from benchmarks.site import Site
from benchmarks.work import noop, worker
from penstock.assembly.settings import load
from penstock.assembly.telemetry import process_telemetry
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.runs.records import Submission

BATCH = 1_000
ROUNDS = 5
RECEIVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def telemetry(site: Site, *, quick: bool) -> Iterator[Result]:
    """Enqueue and drain no-op runs, with and without telemetry in turn."""
    n = 10_000 if quick else 40_000
    rounds = 3 if quick else ROUNDS
    ratios, on, off, cpu = [], [], [], []
    with _receiver() as url:
        _round(site, n // 4, url)  # warm both paths
        for number in range(rounds):
            pair: dict[bool, tuple[float, float]] = {}
            for is_on in (True, False) if number % 2 else (False, True):
                pair[is_on] = _round(site, n, url if is_on else None)
            ratios.append(pair[True][0] / pair[False][0])
            cpu.append(pair[False][1] / pair[True][1])
            on.append(pair[True])
            off.append(pair[False])
            print_progress(f"with {pair[True]}, without {pair[False]} (runs/s, CPU us a run)")
    yield Result(
        bench="telemetry",
        engine=site.engine,
        value=statistics.median(ratios),
        unit="ratio",
        n=n,
        extra={
            "on": max(on)[0],
            "off": max(off)[0],
            "cpu_ratio": statistics.median(cpu),
            "cpu_us_on": statistics.median(one[1] for one in on),
            "cpu_us_off": statistics.median(one[1] for one in off),
        },
    )


def _round(site: Site, n: int, url: str | None) -> tuple[float, float]:
    """Return runs per second from the first submission to the last end, and CPU time of a run."""
    place = site.create("telemetry")
    raw = place.raw()
    customers(place, raw)
    settle(place, raw)
    store = place.store()
    client = Client(store)
    client.register([noop])
    events = Events()
    batches = [
        [
            Submission(pipeline="noop", customer=f"c{1 + (i * 7_919) % CUSTOMERS}")
            for i in range(start, start + BATCH)
        ]
        for start in range(0, n, BATCH)
    ]
    with ExitStack() as stack:
        if url is not None:
            given = {"telemetry": {"otlp_endpoint": url, "logs": True}}
            settings = load({}, overrides=given)
            store.events = events
            stack.enter_context(process_telemetry(client, settings, events, [noop], has_api=False))
        began, used = time.perf_counter(), time.process_time()
        for batch in batches:
            client.runs.submit_many(batch)
        subject = worker(store, noop, events=events)
        subject.start()
        while _ended(raw) < n:
            time.sleep(0.02)
        drained, used = time.perf_counter(), time.process_time() - used
        subject.stop()
    store.close()
    raw.close()
    site.drop(place)
    return n / (drained - began), used / n * 1e6


def _ended(raw: Raw) -> int:
    return int(raw.rows("SELECT coalesce(sum(runs), 0) FROM run_sums")[0][0])


@contextmanager
def _receiver() -> Iterator[str]:
    """Run the receiver; yield its URL."""
    process = subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
