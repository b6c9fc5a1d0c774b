"""Records of service levels from rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from penstock.core.clock import SECOND, Micros
from penstock.core.ids import encode
from penstock.core.records.record import minutes, seconds, time, time_or_none
from penstock.slos.objectives import LATENCY, budget_left, burn_rate, compliance, spread
from penstock.slos.records import Slo, SloBreach, SloPoint
from penstock.slos.rows import BreachRow, PointRow, SloRow, Windows


def slo_record(row: SloRow, sums: Windows, points: Sequence[PointRow]) -> Slo:
    """Return the record of a target with its results."""
    is_latency = row.measure == LATENCY
    took = [one.ended_at - one.began_at for one in points if one.ended_at is not None]
    p50, p90 = spread(took)
    target = row.target
    if is_latency and target is not None:
        target = target / SECOND
    return Slo(
        pipeline=row.pipeline,
        mode=row.mode or None,
        phase=row.phase or None,
        measure=cast("Any", row.measure),
        target=target,
        objective_percentage=row.objective,
        met=sums.whole.good,
        missed=sums.whole.bad,
        compliance_percentage=compliance(sums.whole),
        budget_left=budget_left(sums.whole, row.objective),
        burn_rate=burn_rate(sums.fast, row.objective),
        burn_rate_slow=burn_rate(sums.slow, row.objective),
        p50=_seconds(p50),
        p90=_seconds(p90),
        points=[_point(one) for one in points],
    )


def breach_record(row: BreachRow) -> SloBreach:
    """Convert a breach row to its public record."""
    kind = "run" if row.kind == "run" else "flow"
    return SloBreach(
        kind=cast("Any", row.kind),
        customer=row.customer,
        pipeline=row.pipeline,
        mode=row.mode,
        phase=row.phase,
        partition=row.partition,
        subject=encode(kind, row.subject),
        expected_by=time(row.due_at),
        actual_at=time_or_none(row.actual_at),
        late=minutes(row.late_us),
        state=row.state,
        at=time(row.at),
    )


def _point(row: PointRow) -> SloPoint:
    took = None if row.ended_at is None else row.ended_at - row.began_at
    return SloPoint(
        partition=row.partition,
        customer=row.customer,
        flow_id=encode("flow", row.flow_id),
        took=_seconds(took),
        outcome=cast("Any", row.outcome),
        is_degraded=bool(row.is_degraded),
        at=time(row.at),
    )


def _seconds(us: Micros | None) -> Any:
    return None if us is None else seconds(us)
