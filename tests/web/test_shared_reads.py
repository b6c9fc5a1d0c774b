"""Costly reads of pages are shared by visits with the same view, for a short time."""

from __future__ import annotations

from penstock.core.clock import SECOND
from penstock.testing.clock import VirtualClock
from penstock.web.live.shared_reads import KEPT_MAX, SharedReads


class CountedRead:
    """A read that returns how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        return self.calls


def test_a_result_is_shared_until_it_is_too_old() -> None:
    clock, read = VirtualClock(0), CountedRead()
    reads = SharedReads(clock)
    assert reads.get("a", 30, read) == 1
    clock.advance(29 * SECOND)
    assert reads.get("a", 30, read) == 1
    clock.advance(SECOND)
    assert reads.get("a", 30, read) == 2


def test_other_views_share_nothing() -> None:
    """The key has the customer of the caller: its figures are for that customer only."""
    reads, read = SharedReads(VirtualClock(0)), CountedRead()
    assert reads.get(("trends", "acme"), 30, read) == 1
    assert reads.get(("trends", "globex"), 30, read) == 2
    assert reads.get(("trends", "acme"), 30, read) == 1


def test_the_number_of_results_is_bounded() -> None:
    reads, read = SharedReads(VirtualClock(0)), CountedRead()
    for n in range(KEPT_MAX + 1):
        reads.get(n, 30, read)
    assert reads.get(KEPT_MAX, 30, read) == KEPT_MAX + 1
    assert reads.get(0, 30, read) == KEPT_MAX + 2  # the oldest was dropped
