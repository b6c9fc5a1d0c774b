"""Pages of the dashboard over a large installation, and 200 persons who watch them.

The database of `trace` (10,000,000 executions on PostgreSQL, 1,000,000 on SQLite) with 50,000
configs and 1,000,000 dead letters besides. Every page is requested in random order: the figures are
the time until the response has arrived, and the CPU of server and database. A response other than
200 ends the benchmark; requests alternate between sessions, because each session has a rate. Then
200 viewers hold streams of hints while runs are cancelled: the figure is the CPU of the server,
with the streams alone and with every viewer fetching its fragment after a hint, as browsers do.
"""

from __future__ import annotations

import gzip
import itertools
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlencode

from benchmarks.cpu import cpu_seconds, server_seconds
from benchmarks.load import CUSTOMERS, series, settle, unchecked, wall_now
from benchmarks.raw import Raw
from benchmarks.result import Result, percentile, print_progress
from benchmarks.served import Server, served
from benchmarks.site import BenchDatabase, Site
from benchmarks.trace import copy_rows, load_executions
from penstock import Pipeline
from penstock.analytics.fold import QUARTER
from penstock.analytics.store import LAG
from penstock.assembly.process import run_pending
from penstock.client import Client
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.core.errors import PermanentError
from penstock.core.ids import encode
from penstock.runs.records import Submission
from penstock.schedules.records import Config
from penstock.web.build import PAGES
from penstock.worker.context import RunContext

ASKED = 100
SESSIONS = 10
"""More than the fastest page needs: a session may send 50 requests a second."""
COSTED = 20
VIEWERS = 200
WATCHED_SECONDS = 20.0
TOPICS = "counts,alerts,letters,interventions,flows,runs"
FIRST = 1_000_000
FOLDED = (
    "folded_to", "executions_folded_to", "analytics_runs_to", "analytics_checks_to",
    "analytics_phases_to", "analytics_flows_to",
)  # fmt: skip
"""Counters with the times up to which rows were folded into figures."""

failing = Pipeline("failing")


@failing.phase("main").processor("fails")
def _fails(run: RunContext) -> None:
    raise PermanentError(f"{run.processor}: a field is missing")


