"""Traces: everything of one cause, an entity's path, the execution log and search, over millions.

10,000,000 executions on PostgreSQL, 1,000,000 on SQLite, over 90 days: four fifths ran in flows of
six phases, the others are single runs. The flows of the last week are stored; those before it were
pruned. Rows are copies, made by SQL, of one flow that Penstock itself ran.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from benchmarks.load import CUSTOMERS, customers, series, settle, unchecked, wall_now
from benchmarks.raw import Raw
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import BenchDatabase, Site
from penstock import Pipeline, text
from penstock.assembly.process import run_pending
from penstock.client import Client
from penstock.core.clock import DAY, SECOND, WEEK
from penstock.core.ids import encode
from penstock.flows.records import FlowRequest
from penstock.worker.context import RunContext

DAYS = 90
STORED_SHARE = 13
"""One flow of this many is stored: those of the last seven days."""
WIDTHS = {"scrape": 2, "raw": 2, "analytics": 2, "precompute": 2, "predict": 1, "publish": 1}
"""Processors of each phase."""
PLAYERS = 50_000
ASKED = 200
FIRST = 1_000_000
"""Ids of copies begin here; the flow that they are copies of has lower ones."""
RUNS_OF_FLOW = 16
"""Distance of the run ids of two copies."""


class Loaded(NamedTuple):
    """What was loaded: number of flows, of stored flows and of single runs."""

    flows: int
    stored: int
    singles: int


def trace(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure traces, entities, executions and searches, each of 200 random causes."""
    n = 200_000 if quick else (10_000_000 if site.engine == "postgres" else 1_000_000)
    place = site.create("trace")
    began = time.perf_counter()
    loaded = load_executions(place, n)
    print_progress(f"loaded {n:,} executions in {time.perf_counter() - began:.0f} s")
    store = place.store()
    figures = _ask(Client(store), loaded)
    store.close()
    site.drop(place)
    yield Result(
        bench="trace",
        engine=site.engine,
        value=figures["trace_p95_ms"],
        unit="ms",
        n=n,
        extra=figures,
    )


def _ask(client: Client, loaded: Loaded) -> dict[str, float]:
    """Return 95th percentiles; each cause is asked for once, so only the indexes are warm."""
    chosen = random.Random(11)
    stored = range(loaded.flows - loaded.stored + 1, loaded.flows + 1)
    pruned = range(1, loaded.flows - loaded.stored)
    i = stored[0]
    found = client.diagnostics.trace(_correlation(i))
    assert len(found.flows) == 1, found
    assert sum(step.kind == "execution" for step in found.steps) == sum(WIDTHS.values())
    trail = client.diagnostics.entity(f"players:{i % PLAYERS}", customer=_customer(i))
    assert trail.flows[0].reached_last is not None, trail
    cases: dict[str, list[Callable[[], object]]] = {
        "trace": [
            lambda i=i: client.diagnostics.trace(_correlation(i))  # type: ignore[misc]
            for i in chosen.sample(stored, ASKED)
        ],
        "trace_run": [
            lambda i=i: client.diagnostics.trace(encode("run", _run(i)))  # type: ignore[misc]
            for i in chosen.sample(stored, ASKED)
        ],
        "trace_old": [
            lambda i=i: client.diagnostics.trace(_correlation(i))  # type: ignore[misc]
            for i in chosen.sample(pruned, ASKED)
        ],
        "entity": [
            lambda i=i: client.diagnostics.entity(  # type: ignore[misc]
                f"players:{i % PLAYERS}", partition=f"p{i}", customer=_customer(i)
            )
            for i in chosen.sample(stored, ASKED)
        ],
        "entity_all": [
            lambda i=i: client.diagnostics.entity(  # type: ignore[misc]
                f"players:{i % PLAYERS}", customer=_customer(i)
            )
            for i in chosen.sample(stored, ASKED)
        ],
        "executions": [
            lambda i=i: client.tracking.executions(_correlation(i))  # type: ignore[misc]
            for i in chosen.sample(pruned, ASKED)
        ],
        "find": [
            lambda i=i: client.tracking.find(encode("run", _run(i))[4:9])  # type: ignore[misc]
            for i in chosen.sample(stored, ASKED)
        ],
    }
    figures: dict[str, float] = {}
    for name, calls in cases.items():
        samples = [_ms(call) for call in calls]
        figures[f"{name}_p95_ms"] = percentile(samples, 0.95)
        figures[f"{name}_p50_ms"] = percentile(samples, 0.5)
    return figures


