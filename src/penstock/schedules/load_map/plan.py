"""Rules of the load map: starts per minute, runs in progress, and the configs to spread.

A start is an occurrence of a config plus its fixed offset. Jitter is deterministic: the offset of a
config is a fixed fraction of its jitter, so spreading a config twice changes nothing, and a new
config does not move the others. No offset exceeds the tolerance of the config's customer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.core.clock import MINUTE, Micros
from penstock.core.ids import stable_fraction
from penstock.schedules.cadence import Cadence, occurrences_between

OCCURRENCES_MAX: Final = 100_000
"""Maximum number of occurrences of one cadence in a window; an interval of a second has 86,400 a
day.
"""


class ScheduledGroup(NamedTuple):
    """Configs with the same cadence, next occurrence, pipeline and pool, and the same offset.

    offset: in whole minutes, as microseconds. runs: runs that they start at each occurrence.
    """

    cadence: Cadence
    next_run_time: Micros
    pipeline: str
    pool: str
    offset_us: Micros
    runs: int


class Spreadable(NamedTuple):
    """A config whose starts may be spread."""

    config_id: int
    customer_id: str
    cadence: Cadence
    next_run_time: Micros
    jitter_us: Micros
    offset_us: Micros
    sla_us: Micros
    tolerance_us: Micros | None
    runs: int


class Move(NamedTuple):
    """A config with a changed jitter and offset."""

    config: Spreadable
    jitter_us: Micros
    offset_us: Micros


Minutes = Counter[int]
"""Starts by the minute (microseconds at its beginning)."""


class LoadWindow:
    """The minutes of a span of time, and the occurrences of cadences in it."""

    def __init__(self, since: Micros, until: Micros) -> None:
        self.since = since - since % MINUTE
        self.until = until
        self._occurrences: dict[tuple[Cadence, Micros, Micros], list[Micros]] = {}

    def starts(self, cadence: Cadence, next_run_time: Micros, offset_us: Micros) -> list[Micros]:
        """Return the minutes in which configs with this schedule and offset start."""
        delay = offset_us - offset_us % MINUTE
        key = (cadence, next_run_time if cadence.interval_us else 0, delay)
        found = self._occurrences.get(key)
        if found is None:
            after = self.since - delay - 1
            times = occurrences_between(
                cadence, after, self.until - delay - 1, OCCURRENCES_MAX, next_run_time
            )
            found = [at - at % MINUTE + delay for at in times]
            self._occurrences[key] = found
        return found


def starts_by_series(
    window: LoadWindow, groups: Iterable[ScheduledGroup]
) -> dict[tuple[str, str], Minutes]:
    """Return starts per minute by (pool, pipeline)."""
    found: dict[tuple[str, str], Minutes] = {}
    for group in groups:
        minutes = found.setdefault((group.pool, group.pipeline), Counter())
        for at in window.starts(group.cadence, group.next_run_time, group.offset_us):
            minutes[at] += group.runs
    return found


def total(series: Iterable[Minutes]) -> Minutes:
    """Return the sum of starts per minute."""
    found: Minutes = Counter()
    for minutes in series:
        found.update(minutes)
    return found


def peak(minutes: Mapping[int, int]) -> tuple[int, Micros | None]:
    """Return the maximum number of starts in a minute, and the first such minute."""
    if not minutes:
        return 0, None
    at = min(minutes, key=lambda one: (-minutes[one], one))
    return minutes[at], at


def running(
    series: Mapping[tuple[str, str], Minutes], mean_us: Mapping[str, Micros], window: LoadWindow
) -> dict[int, float]:
    """Return the runs in progress at the end of each minute, from recorded durations, if none
    waits.

    A run counts in a minute by the share of the minute that it occupies.
    """
    found: dict[int, float] = {}
    for (_, pipeline), minutes in series.items():
        length = mean_us.get(pipeline, 0)
        for at, count in minutes.items():
            left, minute = length, at
            while left > 0 and minute < window.until:
                found[minute] = found.get(minute, 0.0) + count * min(left, MINUTE) / MINUTE
                left, minute = left - MINUTE, minute + MINUTE
    return found


def crowded(minutes: Mapping[int, int], above: int) -> set[int]:
    """Return the minutes with more starts than `above`."""
    return {at for at, count in minutes.items() if count > above}


def tolerance_of(config: Spreadable, default_us: Micros | None) -> Micros | None:
    """Return how late a config may start; None if no tolerance is set.

    It is never more than the delay that breaches the config's SLA.
    """
    agreed = default_us if config.tolerance_us is None else config.tolerance_us
    return None if agreed is None else min(agreed, config.sla_us)


def plan_moves(
    window: LoadWindow,
    configs: Sequence[Spreadable],
    busy: set[int],
    default_us: Micros | None,
) -> tuple[list[Move], Counter[str]]:
    """Choose the configs to spread. Return them, and why others in busy minutes are not moved."""
    moves: list[Move] = []
    stay: Counter[str] = Counter()
    for config in configs:
        at = window.starts(config.cadence, config.next_run_time, config.offset_us)
        if busy.isdisjoint(at):
            continue
        tolerance = tolerance_of(config, default_us)
        if tolerance is None:
            stay["no_tolerance"] += 1
        elif config.jitter_us >= tolerance:
            stay["spread_already"] += 1
        else:
            offset = int(stable_fraction(config.config_id) * tolerance)
            moves.append(Move(config, tolerance, offset))
    return moves, stay


def after_moves(window: LoadWindow, before: Minutes, moves: Iterable[Move]) -> Minutes:
    """Return starts per minute once the moves are made."""
    found = Counter(before)
    for config, _, offset in moves:
        for at in window.starts(config.cadence, config.next_run_time, config.offset_us):
            found[at] -= config.runs
        for at in window.starts(config.cadence, config.next_run_time, offset):
            found[at] += config.runs
    return Counter({at: count for at, count in found.items() if count > 0})
