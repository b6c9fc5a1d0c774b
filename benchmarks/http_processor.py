"""HTTP processors: runs sent to an endpoint on this machine, from the claim to the stored result.

The endpoint is another process that reads each request and replies 200 with a small result, or 202.
Requests are signed. The limit is what the same threads reach with the same client and bodies when
nothing is claimed or stored.
"""

from __future__ import annotations

import asyncio
import base64
import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from benchmarks.load import settle
from benchmarks.result import Result, print_progress
from benchmarks.site import BenchDatabase, Site
from penstock.access.secrets import Secrets
from penstock.audit.telemetry import Event, Events, RequestSent
from penstock.client import Client
from penstock.core.clock import SystemClock
from penstock.db.store import Store
from penstock.egress.http_client import HttpClient, Request
from penstock.egress.policy import PERMISSIVE
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.records import Submission
from penstock.services.supervisor import Loop, LoopSchedule
from penstock.worker.endpoints.dispatcher import Dispatcher, DispatcherOptions
from penstock.worker.endpoints.exchange import Exchanger

THREADS = 128
CUSTOMERS = 20
BATCH = 500
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
BODY = b'{"records_processed": 12, "result_summary": {"file": "s3://bucket/key"}}'


def http_processor(site: Site, *, quick: bool) -> Iterator[Result]:
    """Send runs to an endpoint that replies at once, then to one that accepts with 202."""
    n = 500 if quick else 8_000
    with _endpoint() as port:
        limit = _plain_rate(port, n)
        done, seconds = _sent_rate(site, port, "/done", n)
        accepted, _ = _sent_rate(site, port, "/accepted", n)
    cuts = statistics.quantiles(seconds, n=100)
    yield Result(
        bench="http_processor",
        engine=site.engine,
        value=done,
        unit="requests/s",
        limit=limit,
        ratio=done / limit,
        n=n,
        extra={
            "accepted": accepted,
            "request_p50_ms": cuts[49] * 1_000,
            "request_p99_ms": cuts[98] * 1_000,
            "threads": THREADS,
        },
    )


def _sent_rate(site: Site, port: int, path: str, n: int) -> tuple[float, list[float]]:
    """Return runs per second until all are stored, and the seconds of each request."""
    place = site.create("http_processor")
    raw = place.raw()
    store = place.store()
    client = Client(store)
    pipeline = Pipeline("scores")
    url = f"http://127.0.0.1:{port}{path}"
    pipeline.phase("main").http(url, name="score", signing_secrets=["hook"])
    client.register([pipeline])
    wanted = [
        Submission(pipeline="scores", customer=f"c{i % CUSTOMERS}", parameters={"n": i})
        for i in range(n)
    ]
    for start in range(0, n, BATCH):
        client.runs.submit_many(wanted[start : start + BATCH])
    settle(place, raw)
    print_progress(f"{n:,} runs to {path}")
    try:
        return _drain(place, store, n, is_accepted=path == "/accepted")
    finally:
        store.close()
        raw.close()
        site.drop(place)


def _drain(
    place: BenchDatabase, store: Store, n: int, *, is_accepted: bool
) -> tuple[float, list[float]]:
    events = Events()
    seconds: list[float] = []
    outcomes: set[str] = set()
    is_over = threading.Event()

    def count(event: Event) -> None:
        if isinstance(event, RequestSent):
            seconds.append(event.seconds)
            outcomes.add(event.outcome)
            if len(seconds) == n:
                is_over.set()

    events.subscribe(count)
    clock = SystemClock()
    sender = Dispatcher(
        store,
        Exchanger(
            HttpClient(clock, PERMISSIVE).send,
            bearer=lambda *_: "",
            secrets=Secrets({"hook": SECRET}),
            clock=clock,
        ),
        clock=clock,
        events=events,
        options=DispatcherOptions(threads=THREADS, callback_url="http://127.0.0.1:1"),
    )
    loop = Loop(
        sender, LoopSchedule(interval_us=1_000_000), store, events=events, jitter=lambda: 0.5
    )
    began = time.perf_counter()
    loop.start()
    assert is_over.wait(600), (len(seconds), n)
    took = time.perf_counter() - began
    loop.stop()
    assert outcomes == {"accepted" if is_accepted else "done"}, outcomes
    with_raw = place.raw()
    table, state = ("runs", "RUNNING") if is_accepted else ("history", "COMPLETED")
    column = "state" if is_accepted else "final_state"
    ((stored,),) = with_raw.rows(f"SELECT count(*) FROM {table} WHERE {column} = '{state}'")
    with_raw.close()
    assert stored == n, (stored, n)
    return n / took, seconds


def _plain_rate(port: int, n: int) -> float:
    """Return requests per second of the same threads and client, with nothing stored."""
    egress = HttpClient(SystemClock(), PERMISSIVE)
    headers = {"Content-Type": "application/json", "webhook-signature": "v1," + "x" * 44}
    request = Request(
        url=f"http://127.0.0.1:{port}/done",
        headers=headers,
        body=b"x" * 1_500,
        read_body=True,
        keep_alive=True,
    )
    left = iter(range(n))
    lock = threading.Lock()

    def send() -> None:
        while True:
            with lock:
                if next(left, None) is None:
                    return
            assert egress.send(request).status == 200

    threads = [threading.Thread(target=send, daemon=True) for _ in range(THREADS * 3 // 4)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return n / (time.perf_counter() - began)


@contextmanager
def _endpoint() -> Iterator[int]:
    """Run the endpoint in another process; yield its port."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs,), daemon=True)
    child.start()
    try:
        yield ours.recv()
    finally:
        child.terminate()
        child.join()


def _serve(parent: Connection) -> None:
    asyncio.run(_serve_forever(parent))


async def _serve_forever(parent: Connection) -> None:
    server = await asyncio.start_server(_talk, "127.0.0.1", 0, limit=1 << 20)
    parent.send(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reply to each request on a connection."""
    done = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    accepted = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            await reader.readexactly(length)
            is_done = head.startswith(b"POST /done")
            writer.write(done % (len(BODY), BODY) if is_done else accepted)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