def _ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1_000


def _correlation(i: int) -> str:
    return f"cause-{i}"


def _customer(i: int) -> str:
    return f"c{1 + i % CUSTOMERS}"


def _run(i: int) -> int:
    return FIRST + i * RUNS_OF_FLOW


def declared() -> Pipeline:
    """Six phases of one or two processors; the first reports a changed player."""
    made, before = Pipeline("traced", partition=text("day")), None
    for name, width in WIDTHS.items():
        phase = made.phase(name, after=before)
        for m in range(width):
            phase.processor(f"{name}{m}")(_work)
        before = phase
    return made


def _work(run: RunContext) -> None:
    """Report a changed player in the first phase."""
    if run.processor == "scrape0":
        run.entities("players", [0])


def load_executions(place: BenchDatabase, n: int) -> Loaded:
    """Run one flow with Penstock, then copy its rows."""
    pipeline = declared()
    raw = unchecked(place)
    customers(place, raw)
    store = place.store()
    client = Client(store)
    client.register([pipeline])
    client.flows.trigger(
        FlowRequest(pipeline="traced", customer="c1", partition="p0", correlation_id="cause-0")
    )
    executed = run_pending(client, [pipeline])
    store.close()
    assert executed == sum(WIDTHS.values()), executed
    flows = n * 4 // 5 // executed
    loaded = Loaded(flows, max(ASKED + 1, flows // STORED_SHARE), n - flows * executed)
    indexes = _indexes_drop(place, raw)
    _flows(place, raw, loaded)
    _executions(place, raw, loaded)
    for definition in indexes:
        raw.run(definition)
    settle(place, raw)
    if place.engine == "sqlite":
        raw.run("ANALYZE")
    raw.close()
    return loaded


def _indexes_drop(place: BenchDatabase, raw: Raw) -> list[str]:
    """Drop the indexes of the large tables; return the statements that create them again."""
    if place.engine != "postgres":
        return []
    start = wall_now() - DAYS * DAY
    raw.run(f"SELECT ensure_partitions({start - WEEK}, {DAYS // 7 + 6})")
    rows = raw.rows(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename IN ('history', 'execution_log')"
    )
    for name, _ in rows:
        raw.run(f"DROP INDEX {name}")
    return [definition.replace(" ON ONLY ", " ON ") for _, definition in rows]


def _flows(place: BenchDatabase, raw: Raw, loaded: Loaded) -> None:
    """Copy the flow with its phases, completions and triggers, and its reports of entities."""
    first = loaded.flows - loaded.stored
    some = f"{series(place, loaded.stored)} CROSS JOIN (SELECT {first} AS skipped) AS k"
    number = "(s.i + k.skipped)"
    flow_id = f"{FIRST} + {number}"
    own = f"1 + {number} % {CUSTOMERS}"
    began = raw.rows("SELECT min(created_at) FROM flows")[0][0]
    step = DAYS * DAY // loaded.flows
    later = f"{wall_now() - DAYS * DAY - began} + {number} * {step}"
    copy_rows(
        raw, place, "flows", some,
        {"flow_id": flow_id, "customer": own, "partition": f"'p' || {number}",
         "correlation_id": f"'cause-' || {number}", "created_at": f"t.created_at + {later}",
         "ended_at": f"t.ended_at + {later}"},
    )  # fmt: skip
    own_ids = {"flow_id": flow_id, "customer": own}
    times = {name: f"t.{name} + {later}" for name in ("since_at", "started_at", "ended_at")}
    for table, more in (("flow_phases", times), ("completions", {}), ("triggers", {})):
        copy_rows(raw, place, table, some, {**own_ids, **more}, without=("gate_id",))
    all_flows = series(place, loaded.flows)
    own = f"1 + s.i % {CUSTOMERS}"
    copy_rows(
        raw, place, "entity_changes", all_flows,
        {"change_id": f"{FIRST} + s.i", "flow_id": f"{FIRST} + s.i", "customer": own,
         "partition": "'p' || s.i", "run_id": f"{FIRST} + s.i * {RUNS_OF_FLOW}",
         "correlation_id": "'cause-' || s.i"},
        where="t.change_id = (SELECT min(change_id) FROM entity_changes)",
    )  # fmt: skip
    raw.run(
        "INSERT INTO entity_ids (change_id, kind, entity, customer, is_number) "
        f"SELECT {FIRST} + s.i, 'players', CAST(s.i % {PLAYERS} AS text), {own}, TRUE "
        f"FROM {all_flows}"
    )


def _executions(place: BenchDatabase, raw: Raw, loaded: Loaded) -> None:
    """Copy the executions of the flow, and add single runs, in order of time."""
    start = wall_now() - DAYS * DAY
    step = DAYS * DAY // loaded.flows
    base = raw.rows("SELECT min(execution_id), min(completed_at) FROM execution_log")[0]
    ended = f"{start} + s.i * {step} + (t.completed_at - {base[1]})"
    copy_rows(
        raw, place, "execution_log", series(place, loaded.flows),
        {"execution_id": f"{FIRST} + s.i * {RUNS_OF_FLOW} + t.execution_id - {base[0]}",
         "flow_id": f"{FIRST} + s.i", "customer": f"1 + s.i % {CUSTOMERS}",
         "partition": "'p' || s.i", "correlation_id": "'cause-' || s.i",
         "completed_at": ended, "started_at": f"{ended} - {SECOND}",
         "source_execution_id": f"{FIRST} + s.i * {RUNS_OF_FLOW} + t.source_execution_id "
                                f"- {base[0]}"},
    )  # fmt: skip
    runs = raw.rows("SELECT min(run_id), min(finished_at) FROM history")[0]
    ended = f"{start} + s.i * {step} + (t.finished_at - {runs[1]})"
    first = loaded.flows - loaded.stored
    copy_rows(
        raw, place, "history",
        f"{series(place, loaded.stored)} CROSS JOIN (SELECT {first} AS skipped) AS k",
        {"run_id": f"{FIRST} + (s.i + k.skipped) * {RUNS_OF_FLOW} + t.run_id - {runs[0]}",
         "flow_id": f"{FIRST} + s.i + k.skipped",
         "customer": f"1 + (s.i + k.skipped) % {CUSTOMERS}",
         "partition": "'p' || (s.i + k.skipped)", "root_run_id": "NULL",
         "correlation_id": "'cause-' || (s.i + k.skipped)",
         "finished_at": ended.replace("s.i", "(s.i + k.skipped)")},
    )  # fmt: skip
    step = DAYS * DAY // loaded.singles
    copy_rows(
        raw, place, "history", series(place, loaded.singles),
        {"run_id": f"{FIRST * 1000} + s.i", "flow_id": "NULL", "root_run_id": "NULL",
         "customer": f"1 + s.i % {CUSTOMERS}", "correlation_id": "'single-' || s.i",
         "finished_at": f"{start} + s.i * {step}"},
        where="t.run_id = (SELECT min(run_id) FROM history)",
    )  # fmt: skip


def copy_rows(
    raw: Raw,
    place: BenchDatabase,
    table: str,
    times: str,
    changed: Mapping[str, str],
    *,
    without: tuple[str, ...] = (),
    where: str = "TRUE",
) -> None:
    """Copy the rows of a table that Penstock wrote, with other values in some columns."""
    if place.engine == "postgres":
        text = (
            "SELECT column_name FROM information_schema.columns "
            f"WHERE table_name = '{table}' AND table_schema = current_schema() ORDER BY 1"
        )
        columns = [row[0] for row in raw.rows(text)]
    else:
        columns = [row[1] for row in raw.rows(f"PRAGMA table_info({table})")]
    chosen = [name for name in columns if name not in without]
    values = ", ".join(changed.get(name, f"t.{name}") for name in chosen)
    source = f"(SELECT * FROM {table} WHERE {_original(table)}) AS t"
    raw.run(
        f"INSERT INTO {table} ({', '.join(chosen)}) SELECT {values} "
        f"FROM {times} CROSS JOIN {source} WHERE {where}"
    )


def _original(table: str) -> str:
    """Return the condition of the rows that Penstock wrote itself."""
    key = {"history": "run_id", "execution_log": "execution_id", "entity_changes": "change_id",
           "dead_letters": "dead_letter_id"}  # fmt: skip
    return f"{key.get(table, 'flow_id')} < {FIRST}"
