"""Cascades: from one phase to the next, through many flows, and while flows wait at gates."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

from benchmarks.cpu import server_seconds
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import Site
from benchmarks.work import worker
from penstock import Pipeline, game_day_modes, same_day, text
from penstock.access.store.registry import customer_ensure_many, pipeline_get
from penstock.audit.telemetry import Event, Events, RunEnded
from penstock.client import Client
from penstock.core.clock import SECOND
from penstock.db.store import Store, Tx
from penstock.flows.advance.snapshot import Wakeup
from penstock.flows.advance.store import advance
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import Prober, ProbeRequest, no_probes
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest
from penstock.flows.store.create import FlowOpening, flow_open_many
from penstock.services.supervisor import Loop, LoopSchedule
from penstock.worker.context import RunContext

RATE = 20
PHASES = 6
WIDTH = 5

ended_ns: dict[str, int] = {}
"""When the worker learned that the first phase's end is committed, by partition."""
first_runs: dict[int, str] = {}
delays_ms: list[float] = []


def two_phases() -> Pipeline:
    """Two phases, the second behind a gate whose data is cached."""
    made = Pipeline("two_phases", partition=text("day"), warehouse="memory", modes=game_day_modes())
    first = made.phase("first")

    @first.processor
    def hand(run: RunContext) -> None:
        """Record which partition is about to complete its first phase."""
        first_runs[run.held.run_id] = run.partition

    @made.phase("second", after=first).processor(needs=[same_day("t.rows")])
    def take(run: RunContext) -> None:
        """Record how long ago the first phase ended."""
        began = time.monotonic_ns()
        while run.partition not in ended_ns:  # the worker learns of the commit a moment later
            time.sleep(0.0002)
        delays_ms.append((began - ended_ns[run.partition]) / 1e6)

    return made


def wide() -> Pipeline:
    """Six phases of five no-op processors."""
    made, before = Pipeline("wide", partition=text("day"), modes=game_day_modes()), None
    for n in range(PHASES):
        phase = made.phase(f"phase{n}", after=before)
        for m in range(WIDTH):
            phase.processor(f"p{n}{m}")(_nothing)
        before = phase
    return made


def _nothing(_: RunContext) -> None:
    """Return immediately."""


def _there(probe: ProbeRequest) -> list[Observation]:
    """Return observations from memory, like a cached gate."""
    return [Observation(key=d.key, looked_at=0, rows=1) for d in probe.dependencies]


def _absent(probe: ProbeRequest) -> list[Observation]:
    return [Observation(key=d.key, looked_at=0, rows=0) for d in probe.dependencies]


def orchestrator_loop(store: Store, probe: Prober = no_probes, threads: int = 0) -> Loop:
    """Return the loop of an orchestrator with the schedule that `penstock up` gives it."""
    service = Orchestrator(store, probe, known=probe, holder="bench", threads=threads)
    schedule = LoopSchedule(interval_us=SECOND, channels=("flows",))
    return Loop(service, schedule, store, events=Events(), jitter=random.Random(7).random)


