"""Counts of processes by minute, and the measurements that rules derive from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.alerts.measures import Measurement
from penstock.alerts.process.counts import GATE_CHECK, HTTP, REJECTED, percentile_ms
from penstock.core.clock import HOUR, MINUTE, Micros
from penstock.db.store import Tx

ERRORS_US: Final = 5 * MINUTE
REJECTIONS_US: Final = 10 * MINUTE
CHECKS_US: Final = 10 * MINUTE
REQUESTS_MIN: Final = 20
"""Minimum number of requests for a meaningful share."""
REJECTIONS_MIN: Final = 20
"""Minimum number of rejected requests: a few are typing mistakes of a person."""


def process_minutes_add(tx: Tx, rows: Sequence[tuple[str, str, int]]) -> None:
    """Add counts (metric, bucket, number) to the current minute."""
    tx.run("process_minutes_add", batch=rows)
    tx.run("process_minutes_prune", {"before": tx.now() - HOUR, "n": 1_000})


def measure_processes(tx: Tx, now: Micros) -> list[Measurement]:
    """Measure requests to the API, and gate checks."""
    rows = tx.rows("process_minutes_read", {"since": now - max(REJECTIONS_US, CHECKS_US)})
    recent: dict[str, int] = {}
    rejected: dict[str, int] = {}
    routes: dict[str, int] = {}
    checks: dict[int, int] = {}
    for metric, minute_at, bucket, n in rows:
        if metric == HTTP:
            rejected[bucket] = rejected.get(bucket, 0) + int(n)
            if minute_at > now - ERRORS_US:
                recent[bucket] = recent.get(bucket, 0) + int(n)
        elif metric == REJECTED:
            routes[bucket] = routes.get(bucket, 0) + int(n)
        elif metric == GATE_CHECK:
            checks[int(bucket)] = checks.get(int(bucket), 0) + int(n)
    found = _shares(recent, "5xx")
    if rejected.get("4xx", 0) >= REJECTIONS_MIN:
        found += _shares(
            rejected, "4xx", most=max(sorted(routes), key=routes.__getitem__, default="4xx")
        )
    if recent.get("5xx"):
        facts = {"errors": recent["5xx"], "requests": sum(recent.values())}
        found.append(Measurement(metric="http_5xx", value=float(recent["5xx"]), facts=facts))
    slow = percentile_ms(checks, 0.95)
    if slow is not None:
        facts = {"checks": sum(checks.values())}
        found.append(Measurement(metric="gate_check_seconds", value=slow / 1_000, facts=facts))
    return found


def _shares(counts: dict[str, int], bucket: str, **more: str) -> list[Measurement]:
    total, errors = sum(counts.values()), counts.get(bucket, 0)
    if total < REQUESTS_MIN:
        return []
    facts = {"errors": errors, "requests": total, **more}
    value = 100 * errors / total
    return [Measurement(metric=f"http_{bucket}_percent", value=value, facts=facts)]
