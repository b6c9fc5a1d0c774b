"""Reads and writes of service levels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.analytics.store import LAG
from penstock.core.clock import HOUR, Micros
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx, one
from penstock.flows.store.logs import outbox_announce_many
from penstock.slos.objectives import FAST_US, SLOW_US
from penstock.slos.results import TOPIC, CountKey, Seen, counts_of, stale_table, violation
from penstock.slos.rows import (
    BreachRow,
    EndedRow,
    PointRow,
    ResultRow,
    RunSlice,
    SloRow,
    Sums,
    TargetRow,
    Windows,
)

POINTS: Final = 60
SLICE_US: Final = HOUR
"""Maximum time span of a slice of runs."""
SLICE_RUNS: Final = 5_000
"""Maximum number of runs per slice on SQLite, where all other writers wait for a transaction."""
LAST_ID: Final = 2**62
BREACH_SOURCES: Final = (
    "slo_breaches_of_flows",
    "slo_breaches_of_runs",
    "slo_breaches_of_live_runs",
)


def targets_put(tx: Tx, rows: Sequence[TargetRow]) -> None:
    """Store the targets in force, and delete all others."""
    tx.run("slo_targets_put", batch=rows)
    tx.run("slo_targets_drop")


def customer_keys(tx: Tx, names: Sequence[str]) -> dict[str, int]:
    """Return the keys of customers by name."""
    return dict(tx.rows("slo_customers_named", {"names": sorted(names)}) if names else ())


def ended_flows(tx: Tx, after: Micros, n: int) -> list[EndedRow]:
    """Return ended flows without a final result."""
    return [EndedRow(*row) for row in tx.rows("slo_ended_flows", {"after": after, "n": n})]


def ended_phases(tx: Tx, after: Micros, n: int) -> list[tuple[EndedRow, Micros]]:
    """Return ended phases without a final result, and when they were logged."""
    rows = tx.rows("slo_ended_phases", {"after": after, "n": n})
    return [(EndedRow(*row[:-1]), row[-1]) for row in rows]


def open_rows(tx: Tx, statement: str, age_us: Micros, n: int) -> list[EndedRow]:
    """Return open flows (`slo_open_flows`) or phases (`slo_open_phases`) that may be late."""
    return [EndedRow(*row) for row in tx.rows(statement, {"age_us": age_us, "n": n})]


def results_add(tx: Tx, seen: Sequence[Seen]) -> int:
    """Store results, count those that are new, and announce new breaches. Return their number."""
    ended = [one for one in seen if one.result.ended_at is not None]
    closed: set[tuple[int, str]] = set()
    if ended:
        ends = [
            (r.flow_id, r.phase, r.ended_at, r.is_degraded, r.state)
            for r in (one.result for one in ended)
        ]
        closed = {(flow_id, phase) for flow_id, phase in tx.rows("slo_results_end", batch=ends)}
    rows = tx.rows("slo_results_add", batch=[one.result for one in seen]) if seen else []
    new = {(flow_id, phase) for flow_id, phase in rows}
    added = [one for one in seen if (one.result.flow_id, one.result.phase) in new]
    _count(tx, counts_of(added))
    # A late result that ends is not new, but its other measures have not been counted yet.
    late = [one for one in ended if (one.result.flow_id, one.result.phase) in closed]
    _count(tx, counts_of([one._replace(result=one.result._replace(outcome=None)) for one in late]))
    _announce(tx, [one.result for one in added if one.result.outcome == "missed"])
    return len(added)


def _count(tx: Tx, counts: Mapping[CountKey, Sums]) -> None:
    if counts:
        tx.run("slo_hours_add", batch=[(*key, *sums) for key, sums in sorted(counts.items())])


def _announce(tx: Tx, breaches: Sequence[ResultRow]) -> None:
    if not breaches:
        return
    params = {
        "customers": sorted({one.customer_key for one in breaches}),
        "pipelines": sorted({one.pipeline_key for one in breaches}),
    }
    names = {(kind, key): name for kind, key, name in tx.rows("slo_names", params)}
    now = tx.now()
    bodies = [
        violation(
            one,
            pipeline=names["pipeline", one.pipeline_key],
            customer=names["customer", one.customer_key],
            now=now,
        )
        for one in breaches
    ]
    outbox_announce_many(tx, [(TOPIC, json.dumps(body, sort_keys=True)) for body in bodies])


def stale_tables_announce(tx: Tx) -> int:
    """Announce tables that became too old; return how many."""
    tx.run("slo_fresh_tables")
    rows = tx.rows("slo_stale_tables")
    if not rows:
        return 0
    pipelines = {"customers": [0], "pipelines": sorted({row[0] for row in rows})}
    names = {key: name for kind, key, name in tx.rows("slo_names", pipelines) if kind == "pipeline"}
    now = tx.now()
    bodies = [
        stale_table(names[pipeline], table, newest_at=newest_at, max_age_us=max_age_us, now=now)
        for pipeline, table, newest_at, max_age_us in rows
    ]
    outbox_announce_many(tx, [(TOPIC, json.dumps(body, sort_keys=True)) for body in bodies])
    return len(rows)


def next_slice(tx: Tx, after: Micros, until: Micros, slice_us: Micros) -> RunSlice | None:
    """Return the next slice of runs that ended in (after, until]; None if there are none.

    On SQLite a slice has at most `SLICE_RUNS` runs, or those that one transaction ended.
    """
    params = {"after": after, "until": until, "n": SLICE_RUNS - 1}
    first_at, full_at = one(tx.rows("slo_runs_next", params))
    if first_at is None:
        return None
    end = min(until, int(first_at) + slice_us)
    is_full = full_at is not None and int(full_at) < end
    return RunSlice(int(full_at) if is_full else end, is_full)


def runs_fold(tx: Tx, position: str, *, lag_us: Micros, window_us: Micros) -> bool:
    """Add at most an hour of ended runs to the hourly counts. Return whether more are left."""
    after = position_take(tx, position, tx.now() - window_us)
    until = committed_until(tx, lag_us)
    if until <= after:
        return False
    found = next_slice(tx, after, until, SLICE_US)
    if found is None:
        position_set(tx, position, until)
        return False
    end = found.end
    tx.run("slo_runs_fold", {"after": after, "until": end})
    position_set(tx, position, end)
    return end < until


def committed_until(tx: Tx, lag_us: Micros) -> Micros:
    """Return the time up to which every ended run is committed; at least `lag_us` ago.

    A run is dated by its transaction, which may still be open: time ends where the oldest one that
    writes began. None takes longer than `LAG`.
    """
    now = tx.now()
    age_us = int(one(tx.rows("slo_oldest_writer"))[0])
    return now - (lag_us if age_us == 0 else min(LAG, age_us + lag_us))


def position_take(tx: Tx, name: str, default: Micros) -> Micros:
    """Return the recorded position of a log; locked, so that one process counts at a time."""
    return int(one(tx.rows("analytics_horizon", {"name": name, "start": default}))[0])


def position_set(tx: Tx, name: str, value: Micros) -> None:
    """Store the recorded position of a log."""
    tx.run("slo_counter_set", {"name": name, "value": value})


def slos_prune(tx: Tx, before: Micros, n: int = 5_000) -> None:
    """Delete old results and hourly counts."""
    tx.run("slo_results_prune", {"before": before, "n": n})
    tx.run("slo_hours_prune", {"before": before, "n": n})


def slo_list(tx: Tx, wanted: Mapping[str, Any], after: Sequence[Any], n: int) -> list[SloRow]:
    """Return targets after a position; wanted: pipeline, mode, phase, measure and customer."""
    name, mode, phase, measure = after
    params = {
        **wanted,
        "name": name, "after_mode": mode, "after_phase": phase, "after_measure": measure, "n": n,
    }  # fmt: skip
    return [SloRow._make(row) for row in tx.rows("slo_list", params)]


def slo_sums(
    tx: Tx, pipelines: Sequence[int], customer: int, since: Micros, now: Micros
) -> dict[tuple[int, str, str, str], Windows]:
    """Return the sums of pipelines over a window and its last hours."""
    params = {
        "pipelines": sorted(pipelines), "customer": customer, "since": since,
        "fast": now - FAST_US - HOUR, "slow": now - SLOW_US - HOUR,
    }  # fmt: skip
    found = {}
    for pipeline, mode, phase, measure, *sums in tx.rows("slo_sums", params):
        whole, fast, slow = (
            Sums(int(good), int(bad)) for good, bad in zip(sums[::2], sums[1::2], strict=True)
        )
        found[pipeline, mode, phase, measure] = Windows(whole, fast, slow)
    return found


def slo_points(tx: Tx, row: SloRow, customer: CustomerKey | None, since: Micros) -> list[PointRow]:
    """Return the newest results of a target, oldest first."""
    params = {
        "pipeline": row.pipeline_key, "mode": row.mode, "phase": row.phase, "since": since,
        "customer": customer, "n": POINTS,
    }  # fmt: skip
    return [PointRow._make(found) for found in reversed(tx.rows("slo_points", params))]


def live_breaches(tx: Tx, pipelines: Sequence[int], customer: CustomerKey | None) -> dict[int, int]:
    """Return how many runs have not started although their SLA has passed, by pipeline."""
    params = {"customer": customer, "pipelines": sorted(pipelines)}
    return {pipeline: int(n) for pipeline, n in tx.rows("slo_live_breaches", params)}


def breach_list(
    tx: Tx,
    *,
    customer: CustomerKey | None,
    pipeline: PipelineKey | None,
    kind: str | None,
    since: Micros,
    after: Sequence[int] | None,
    n: int,
) -> list[tuple[int, BreachRow]]:
    """Return breaches with the number of their source, newest first, after a position."""
    now = tx.now()
    at, source, row_id = after or (now + 1, 0, LAST_ID)
    found: list[tuple[int, BreachRow]] = []
    for number, statement in enumerate(BREACH_SOURCES):
        if kind is not None and (kind == "run") == (number == 0):
            continue
        params: dict[str, Any] = {
            "customer": customer, "pipeline": pipeline, "since": since, "before": at,
            "before_id": -1 if number < source else row_id if number == source else LAST_ID,
            "n": n,
        }  # fmt: skip
        if number == 0:
            params["kind"] = kind
        found += [(number, BreachRow._make(row)) for row in tx.rows(statement, params)]
    found.sort(key=lambda one: (-one[1].at, one[0], -one[1].row_id))
    return found[:n]