def pages(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure every page, then the viewers."""
    n = 100_000 if quick else (10_000_000 if site.engine == "postgres" else 1_000_000)
    configs, dead = (2_000, 10_000) if quick else (50_000, 1_000_000)
    place = site.create("pages")
    began = time.perf_counter()
    _load(place, n, configs, dead)
    print_progress(f"loaded {n:,} executions in {time.perf_counter() - began:.0f} s")
    with served(place, api_rate="100000", api_inflight="400") as server:
        figures = _pages(server, place)
        costs = _costs(site, server, place)
        sizes = _sizes(server)
        watching = _watch(place, server, quick=quick)
    site.drop(place)
    slowest = max(figures, key=lambda name: figures[name])
    yield Result(
        bench="pages",
        engine=site.engine,
        value=figures[slowest],
        unit="ms",
        n=n,
        extra={
            "p95_ms": figures[slowest],
            "slowest": slowest,
            "configs": configs,
            "dead_letters": dead,
            **sizes,
            **watching,
            "pages": {name: round(figures[name], 1) for name in sorted(figures)},
            "cpu_ms": max(costs.values()),
            "costliest": max(costs, key=lambda name: costs[name]),
            "page_cpu_ms": costs,
        },
    )


def _load(place: BenchDatabase, n: int, configs: int, dead: int) -> None:
    """Copy executions as `trace` does; add configs, and copies of one dead letter."""
    load_executions(place, n)
    store = place.store()
    client = Client(store)
    client.register([failing])
    client.runs.submit(Submission(pipeline="failing", customer="c1", parameters={"a": 1}))
    run_pending(client, [failing])
    assert client.dead_letters.count() == 1
    made = Config(pipeline="failing", cron="0 2 * * *")
    client.configs.create("c1", made)
    store.close()
    raw = unchecked(place)
    now = wall_now()
    _configs(place, raw, configs)
    copy_rows(
        raw, place, "dead_letters", series(place, dead),
        {"dead_letter_id": f"{FIRST} + s.i", "customer": f"1 + s.i % {CUSTOMERS}",
         "died_at": f"{now} - s.i * {DAY // dead * 30}", "subject": f"{FIRST * 1000} + s.i",
         "error_type": "'ERROR_' || (s.i % 40)"},
    )  # fmt: skip
    # The services have folded what is older than their lag and a pass or two of a minute.
    horizon = now - LAG - 2 * MINUTE
    folded = ", ".join(f"('{name}', {horizon})" for name in FOLDED)
    raw.run(
        f"INSERT INTO counters (name, value) VALUES {folded} "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )
    raw.run(
        "INSERT INTO run_counts (customer, at, processor, completed, failed, cancelled, retried, "
        f"late, slow, duration_us) SELECT 0, finished_at / {QUARTER} * {QUARTER}, processor, "
        "sum(CASE WHEN final_state = 'COMPLETED' THEN 1 ELSE 0 END), "
        "sum(CASE WHEN final_state = 'COMPLETED' THEN 0 ELSE 1 END), 0, 0, 0, 0, 0 "
        f"FROM history WHERE finished_at <= {horizon} GROUP BY 1, 2, 3"
    )
    if place.engine == "sqlite":
        raw.run("ANALYZE")
    settle(place, raw)
    raw.close()


def _configs(place: BenchDatabase, raw: Raw, n: int) -> None:
    """Copy the config and its schedule."""
    now = wall_now()
    cadence, pipeline = raw.rows("SELECT cadence, pipeline FROM configs LIMIT 1")[0]
    times = series(place, n)
    raw.run(
        "INSERT INTO configs (customer, pipeline, provider, domain, schedule_type, cadence, "
        "max_execution_us, sla_us, catch_up_window_us, created_at, created_by, updated_at) "
        f"SELECT 1 + s.i % {CUSTOMERS}, {pipeline}, 'p' || s.i, '', 'CRON', {cadence}, {HOUR}, "
        f"{DAY}, {DAY}, {now}, 'bench', {now} FROM {times}"
    )
    raw.run(
        "INSERT INTO schedule (config_id, cadence, next_run_time, evaluated_to, window_us) "
        f"SELECT c.config_id, {cadence}, {now + DAY} + c.config_id * {SECOND}, {now}, {DAY} "
        "FROM configs c WHERE NOT EXISTS (SELECT 1 FROM schedule s WHERE s.config_id = c.config_id)"
    )


def _paths(place: BenchDatabase) -> list[str]:
    """Return the address of every list, and of one page of each kind of thing."""
    store = place.store()
    client = Client(store)
    paths = [page.path for page in PAGES if "{" not in page.path]
    flow = client.flows.list(limit=1).items[0]
    paths += [
        f"/flows/{flow.flow_id}",
        f"/trace?{urlencode({'q': flow.flow_id})}",
        f"/runs/{client.runs.list(limit=1).items[0].run_id}",
        f"/dead-letters/{encode('dl', FIRST + 7)}",
        f"/configs/{client.configs.list(limit=1).items[0].config_id}",
        "/customers/c1",
        "/dead-letters?error_type=ERROR_7",
        "/runs?pipeline=failing",
        f"/palette?{urlencode({'q': flow.flow_id[5:10]})}",
    ]
    store.close()
    return [path for path in paths if path not in ("/logout",)]


def _pages(server: Server, place: BenchDatabase) -> dict[str, float]:
    """Return the 95th percentile of each page in milliseconds."""
    sessions = _Sessions(server)
    paths = _paths(place)
    for path in paths:
        sessions.see(path)
    asked = paths * ASKED
    random.Random(3).shuffle(asked)
    samples: dict[str, list[float]] = {}
    for path in asked:
        began = time.perf_counter()
        sessions.see(path)
        samples.setdefault(_name(path), []).append((time.perf_counter() - began) * 1_000)
    return {name: percentile(found, 0.95) for name, found in samples.items()}


def _costs(site: Site, server: Server, place: BenchDatabase) -> dict[str, float]:
    """Return the CPU of each page, server and database, in milliseconds; a busy machine has the
    same.
    """

    def spent() -> float:
        return cpu_seconds(server.pid) + (server_seconds(site) or 0.0)

    sessions = _Sessions(server)
    costs = {}
    for path in _paths(place):
        before = spent()
        for _ in range(COSTED):
            sessions.see(path)
        costs[_name(path)] = round((spent() - before) / COSTED * 1_000, 1)
    return costs


def _name(path: str) -> str:
    """Return the path without ids, so that results can be compared."""
    return re.sub(r"(run|flow|dl|cfg)_[0-9a-z]+|(?<=q=)[0-9a-z]+", "ID", path)


def _sizes(server: Server) -> dict[str, int]:
    """Return the bytes of the first visit, as they are sent."""
    person = _Person(server)
    _, page = person.get("/")
    text = gzip.decompress(page).decode()
    names = re.findall(r'(?:src|href)="(/assets/[^"]+)"', text)
    assets = {name: len(person.get(name)[1]) for name in names}
    code = sum(size for name, size in assets.items() if name.endswith((".css", ".js")))
    return {
        "first_page_bytes": len(page) + sum(assets.values()),
        "html_bytes": len(page),
        "css_js_bytes": code,
    }


class _Person:
    """A session with one connection."""

    def __init__(self, server: Server) -> None:
        self.port = server.port
        connection = HTTPConnection("127.0.0.1", server.port, timeout=120)
        connection.request(
            "POST", "/login", urlencode({"key": server.key}),
            {"Content-Type": "application/x-www-form-urlencoded"},
        )  # fmt: skip
        response = connection.getresponse()
        response.read()
        assert response.status == 303, response.status
        self.cookie = response.headers["Set-Cookie"].partition(";")[0]
        self._connection = connection

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        """Ask for a page; return status and body as sent."""
        sent = {"Cookie": self.cookie, "Accept-Encoding": "gzip", **headers}
        self._connection.request("GET", path, headers=sent)
        response = self._connection.getresponse()
        return response.status, response.read()

    def stream(self) -> HTTPResponse:
        """Open a stream of hints."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", f"/live?on={TOPICS}", headers={"Cookie": self.cookie})
        response = connection.getresponse()
        assert response.status == 200, response.status
        return response


