"""Previews: the next occurrences, with notes about daylight saving."""

from __future__ import annotations

import pytest

from penstock.core.clock import HOUR, iso, parse_iso
from penstock.core.errors import InvalidInput
from penstock.schedules.cadence import cron, every
from penstock.schedules.preview import Occurrence, preview_occurrences

NY = "America/New_York"


def test_an_occurrence_has_its_time_and_its_local_time() -> None:
    """An ordinary occurrence has no note."""
    after = parse_iso("2026-01-10T00:00:00Z")
    assert preview_occurrences(cron("30 2 * * *", NY), after, 1) == [
        Occurrence(
            at=parse_iso("2026-01-10T07:30:00Z"),
            local="2026-01-10T02:30:00-05:00",
            utc_offset="-05:00",
        )
    ]


@pytest.mark.parametrize(
    ("expr", "zone", "after", "local", "note"),
    [
        (
            "30 2 * * *", NY, "2026-03-08T05:00:00Z", "2026-03-08T03:00:00-04:00",
            "2026-03-08 02:30 does not exist (clocks go forward from 02:00 to 03:00): "
            "fires at 2026-03-08 03:00",
        ),
        (
            "30 1 * * *", NY, "2026-11-01T04:00:00Z", "2026-11-01T01:30:00-04:00",
            "01:30 occurs twice that day (clocks go back): fires the first time only",
        ),
        (
            "30 * * * *", NY, "2026-11-01T05:00:00Z", "2026-11-01T01:30:00-04:00",
            "01:30 occurs twice that day (clocks go back): this is the first time",
        ),
        (
            "30 * * * *", NY, "2026-11-01T06:00:00Z", "2026-11-01T01:30:00-05:00",
            "01:30 occurs twice that day (clocks go back): this is the second time",
        ),
        (
            "30 */2 * * *", NY, "2026-03-08T06:00:00Z", "2026-03-08T04:30:00-04:00",
            "2026-03-08 02:30 does not exist (clocks go forward from 02:00 to 03:00): "
            "skipped, counting elapsed time",
        ),
        (
            "0 12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z", "2011-12-31T12:00:00+14:00",
            "2011-12-30 does not exist in this time zone: nothing fires for it",
        ),
        ("0 3 * * *", NY, "2026-03-08T05:00:00Z", "2026-03-08T03:00:00-04:00", None),
        ("0 2 * * *", NY, "2026-11-01T04:00:00Z", "2026-11-01T02:00:00-05:00", None),
    ],
)  # fmt: skip
def test_notes(expr: str, zone: str, after: str, local: str, note: str | None) -> None:
    """Every effect of daylight saving has a note, and nothing else has."""
    (fire,) = preview_occurrences(cron(expr, zone), parse_iso(after), 1)
    assert (fire.local, fire.note) == (local, note)


def test_intervals_and_counts() -> None:
    """Intervals are shown in UTC; a preview has 1 to 1,000 occurrences."""
    fires = preview_occurrences(every(HOUR), 0, 3)
    assert [iso(fire.at) for fire in fires] == [f"1970-01-01T0{n}:00:00Z" for n in (1, 2, 3)]
    for n in (0, -1, 1001, True):
        with pytest.raises(InvalidInput, match="n: expected a number from 1 to 1,000"):
            preview_occurrences(every(HOUR), 0, n)
