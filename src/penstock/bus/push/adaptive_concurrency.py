"""Adaptive concurrency of push endpoints: requests in flight and pauses, based on responses.

Pure. A window starts at one request, grows by one with each success until the first failure (slow
start), then by one per epoch (additive increase); a failure halves it, once per epoch. An epoch is
one window of responses. Consecutive failures also lengthen the pause between requests, from a
tenth of a second to a minute, so that an endpoint that is down does not use up the attempts of all
waiting messages.

`customer_share` limits the requests of one customer's endpoints, so that another customer can
always start one. `additional_requests` shares a bounded number of concurrent requests: one is
reserved for every endpoint that has none in flight, and an endpoint may hold at most half of the
others. As a result, slow endpoints of one customer never delay the first request of another
customer, as long as each customer's share is at least the number of its endpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.core.clock import MINUTE, SECOND, Micros

SIZE_MAX: Final = 1_000
PAUSE_MIN_US: Final = SECOND // 10
PAUSE_MAX_US: Final = MINUTE
FAILURES_BEFORE_PAUSE: Final = 3
CUSTOMER_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyWindow:
    """Congestion window of an endpoint. `size`, rounded down, bounds the requests in flight."""

    size: float = 1.0
    threshold: float = float(SIZE_MAX)
    """Size below which the window doubles per epoch; half of the size at the last failure."""
    failures: int = 0
    """Number of consecutive failures."""
    outstanding: int = 0
    """Responses still outstanding since the window was halved; their failures do not halve it
    again.
    """
    size_max: int = SIZE_MAX

    @property
    def max_in_flight(self) -> int:
        """Maximum number of requests in flight: `size`, rounded down."""
        return int(self.size)

    @property
    def pause_us(self) -> Micros:
        """Pause before the next request; 0 below FAILURES_BEFORE_PAUSE consecutive failures."""
        beyond = self.failures - FAILURES_BEFORE_PAUSE
        if beyond < 0:
            return 0
        return min(PAUSE_MAX_US, PAUSE_MIN_US << min(beyond, 20))


def succeeded(window: ConcurrencyWindow) -> ConcurrencyWindow:
    """Return the window after a response that shows no overload, whether it acked or not."""
    grown = window.size + (1.0 if window.size < window.threshold else 1.0 / window.size)
    return replace(
        window,
        size=min(float(window.size_max), grown),
        failures=0,
        outstanding=max(0, window.outstanding - 1),
    )


def failed(window: ConcurrencyWindow) -> ConcurrencyWindow:
    """Return the window after an overload, a server error, or no response."""
    failures = window.failures + 1
    if window.outstanding > 0:
        return replace(window, failures=failures, outstanding=window.outstanding - 1)
    half = max(1.0, window.size / 2)
    return replace(
        window,
        size=half,
        threshold=half,
        failures=failures,
        outstanding=max(0, window.max_in_flight - 1),
    )


def customer_share(most: int) -> int:
    """Return how many of `most` requests in flight one customer's endpoints may hold."""
    return max(1, int(most * CUSTOMER_SHARE))


def additional_requests(window: ConcurrencyWindow, *, held: int, free: int, idle: int = 0) -> int:
    """Return how many more requests an endpoint with `held` in flight may start.

    free: requests left under the overall bound. idle: other endpoints without requests in flight.
    """
    if free <= 0 or held >= window.max_in_flight:
        return 0
    taken = 0 if held else 1
    while held + taken < window.max_in_flight and held + taken < free - idle - taken:
        taken += 1
    return taken