def cascade_latency(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure from the commit of the last completion to the start of the next phase's processor."""
    seconds = 3 if quick else 10
    place = site.create("cascade")
    store = place.store()
    client, pipeline = Client(store), two_phases()
    client.register([pipeline])
    for known in (ended_ns, first_runs, delays_ms):
        known.clear()
    subject, loop = worker(store, pipeline), orchestrator_loop(store, _there, threads=4)
    subject.steps.events.subscribe(_on_event)
    loop.start()
    subject.start()
    subject.started.wait(30)
    _trigger_at_rate(client, 1, "warm")
    _wait_for(RATE)
    delays_ms.clear()
    _trigger_at_rate(client, seconds, "day")
    _wait_for(seconds * RATE)
    loop.stop()
    subject.stop()
    samples = list(delays_ms)
    store.close()
    site.drop(place)
    p50 = percentile(samples, 0.5)
    yield Result(
        bench="cascade_latency",
        engine=site.engine,
        value=p50,
        unit="ms",
        n=len(samples),
        extra={"p50_ms": p50, "p99_ms": percentile(samples, 0.99)},
    )


def _on_event(event: Event) -> None:
    if isinstance(event, RunEnded) and event.run_id in first_runs:
        ended_ns[first_runs[event.run_id]] = time.monotonic_ns()


def _trigger_at_rate(client: Client, seconds: int, name: str) -> None:
    began = time.monotonic()
    for i in range(seconds * RATE):
        time.sleep(max(0.0, began + i / RATE - time.monotonic()))
        wanted = FlowRequest(pipeline="two_phases", partition=f"{name}{i}", mode="same_day")
        client.flows.trigger(wanted)


def _wait_for(expected: int) -> None:
    deadline = time.monotonic() + 20
    while len(delays_ms) < expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(delays_ms) == expected, (len(delays_ms), expected)


def cascade_throughput(site: Site, *, quick: bool) -> Iterator[Result]:
    """Run 500 flows of six phases of five no-op processors to their end."""
    flows = 50 if quick else 500
    place = site.create("cascade")
    store = place.store()
    client, pipeline = Client(store), wide()
    client.register([pipeline])
    subject, loop = worker(store, pipeline), orchestrator_loop(store, _there)
    loop.start()
    subject.start()
    subject.started.wait(30)
    _drain(store, [f"warm{n}" for n in range(5)])
    began = time.perf_counter()
    _drain(store, [f"day{n}" for n in range(flows)])
    took = time.perf_counter() - began
    loop.stop()
    subject.stop()
    store.close()
    site.drop(place)
    runs = flows * PHASES * WIDTH
    yield Result(
        bench="cascade_throughput",
        engine=site.engine,
        value=took,
        unit="s",
        n=flows,
        extra={"seconds": took, "completions_per_s": runs / took},
    )


def _drain(store: Store, partitions: list[str]) -> None:
    """Open a flow for each partition and wait until all have ended."""
    open_flows(store, "wide", "manual", partitions)
    store.wake(["flows", "runs:default"])
    wait_until_ended(store)


def wait_until_ended(store: Store) -> None:
    """Wait until no flow is open."""
    waiting = threading.Event()
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if not _open_count(store):
            return
        waiting.wait(0.05)
    raise AssertionError(f"flows are still open: {_open_count(store)}")


def _open_count(store: Store) -> int:
    def body(tx: Tx) -> int:
        rows = tx._connection.execute(  # type: ignore[attr-defined]
            "SELECT count(*) FROM flows WHERE ended_at IS NULL"
        ).fetchall()
        return int(rows[0][0])

    return store.read(body)


def open_flows(store: Store, pipeline: str, mode: str, partitions: list[str]) -> list[int]:
    """Open flows by hundreds and start them."""
    ids: list[int] = []
    for n in range(0, len(partitions), 100):
        part = partitions[n : n + 100]
        ids += store.write(lambda tx, p=part: _open_part(tx, pipeline, mode, p))  # type: ignore[misc]
    return ids


def _open_part(tx: Tx, pipeline: str, mode: str, partitions: list[str]) -> list[int]:
    found = pipeline_get(tx, pipeline)
    assert found is not None
    customer = customer_ensure_many(tx, ["bench"])["bench"]
    opened = flow_open_many(
        tx,
        [
            FlowOpening(
                customer_key=customer, pipeline_key=found[0], digest=found[1], mode=mode,
                partition=partition, source="manual", correlation_id=partition, opened_by="bench",
            )
            for partition in partitions
        ],
    )  # fmt: skip
    ids = [flow_id for flow_id in opened if flow_id is not None]
    advance(tx, {flow_id: Wakeup(all_gates=True) for flow_id in ids}, actor="bench")
    return ids


def cascade_waiting(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure the cost of flows that wait at gates, between two re-checks."""
    flows = 1_000 if quick else 10_000
    place = site.create("cascade")
    store = place.store()
    gated = Pipeline("gated", partition=text("day"), warehouse="memory", modes=game_day_modes())
    gated.phase("only").processor("take", needs=[same_day("t.rows")])(_nothing)
    Client(store).register([gated])
    open_flows(store, "gated", "tomorrow", [f"day{n}" for n in range(flows)])
    print_progress("probing every gate once")
    service = Orchestrator(store, _absent, holder="bench")
    while service.run_once().flows:
        pass
    mine, theirs = _idle(site, store, 5 if quick else 15)
    store.close()
    site.drop(place)
    yield Result(
        bench="cascade_waiting",
        engine=site.engine,
        value=mine + (theirs or 0.0),
        unit="% CPU",
        n=flows,
        extra={"cpu_pct": mine + (theirs or 0.0), "process_pct": mine, "server_pct": theirs},
    )


def _idle(site: Site, store: Store, seconds: int) -> tuple[float, float | None]:
    """Return the CPU of an idle orchestrator loop and of the server, in percent."""
    loop = orchestrator_loop(store, _absent, threads=4)
    loop.start()
    time.sleep(2)
    began, used, server = time.perf_counter(), time.process_time(), server_seconds(site)
    time.sleep(seconds)
    passed = time.perf_counter() - began
    mine = (time.process_time() - used) / passed * 100
    after = server_seconds(site)
    loop.stop()
    theirs = None if server is None or after is None else (after - server) / passed * 100
    return mine, theirs
