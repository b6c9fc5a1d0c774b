"""Periods and states of budgets. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.core.clock import Micros, from_datetime, to_datetime


def period_of(period: str, now: Micros) -> tuple[Micros, Micros]:
    """Return the start and end of the UTC day or month that contains a time."""
    at = to_datetime(now).astimezone(UTC)
    start = datetime(at.year, at.month, 1 if period == "month" else at.day, tzinfo=UTC)
    if period == "day":
        end = start + timedelta(days=1)
    else:
        end = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    return from_datetime(start), from_datetime(end)


def state_of(
    used: float,
    amount: float,
    warn_percent: float,
    *,
    is_stopped: bool,
    lifted_until: Micros | None,
    now: Micros,
) -> str:
    """Return the state of a budget."""
    if is_stopped:
        return "stopped"
    if used >= amount:
        is_lifted = lifted_until is not None and now < lifted_until
        return "lifted" if is_lifted else "exceeded"
    return "warning" if used >= amount * warn_percent / 100 else "ok"


def is_stop_due(used: float, amount: float, lifted_until: Micros | None, now: Micros) -> bool:
    """Return whether a hard stop applies."""
    return used >= amount and (lifted_until is None or now >= lifted_until)
