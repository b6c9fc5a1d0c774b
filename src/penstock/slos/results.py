"""Conversion of ended flows and phases to results and counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.clock import HOUR, MINUTE, Micros, iso
from penstock.core.ids import encode
from penstock.flows.plan import FlowPlan
from penstock.slos.objectives import LATENCY
from penstock.slos.rows import EndedRow, ResultRow, Sums

TOPIC: Final = "penstock.slo-violation"
CASCADE: Final = "orchestrator"
SELF_HEAL: Final = "self_heal"
UNCOUNTED: Final = ("CANCELLED", "SKIPPED")
CountKey = tuple[int, int, int, str, str, str]
"""Pipeline, customer, hour, mode, phase, measure."""


class Seen(NamedTuple):
    """A row, its plan, and its result."""

    row: EndedRow
    of_flow: FlowPlan
    result: ResultRow


def result_of(row: EndedRow, target: float | None, now: Micros) -> ResultRow:
    """Return the result of a flow or phase that has ended, or is late.

    A failed one misses its target whenever it ended; a cancelled one is not counted.
    """
    due_at = None if target is None else row.began_at + int(target)
    outcome = None
    if due_at is not None and row.state not in UNCOUNTED:
        is_late = (now if row.ended_at is None else row.ended_at) > due_at
        outcome = "missed" if is_late or row.state == "FAILED" else "met"
    return ResultRow(
        customer_key=row.customer_key,
        pipeline_key=row.pipeline_key,
        mode=row.mode,
        phase=row.phase,
        partition=row.partition,
        flow_id=row.flow_id,
        correlation_id=row.correlation_id,
        began_at=row.began_at,
        due_at=due_at,
        ended_at=row.ended_at,
        outcome=outcome,
        is_degraded=bool(row.is_degraded),
        state=row.state,
        at=due_at if row.ended_at is None and due_at is not None else row.ended_at or now,
    )


def counts_of(seen: Iterable[Seen]) -> dict[CountKey, Sums]:
    """Return good and bad results by hour, for each customer and, as customer 0, for all."""
    found: dict[CountKey, Sums] = {}

    def add(result: ResultRow, phase: str, measure: str, is_good: bool) -> None:
        for customer in (0, result.customer_key):
            key = (result.pipeline_key, customer, result.at // HOUR * HOUR, result.mode, phase,
                   measure)  # fmt: skip
            good, bad = found.get(key, Sums())
            found[key] = Sums(good + is_good, bad + (not is_good))

    for row, of_flow, result in seen:
        if result.outcome is not None:
            add(result, result.phase, LATENCY, result.outcome == "met")
        if result.ended_at is None or row.state in UNCOUNTED:
            continue
        for measure, is_good in _shares(row, of_flow):
            add(result, "", measure, is_good)
    return found


def _shares(row: EndedRow, of_flow: FlowPlan) -> Iterable[tuple[str, bool]]:
    """Return the results of an ended flow or phase for the measures other than latency."""
    if not row.phase:
        yield "duplicate_triggers", row.duplicates == 0
        return
    if row.completeness is not None:
        yield "completeness", row.completeness >= of_flow.mode.target
    if row.quality is not None:
        yield "quality", row.quality >= of_flow.mode.min_quality
    plan = of_flow.plan
    if row.source is not None and plan.has_phase(row.phase) and plan.phase(row.phase).after:
        yield "cascade", row.source == CASCADE
        yield "self_heal", row.source != SELF_HEAL


def violation(result: ResultRow, *, pipeline: str, customer: str, now: Micros) -> dict[str, Any]:
    """Return the message about a breach; it is sent once, when the breach is recorded."""
    assert result.due_at is not None
    late = max(0, (result.ended_at or now) - result.due_at)
    return {
        "slo_type": "phase_latency" if result.phase else "end_to_end_latency",
        "pipeline": pipeline,
        "customer_id": customer,
        "partition": result.partition,
        "mode": result.mode,
        "phase": result.phase or None,
        "flow_id": encode("flow", result.flow_id),
        "correlation_id": result.correlation_id,
        "expected_by": iso(result.due_at),
        "actual_at": None if result.ended_at is None else iso(result.ended_at),
        "latency_minutes": late // MINUTE,
        "state": result.state,
    }


def stale_table(
    pipeline: str, table: str, *, newest_at: Micros | None, max_age_us: Micros, now: Micros
) -> dict[str, Any]:
    """Return the message about a table that is older than its freshness policy allows."""
    due_at = None if newest_at is None else newest_at + max_age_us
    return {
        "slo_type": "data_freshness",
        "pipeline": pipeline,
        "table": table,
        "customer_id": None,
        "partition": None,
        "expected_by": None if due_at is None else iso(due_at),
        "actual_at": None,
        "latency_minutes": None if due_at is None else max(0, now - due_at) // MINUTE,
    }


def earliest_late(targets: Sequence[float | None]) -> Micros | None:
    """Return the shortest target, below which nothing can be late; None if there are no targets."""
    given = [target for target in targets if target is not None]
    return int(min(given)) if given else None
