"""The token bucket of a rate limit, in integer arithmetic, so that rounding errors do not add up.

A token is 10**12 parts, and a rate is an integer number of millionths of a token per second, which
equals that number of parts per microsecond. A bucket may be overdrawn: a caller that takes a token
before it is available receives the time to wait for it. Callers therefore start in the order in
which they took tokens, need one call each, and no window of length t contains more than
burst + rate × t starts, to microsecond precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.clock import MILLISECOND, SECOND, Micros

PARTS_PER_TOKEN: Final = 10**12
"""Parts per token."""
OVERDRAFT_MAX: Final = 2**62
"""Maximum overdraft in parts; a larger one would not fit into a 64-bit column."""
LATENESS_MAX: Final = 50 * MILLISECOND
"""Allowed delay between a token becoming available and its use. Tokens that accrue in that time are
not saved, so that late callers do not exceed burst + rate × t at the protected resource either."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket and its level in parts at time `at`; negative while callers wait for tokens."""

    parts_per_us: int
    burst: int
    level: int
    at: Micros

    def level_at(self, now: Micros) -> int:
        """Return the level in parts at `now`; a clock that moved back adds nothing."""
        return min(
            self.burst * PARTS_PER_TOKEN, self.level + self.parts_per_us * max(0, now - self.at)
        )


def load_bucket(
    rate: float, burst: int, level: int | None, at: Micros | None, now: Micros
) -> Bucket:
    """Return the bucket of a stored limit; one without stored level or time starts full.

    `burst` is the configured value; `LATENESS_MAX` reduces it for limits with a high rate.
    """
    rate_micro = max(1, round(rate * 1_000_000))
    capacity = burst - min(burst - 1, int(rate * LATENESS_MAX / SECOND))
    if level is None or at is None:
        return Bucket(rate_micro, capacity, capacity * PARTS_PER_TOKEN, now)
    return Bucket(rate_micro, capacity, min(level, capacity * PARTS_PER_TOKEN), at)


def take(
    bucket: Bucket, n: int, now: Micros, within: Micros | None = None
) -> tuple[Bucket, Micros] | None:
    """Take `n` tokens; return the new bucket and the wait in micros before they may be used.

    Return None and take nothing if the wait would exceed `within` or the overdraft would exceed
    `OVERDRAFT_MAX`. If `within` is None, the tokens are always taken. The caller ensures that `n`
    does not exceed the configured burst.
    """
    assert n >= 1, n
    level = bucket.level_at(now) - n * PARTS_PER_TOKEN
    at = max(now, bucket.at)
    # Rounded up, and measured from the latest time recorded in the bucket.
    wait = 0 if level >= 0 else at - now - (level // bucket.parts_per_us)
    if within is not None and (wait > within or level < -OVERDRAFT_MAX):
        return None
    return Bucket(bucket.parts_per_us, bucket.burst, max(level, -OVERDRAFT_MAX), at), wait