class _Sessions:
    """Several sessions, used one after another."""

    def __init__(self, server: Server) -> None:
        self._persons = itertools.cycle([_Person(server) for _ in range(SESSIONS)])

    def see(self, path: str) -> None:
        """Request a page; fail unless it is served."""
        status, body = next(self._persons).get(path)
        assert status == 200, (path, status, body[:200])


def _watch(place: BenchDatabase, server: Server, *, quick: bool) -> dict[str, float]:
    """Return the share of a core that the server needs for the viewers."""
    seconds = 5.0 if quick else WATCHED_SECONDS
    persons = [_Person(server) for _ in range(-(-VIEWERS // 10))]
    streams = [persons[i % len(persons)].stream() for i in range(VIEWERS)]
    with ExitStack() as stack:
        stopping = threading.Event()
        stack.callback(stopping.set)
        writer = threading.Thread(target=_change, args=(place, stopping))
        writer.start()
        hints = _Hints(streams, persons, stopping)
        time.sleep(2)
        figures = {"viewers": float(VIEWERS)}
        before, count = cpu_seconds(server.pid), hints.count
        time.sleep(seconds)
        figures["sse_cpu_share"] = (cpu_seconds(server.pid) - before) / seconds
        figures["hints_per_second"] = (hints.count - count) / seconds
        hints.is_fetching.set()
        time.sleep(1)
        before, fetched = cpu_seconds(server.pid), hints.fetched
        time.sleep(seconds)
        figures["watching_cpu_share"] = (cpu_seconds(server.pid) - before) / seconds
        figures["fragments_per_second"] = (hints.fetched - fetched) / seconds
        figures["fragments_refused"] = float(hints.refused)
        stopping.set()
        writer.join()
        hints.close()
    return figures


def _change(place: BenchDatabase, stopping: threading.Event) -> None:
    """Submit and cancel a run five times a second, which the journal records."""
    store = place.store()
    client = Client(store)
    while not stopping.wait(0.2):
        made = client.runs.submit(Submission(pipeline="failing", customer="c1"))
        client.runs.cancel(made.run_id, reason="bench")
    store.close()


class _Hints:
    """Reads all streams from few threads; each viewer may fetch its fragment after a hint."""

    def __init__(
        self, streams: list[HTTPResponse], persons: list[_Person], stopping: threading.Event
    ) -> None:
        self.count = self.fetched = self.refused = 0
        self.is_fetching = threading.Event()
        self._stopping = stopping
        self._sockets: list[socket.socket] = []
        self._threads = [
            threading.Thread(target=self._read, args=(streams[i::8], persons[i]), daemon=True)
            for i in range(8)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Wait for the threads."""
        for thread in self._threads:
            thread.join(60)

    def _read(self, streams: list[HTTPResponse], person: _Person) -> None:
        while not self._stopping.is_set():
            for stream in streams:
                if self._stopping.is_set():
                    return
                while not (line := stream.readline()).startswith(b"event: "):
                    if not line:
                        return
                if line.strip() != b"event: hint":
                    continue
                self.count += 1
                if self.is_fetching.is_set():
                    status, _ = person.get("/", **{"X-Penstock-Fragment": "1"})
                    self.fetched += status == 200
                    self.refused += status != 200
