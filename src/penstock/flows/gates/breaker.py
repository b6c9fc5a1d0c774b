"""The circuit breaker of a phase: after five failures nothing is tried for an hour, then one probe.

CLOSED lets everything through; OPEN lets nothing through; HALF_OPEN (an hour later) lets a single
probe through, whose success closes it and whose failure opens it for another hour. A probe that is
never heard of again is forgotten after an hour. Waiting is neutral. The store keeps the record, one
per customer, pipeline, partition and phase; the orchestrator asks and reports. No clock here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from penstock.core.clock import HOUR, Micros
from penstock.flows.gates.verdict import Effect

FAILURES_MAX: Final = 5
OPEN_FOR: Final = HOUR


class BreakerState(StrEnum):
    """Whether work gets through."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """What is remembered: failures in a row, since when it is open, since when a probe is out."""

    failures: int = 0
    opened_at: Micros | None = None
    probe_at: Micros | None = None

    def state(self, now: Micros) -> BreakerState:
        """Return where it stands at this moment."""
        if self.opened_at is None:
            return BreakerState.CLOSED
        if now < self.opened_at + OPEN_FOR or self._is_probing(now):
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    def opens_again_at(self) -> Micros | None:
        """Return when the next probe may be tried; None while it is closed."""
        if self.opened_at is None:
            return None
        return max(self.opened_at, self.probe_at or self.opened_at) + OPEN_FOR

    def _is_probing(self, now: Micros) -> bool:
        return self.probe_at is not None and now < self.probe_at + OPEN_FOR


def ask(breaker: Breaker, now: Micros) -> tuple[bool, Breaker]:
    """Tell whether work may be tried, and return the record to keep: a probe is noted in it."""
    state = breaker.state(now)
    if state is BreakerState.CLOSED:
        return True, breaker
    if state is BreakerState.OPEN:
        return False, breaker
    return True, replace(breaker, probe_at=now)


def report(breaker: Breaker, effect: Effect, now: Micros) -> Breaker:
    """Return the record after what was tried ended with this effect."""
    if effect is Effect.SUCCESS:
        return Breaker()
    if effect is Effect.NEUTRAL:
        return replace(breaker, probe_at=None)
    failures = breaker.failures + 1
    # Only a probe may open it anew: work that was let through before it opened reports late.
    opens = failures >= FAILURES_MAX and (breaker.opened_at is None or breaker.probe_at is not None)
    opened_at = now if opens else breaker.opened_at
    return Breaker(failures=failures, opened_at=opened_at)
