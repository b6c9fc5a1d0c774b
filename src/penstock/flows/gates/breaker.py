"""The circuit breaker of a phase: five failures open it for an hour, then one trial is allowed.

CLOSED allows all work and OPEN allows none. After an hour, HALF_OPEN allows a single trial: success
closes the breaker, failure opens it for another hour. A trial that never reports a result is
discarded after an hour. A neutral effect, such as that of a WAIT decision, only ends the trial. The
store keeps one record per customer, pipeline, partition and phase; the orchestrator calls
`try_start` and `record_effect`. Nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from penstock.core.clock import HOUR, Micros
from penstock.flows.gates.verdict import BreakerEffect

FAILURES_MAX: Final = 5
OPEN_DURATION: Final = HOUR


class BreakerState(StrEnum):
    """Whether a breaker allows work: all, a single trial, or none."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The stored state: consecutive failures, when the breaker opened, when its trial started.

    opened_at is None while the breaker is closed; probe_at is None while no trial is running.
    """

    failures: int = 0
    opened_at: Micros | None = None
    probe_at: Micros | None = None

    def state(self, now: Micros) -> BreakerState:
        """Return the state at this time."""
        if self.opened_at is None:
            return BreakerState.CLOSED
        if now < self.opened_at + OPEN_DURATION or self._is_probing(now):
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    def next_probe_at(self) -> Micros | None:
        """Return when the next trial is allowed; None while the breaker is closed."""
        if self.opened_at is None:
            return None
        return max(self.opened_at, self.probe_at or self.opened_at) + OPEN_DURATION

    def _is_probing(self, now: Micros) -> bool:
        return self.probe_at is not None and now < self.probe_at + OPEN_DURATION


def try_start(breaker: Breaker, now: Micros) -> tuple[bool, Breaker]:
    """Return whether work may start, and the breaker to store, which records a started trial."""
    state = breaker.state(now)
    if state is BreakerState.CLOSED:
        return True, breaker
    if state is BreakerState.OPEN:
        return False, breaker
    return True, replace(breaker, probe_at=now)


def record_effect(breaker: Breaker, effect: BreakerEffect, now: Micros) -> Breaker:
    """Return the breaker to store after work ended with this effect."""
    if effect is BreakerEffect.SUCCESS:
        return Breaker()
    if effect is BreakerEffect.NEUTRAL:
        return replace(breaker, probe_at=None)
    failures = breaker.failures + 1
    # Only a failed trial reopens the breaker: work that started before it opened may report late.
    opens = failures >= FAILURES_MAX and (breaker.opened_at is None or breaker.probe_at is not None)
    opened_at = now if opens else breaker.opened_at
    return Breaker(failures=failures, opened_at=opened_at)
