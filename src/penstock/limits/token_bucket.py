"""The token bucket of a rate limit, in whole numbers: nothing is lost or won by rounding.

A token is 10**12 parts and a rate is a whole number of millionths of a token per second, which is
exactly that many parts per microsecond. A bucket may be overdrawn: whoever takes a token that is
not there yet is told how long to wait for it, so that the order of taking is the order of going,
nobody has to ask twice, and in no window of length t do more than burst + rate × t go, as far as
whole microseconds can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.clock import MILLISECOND, SECOND, Micros

TOKEN: Final = 10**12
"""Parts of a token."""
OWED_MAX: Final = 2**62
"""Parts of tokens that may be promised: more would not fit into the store's numbers."""
LATENESS: Final = 50 * MILLISECOND
"""A token may be used this much later than it was there. What comes in that time is not saved up,
so that even those who are late do not exceed burst + rate × t where it matters: at the resource."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many parts of tokens there were at a time (negative: promised to those who wait)."""

    rate_micro: int
    burst: int
    level: int
    at: Micros

    def level_at(self, now: Micros) -> int:
        """Return the parts of tokens there are now; time that went back brings nothing."""
        return min(self.burst * TOKEN, self.level + self.rate_micro * max(0, now - self.at))


def bucket_of(rate: float, burst: int, level: int | None, at: Micros | None, now: Micros) -> Bucket:
    """Return the bucket of a stored limit; a new one is full. `burst` as configured."""
    rate_micro = max(1, round(rate * 1_000_000))
    saved = burst - min(burst - 1, int(rate * LATENESS / SECOND))
    if level is None or at is None:
        return Bucket(rate_micro, saved, saved * TOKEN, now)
    return Bucket(rate_micro, saved, min(level, saved * TOKEN), at)


def take(
    bucket: Bucket, n: int, now: Micros, within: Micros | None = None
) -> tuple[Bucket, Micros] | None:
    """Take `n` tokens; returns the bucket afterwards and how long to wait before using them.

    None, and nothing is taken, when the wait would be longer than `within`, or when more is
    promised already than can be counted; without `within` one waits all the same. The caller sees
    to it that `n` is not more than the burst as configured.
    """
    assert n >= 1, n
    level = bucket.level_at(now) - n * TOKEN
    at = max(now, bucket.at)
    # Rounded up, and counted from the latest time the bucket has seen.
    wait = 0 if level >= 0 else at - now - (level // bucket.rate_micro)
    if within is not None and (wait > within or level < -OWED_MAX):
        return None
    return Bucket(bucket.rate_micro, bucket.burst, max(level, -OWED_MAX), at), wait
