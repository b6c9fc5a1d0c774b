"""The rules of the ladder: fallback times across time zones and changes of the clock."""

from __future__ import annotations

import pytest

from penstock.core.clock import from_datetime, parse_iso, to_datetime
from penstock.flows.ladder.rungs import next_time_of_day


@pytest.mark.parametrize(
    ("now", "zone", "expected"),
    [
        ("2025-11-16T00:00:00Z", "UTC", "2025-11-16T06:30:00Z"),
        ("2025-11-16T06:29:59Z", "UTC", "2025-11-16T06:30:00Z"),
        ("2025-11-16T06:30:00Z", "UTC", "2025-11-17T06:30:00Z"),
        ("2025-11-16T10:00:00Z", "America/New_York", "2025-11-16T11:30:00Z"),
        ("2025-11-16T12:00:00Z", "America/New_York", "2025-11-17T11:30:00Z"),
        # Clocks go forward on 9 March: the same wall time is an hour earlier in UTC.
        ("2025-03-08T12:00:00Z", "America/New_York", "2025-03-09T10:30:00Z"),
    ],
)
def test_next_time_of_day(now: str, zone: str, expected: str) -> None:
    """The next 06:30 in the pipeline's time zone, never the present moment."""
    found = next_time_of_day(6 * 60 + 30, parse_iso(now), zone)
    assert to_datetime(found) == to_datetime(parse_iso(expected))


def test_a_time_that_does_not_exist() -> None:
    """02:30 is skipped on 9 March in New York: the fallback comes within the hour after it."""
    found = next_time_of_day(2 * 60 + 30, parse_iso("2025-03-09T05:00:00Z"), "America/New_York")
    assert found == from_datetime(to_datetime(parse_iso("2025-03-09T07:30:00Z")))
