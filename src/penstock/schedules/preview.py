"""Previews: the next occurrences of a cadence, with a note where daylight saving affects them.

The API, the CLI and the UI show them before a config is saved. A preview decides nothing: it uses
``schedules.cadence``, like the scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final

from penstock.core.clock import DAY, Micros, from_datetime, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.utc_offsets import OffsetPeriod, offset_period_at, zone_info
from penstock.pipelines.partition import PartitionKind, PartitionRule, partition_at
from penstock.schedules.cadence import Cadence, next_after, occurrences_between, parse
from penstock.schedules.cron.occurrences import first_skipped_time

PREVIEW_MAX: Final = 1_000
NO_END: Final[Micros] = 2**62
SAMPLE_FROM: Final = from_datetime(datetime(2024, 1, 1, tzinfo=UTC))
SAMPLE_SIZE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A future occurrence: its time, the local time, and a note about daylight saving, if any."""

    at: Micros
    local: str
    utc_offset: str
    note: str | None = None


def preview_occurrences(
    cadence: Cadence, after: Micros, n: int, anchor: Micros = 0
) -> list[Occurrence]:
    """Return the next n occurrences after a time. Raise InvalidInput unless n is 1 to 1,000."""
    if isinstance(n, bool) or not 1 <= n <= PREVIEW_MAX:
        raise InvalidInput("n", f"a number from 1 to {PREVIEW_MAX:,}", n)
    zone = zone_info(cadence.timezone)
    fires: list[Occurrence] = []
    times = occurrences_between(cadence, after, NO_END, n, anchor)
    for previous, at in pairwise([after, *times]):
        local = to_datetime(at).astimezone(zone)
        text = local.isoformat()
        note = None if cadence.cron is None else _note(cadence, previous, at)
        fires.append(Occurrence(at=at, local=text, utc_offset=_offset_text(local), note=note))
    return fires


def repeated_partition(cadence: Cadence, rule: PartitionRule | None) -> str | None:
    """Return an example partition that contains several occurrences; None if there is none.

    Looks at the first occurrences of 2024 in UTC, so that the result depends neither on the
    current time nor on clock changes.
    """
    if rule is None or rule.kind is PartitionKind.TEXT:
        return None
    return _repeated(replace(cadence, timezone="UTC"), replace(rule, offset=0))


@lru_cache(maxsize=4096)
def _repeated(cadence: Cadence, rule: PartitionRule) -> str | None:
    at, before = SAMPLE_FROM - 1, None
    for _ in range(SAMPLE_SIZE):
        at = next_after(cadence, at)
        partition = partition_at(rule, at, cadence.timezone)
        if partition == before:
            return partition
        before = partition
    return None


def _note(cadence: Cadence, previous: Micros, at: Micros) -> str | None:
    assert cadence.cron is not None
    expression = parse(cadence.cron)
    stretch = offset_period_at(cadence.timezone, at)
    wall = at + stretch.offset
    shift = (
        f"clocks go forward from {_hm(stretch.gap_from)} to {_hm(stretch.start + stretch.offset)}"
        if stretch.gap_from is not None
        else ""
    )
    crossed = stretch.gap_from is not None and previous < stretch.start
    if expression.fixed_hour:
        meant = first_skipped_time(expression, stretch)
        if meant is not None and at == stretch.start:
            return f"{_day_hm(meant)} does not exist ({shift}): fires at {_day_hm(wall)}"
        if _is_repeated_later(cadence.timezone, stretch, wall):
            return f"{_hm(wall)} occurs twice that day (clocks go back): fires the first time only"
        return _skipped_day(stretch) if crossed else None
    if wall < stretch.first_new_wall_time:
        return f"{_hm(wall)} occurs twice that day (clocks go back): this is the second time"
    if _is_repeated_later(cadence.timezone, stretch, wall):
        return f"{_hm(wall)} occurs twice that day (clocks go back): this is the first time"
    if crossed:
        meant = first_skipped_time(expression, stretch)
        if meant is not None:
            return f"{_day_hm(meant)} does not exist ({shift}): skipped, counting elapsed time"
        return _skipped_day(stretch)
    return None


def _skipped_day(stretch: OffsetPeriod) -> str | None:
    """Return a note if the change at the start of the stretch skipped a whole calendar day."""
    if stretch.gap_from is None:
        return None
    midnight = -(-stretch.gap_from // DAY) * DAY
    if midnight + DAY > stretch.start + stretch.offset:
        return None
    return f"{_wall(midnight).date()} does not exist in this time zone: nothing fires for it"


def _is_repeated_later(zone: str, stretch: OffsetPeriod, wall: Micros) -> bool:
    following = offset_period_at(zone, stretch.end)
    return following.start == stretch.end and following.start + following.offset <= wall


def _wall(wall: Micros) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=wall)


def _hm(wall: Micros) -> str:
    return _wall(wall).strftime("%H:%M")


def _day_hm(wall: Micros) -> str:
    return _wall(wall).strftime("%Y-%m-%d %H:%M")


def _offset_text(local: datetime) -> str:
    text = local.strftime("%z")
    return f"{text[:3]}:{text[3:5]}"
