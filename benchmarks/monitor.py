"""The monitor: one pass over live flows, of which some are stuck, waiting or at risk."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.cascade import open_flows
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import Site
from penstock import Pipeline, game_day_modes, text
from penstock.client import Client
from penstock.core.clock import MINUTE
from penstock.db.store import Store, Tx
from penstock.detection.finding import LIVE_RULES, TREND_RULES
from penstock.detection.monitor import ACTOR
from penstock.detection.store import findings_apply, live_findings, trend_findings
from penstock.worker.context import RunContext

PHASES = ("raw", "analytics", "precompute", "predict", "publish")
PASSES = 5


def _nothing(_: RunContext) -> None:
    """Return immediately."""


def five_phases() -> Pipeline:
    """Five phases in a row."""
    made = Pipeline("daily", partition=text("day"), modes=game_day_modes())
    before = None
    for name in PHASES:
        before = made.phase(name, after=before)
        before.processor(f"{name}_job")(_nothing)
    return made


def _age(tx: Tx, flows: int) -> None:
    """Spread the flows over their phases and times; one in a hundred is stuck or untriggered."""
    connection = tx._connection  # type: ignore[attr-defined]
    minute = MINUTE
    connection.execute(f"UPDATE flow_phases SET since_at = since_at - (flow_id % 60) * {minute}")
    connection.execute(f"UPDATE flows SET created_at = created_at - (flow_id % 60) * {minute}")
    connection.execute(
        "UPDATE flow_phases SET state = 'COMPLETE', started_at = since_at, ended_at = since_at"
        " WHERE phase = 'raw' AND flow_id % 2 = 0"
    )
    connection.execute(
        "UPDATE flow_phases SET state = 'IN_PROGRESS', started_at = since_at"
        " WHERE phase = 'analytics' AND flow_id % 2 = 0 AND flow_id % 100 <> 0"
    )
    connection.execute(
        f"UPDATE flow_phases SET since_at = since_at - {180 * minute}"
        " WHERE phase = 'raw' AND flow_id % 100 = 1"
    )
    # The durations of 200 earlier flows, for the forecasts.
    connection.execute(
        "INSERT INTO phase_completion_log (customer, pipeline, flow_id, phase, partition, mode,"
        " status, started_at, completed_at, duration_us, expected_processor_count,"
        " completed_processor_count, processors_completed, processors_missing,"
        " overall_completeness, dependencies_met, dependency_issues, correlation_id, inserted_at)"
        f" SELECT w.customer, w.pipeline, w.flow_id + {10 * flows}, p.phase, w.partition, w.mode,"
        f" 'complete', w.created_at + p.gate_id % 5 * 10 * {minute},"
        f" w.created_at + (p.gate_id % 5 * 10 + 8 + w.flow_id % 5) * {minute}, 1, 1, 1, '[]', '[]',"
        " 100, TRUE, '[]', 'c', w.created_at FROM flows w JOIN flow_phases p"
        " ON p.flow_id = w.flow_id WHERE w.flow_id <= 200"
    )


def _pass(store: Store) -> tuple[float, int]:
    """Return how long one pass takes, and how many findings it has."""
    began = time.perf_counter()
    found = store.read(live_findings)
    store.write(lambda tx: findings_apply(tx, found, LIVE_RULES, ACTOR))
    trends = store.read(trend_findings)
    store.write(lambda tx: findings_apply(tx, trends, TREND_RULES, ACTOR))
    return time.perf_counter() - began, len(found) + len(trends)


def monitor(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure a pass of all rules over live flows; the first also opens the alerts."""
    flows = 1_000 if quick else 10_000
    place = site.create("monitor")
    store = place.store()
    Client(store).register([five_phases()])
    print_progress(f"opening {flows:,} flows")
    open_flows(store, "daily", "same_day", [f"day{n}" for n in range(flows)])
    store.write(lambda tx: _age(tx, flows))
    first, findings = _pass(store)
    used = time.process_time()
    times = [_pass(store)[0] for _ in range(PASSES)]
    used = (time.process_time() - used) / PASSES
    store.close()
    site.drop(place)
    yield Result(
        bench="monitor",
        engine=site.engine,
        value=percentile(times, 0.5),
        unit="s",
        n=flows,
        extra={
            "seconds": percentile(times, 0.5),
            "first_seconds": first,
            "cpu_seconds": used,
            "findings": findings,
        },
    )
