"""How many requests an endpoint is given at a time, and how fast: learned from its answers.

Pure. A window opens at one, grows by one with each success until the first failure (slow start),
then by one per round (additive increase); a failure halves it, once per round. Failures in a row
also stretch the time between requests, from a tenth of a second to a minute, so that an endpoint
that is down does not use up the attempts of everything that waits.

`may_take` shares a bounded number of slots: one is kept back for every endpoint that holds none,
and of the others nobody holds more than what is left free. So slow endpoints never keep another
one from its first slot, as long as there are as many slots as endpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.core.clock import MINUTE, SECOND, Micros

SIZE_MAX: Final = 1_000
PAUSE_MIN_US: Final = SECOND // 10
PAUSE_MAX_US: Final = MINUTE
FAILURES_BEFORE_PAUSE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What is known of an endpoint. `size` is the most requests at a time, rounded down."""

    size: float = 1.0
    threshold: float = float(SIZE_MAX)
    """Below it the window doubles each round; it is half of where the last failure came."""
    failures: int = 0
    """In a row."""
    spared: int = 0
    """Answers still to come of the round that was cut: their failures say nothing new."""
    size_max: int = SIZE_MAX

    @property
    def room(self) -> int:
        """How many requests may be under way."""
        return int(self.size)

    @property
    def pause_us(self) -> Micros:
        """How long to wait before the next request."""
        beyond = self.failures - FAILURES_BEFORE_PAUSE
        if beyond < 0:
            return 0
        return min(PAUSE_MAX_US, PAUSE_MIN_US << min(beyond, 20))


def succeeded(window: Window) -> Window:
    """After an answer that acknowledges."""
    grown = window.size + (1.0 if window.size < window.threshold else 1.0 / window.size)
    return replace(
        window,
        size=min(float(window.size_max), grown),
        failures=0,
        spared=max(0, window.spared - 1),
    )


def failed(window: Window) -> Window:
    """After any other answer, or none."""
    failures = window.failures + 1
    if window.spared > 0:
        return replace(window, failures=failures, spared=window.spared - 1)
    half = max(1.0, window.size / 2)
    return replace(
        window,
        size=half,
        threshold=half,
        failures=failures,
        spared=max(0, window.room - 1),
    )


def may_take(window: Window, *, held: int, free: int, idle: int = 0) -> int:
    """How many more slots an endpoint may take, of `free` ones, when it holds `held`.

    `idle` counts the other endpoints that hold none.
    """
    if free <= 0 or held >= window.room:
        return 0
    taken = 0 if held else 1
    while held + taken < window.room and held + taken < free - idle - taken:
        taken += 1
    return taken
