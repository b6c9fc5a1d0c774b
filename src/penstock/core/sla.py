"""Service levels and metrics of finished runs.

Pure arithmetic on microseconds and counts; a ratio without data is None, never zero. The sweepers,
the history and the overview call these functions; SQL that computes the same in bulk is tested
against them.
"""

from __future__ import annotations

from penstock.core.clock import SECOND, Micros

GIGABYTE = 1_000_000_000


def breaches_at(slot: Micros, threshold_us: Micros) -> Micros:
    """Return the latest start time that meets the SLA; any later start breaches it."""
    return slot + threshold_us


def breach(slot: Micros, started_at: Micros, threshold_us: Micros) -> Micros:
    """Return by how much a start missed its SLA; 0 if it was met.

    Retries keep the scheduled time of the first attempt. For a run that has not started, pass the
    current time as ``started_at``.
    """
    return max(0, started_at - breaches_at(slot, threshold_us))


def compliance(total: int, met: int) -> float | None:
    """Return the share of runs that met their SLA; None if there were none."""
    return met / total if total > 0 else None


def failure_rate(failed: int, finished: int) -> float | None:
    """Return the share of finished runs that failed; None if none finished."""
    return failed / finished if finished > 0 else None


def estimated_cost(
    duration_us: Micros, bytes_processed: int, rate_second: float, rate_gb: float
) -> float:
    """Return the estimated cost of a run; a gigabyte is 10**9 bytes."""
    return duration_us / SECOND * rate_second + bytes_processed / GIGABYTE * rate_gb
