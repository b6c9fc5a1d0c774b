"""The modes of a pipeline: the built-in ones, a preset, and the selection of a flow's mode.

A pipeline that declares no modes has `daily`, `manual` and `backfill`; `game_day_modes` is a preset
that selects modes by the time of day. `select_mode` selects the requested mode, or one by the wall
clock of the pipeline's timezone; `partition_of` returns the partition that a flow processes;
`with_leniency` applies a pipeline's leniency. Nothing here reads a clock: functions take `now`.
Gates, the orchestrator and declarations use this module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta
from enum import StrEnum
from itertools import chain
from typing import Any, Final

from penstock.core.clock import Micros, from_datetime, to_datetime
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.core.utc_offsets import zone_info
from penstock.pipelines.mode import ALERT_EVERY_DEGRADED, DAY_MINUTES, Mode
from penstock.pipelines.partition import DAY_RULE, PartitionKind, PartitionRule, partition_at

MANUAL_SOURCE: Final = "manual"


class Leniency(StrEnum):
    """Mode whose thresholds the gates of a pipeline use."""

    AUTO = "auto"
    """The flow's own mode."""
    STRICT = "strict"
    """The pipeline's mode `overnight`, or the one in `game_day_modes`, in every mode."""
    LENIENT = "lenient"
    """The pipeline's mode `same_day`, or the one in `game_day_modes`, in every mode."""


def game_day_modes(*, overnight_until: str | None = None) -> tuple[Mode, ...]:
    """Return a preset for pipelines about daily events: five modes, three by the time of day.

    overnight (23:00-06:00) processes the day that ended, same_day (10:00-15:00, and the default)
    the current day, tomorrow (17:00-21:00) the next day; manual and backfill complete the set.
    overnight_until: the last phase that overnight runs; None runs all of them.
    """
    if overnight_until is None:
        return GAME_DAY
    return OVERNIGHT.with_options(until=overnight_until), *GAME_DAY[1:]


def resolve_modes(own: Sequence[Mode]) -> tuple[Mode, ...]:
    """Return all modes of a pipeline that declares these; exactly one of them is the default.

    `manual` and `backfill` are added unless declared. The default is the mode declared with
    `default=True`, else the only other mode without a window; `daily` is added if there is none.
    Raise DeclarationError if several modes could be the default.
    """
    others = [mode for mode in own if mode.name not in (MANUAL.name, BACKFILL.name)]
    marked = dict.fromkeys(mode.name for mode in own if mode.default)
    plain = dict.fromkeys(mode.name for mode in others if mode.window is None)
    candidates = list(marked or ([DAILY.name] if DAILY.name in plain else plain))
    if len(candidates) > 1:
        raise DeclarationError(
            f"modes {', '.join(candidates)}: at most one mode is the default, which schedules use "
            "outside every window; set default=True on one of them."
        )
    found = [*own, *([] if candidates else [DAILY])]
    names = {mode.name for mode in found}
    found += [mode for mode in (MANUAL, BACKFILL) if mode.name not in names]
    chosen = candidates[0] if candidates else DAILY.name
    return tuple(_as_default(mode, is_default=mode.name == chosen) for mode in found)


def legacy_modes(own: Iterable[Mode]) -> tuple[Mode, ...]:
    """Return the modes of a definition stored before definitions listed all of their modes.

    Its own modes replace or precede five built-in ones, and same_day is the default.
    """
    found = {mode.name: mode for mode in (*own, *game_day_modes(overnight_until="precompute"))}
    replaced = {mode.name: mode for mode in own}
    return tuple(
        _as_default(replaced.get(name, mode), is_default=name == SAME_DAY.name)
        for name, mode in found.items()
    )


def default_mode(modes: Mapping[str, Mode]) -> Mode:
    """Return the mode that applies when no window contains the time of day."""
    return next(mode for mode in modes.values() if mode.default)


def with_leniency(mode: Mode, leniency: Leniency, modes: Mapping[str, Mode]) -> Mode:
    """Return the mode with the thresholds, timers and alerts that the leniency selects."""
    if leniency is Leniency.AUTO:
        return mode
    preset = OVERNIGHT if leniency is Leniency.STRICT else SAME_DAY
    other = modes.get(preset.name, preset)
    names = [field.name for field in dataclasses.fields(mode)]
    return Mode.from_fields(
        **{name: getattr(other if name in _JUDGING else mode, name) for name in names}
    )


def with_slo(mode: Mode, slo_us: Micros | None) -> Mode:
    """Return the mode with the pipeline's service level for it, if it has one."""
    return mode if slo_us is None else _changed(mode, slo_us=slo_us)


def select_mode(
    modes: Mapping[str, Mode],
    *,
    now: Micros,
    timezone: str,
    explicit: str | None = None,
    backfill: bool = False,
    trigger_source: str | None = None,
) -> Mode:
    """Return the mode of a flow: the explicit one, else backfill, else manual, else by the clock.

    If no window contains the time of day, it is the default mode.
    """
    if explicit is not None:
        if explicit not in modes:
            raise InvalidInput("mode", f"one of {', '.join(sorted(modes))}", explicit)
        return modes[explicit]
    if backfill:
        return modes["backfill"]
    if trigger_source == MANUAL_SOURCE:
        return modes["manual"]
    local = _local(now, timezone)
    minute = local.hour * 60 + local.minute
    inside = (mode for mode in modes.values() if mode.window_contains(minute))
    return next(inside, None) or default_mode(modes)


def partition_of(
    mode: Mode,
    *,
    now: Micros,
    timezone: str,
    rule: PartitionRule | None = DAY_RULE,
    zone: str | None = None,
) -> str:
    """Return the partition that a flow in this mode processes.

    timezone: time zone of the pipeline, for the mode's window. zone: time zone of the config, which
    determines the partition; the pipeline's if None. A mode with `partition_days` counts days from
    the date on which its window ends; outside the window, or without one, from today.
    """
    place = timezone if zone is None else zone
    if rule is None or not mode.partition_days or rule.kind is not PartitionKind.DAY:
        return partition_at(rule, now, place)
    at, local = now, _local(now, timezone)
    if mode.window is not None:
        start, end = mode.window
        if end < start and local.hour * 60 + local.minute >= start:
            midnight = datetime.combine(local.date() + timedelta(days=1), time(), local.tzinfo)
            at = from_datetime(midnight + timedelta(minutes=end))
    moved = dataclasses.replace(rule, offset=rule.offset + mode.partition_days)
    return partition_at(moved, at, place)


def find_overlap(modes: Iterable[Mode]) -> tuple[str, str] | None:
    """Return the names of two modes whose windows share a minute, or None."""
    taken: dict[int, str] = {}
    for mode in modes:
        for minute in _minutes(mode.window) if mode.window else ():
            if minute in taken:
                return taken[minute], mode.name
            taken[minute] = mode.name
    return None


def _minutes(window: tuple[int, ...]) -> Iterable[int]:
    """Return the minutes of the day in a window, in order."""
    start, end = window
    return range(start, end) if start < end else chain(range(end), range(start, DAY_MINUTES))


def _as_default(mode: Mode, *, is_default: bool) -> Mode:
    return mode if mode.default is is_default else _changed(mode, default=is_default)


def _changed(mode: Mode, **fields: Any) -> Mode:
    """Return a copy with fields replaced, without validation: stored modes were validated."""
    kept = {field.name: getattr(mode, field.name) for field in dataclasses.fields(mode)}
    return Mode.from_fields(**{**kept, **fields})


def _local(now: Micros, timezone: str) -> datetime:
    return to_datetime(now).astimezone(zone_info(timezone))


_JUDGING: Final = frozenset(
    {
        "proceed_at", "min_quality", "degraded_at", "otherwise", "recheck_us", "max_wait_us",
        "alert_fail", "alert_degraded_below", "alert_wait_us",
    }
)  # fmt: skip
"""Fields that leniency takes from another mode."""

DAILY: Final = Mode(
    "daily", proceed_at=100, min_quality=0.90, otherwise="WAIT", recheck="5m", max_wait="6h",
    alert_wait="2h", deadline="24h", default=True,
)  # fmt: skip
MANUAL: Final = Mode(
    "manual", proceed_at=100, min_quality=0.80, degraded_at=50, otherwise="FAIL",
    alert_fail=False, slo="2h", target=50,
)  # fmt: skip
BACKFILL: Final = Mode(
    "backfill", proceed_at=100, min_quality=0.95, otherwise="FAIL", age_counts=False,
    alert_fail=False, slo="12h", target=100,
)  # fmt: skip
OVERNIGHT: Final = Mode(
    "overnight", window="23:00-06:00", proceed_at=100, min_quality=0.95, otherwise="WAIT",
    recheck="10m", max_wait="6h", partition_days=-1,
    alert_degraded_below=ALERT_EVERY_DEGRADED, alert_wait="1h", slo="6h", target=100,
)  # fmt: skip
SAME_DAY: Final = Mode(
    "same_day", window="10:00-15:00", proceed_at=100, min_quality=0.90, degraded_at=20,
    otherwise="FAIL", recheck="5m", max_wait="2h", alert_degraded_below=50, slo="2h", target=80,
    default=True, self_heal="30m",
)  # fmt: skip
TOMORROW: Final = Mode(
    "tomorrow", window="17:00-21:00", proceed_at=70, min_quality=0.85, degraded_at=30,
    otherwise="WAIT", recheck="30m", max_wait="12h", partition_days=1, slo="12h", target=75,
    self_heal="120m",
)  # fmt: skip
GAME_DAY: Final[tuple[Mode, ...]] = (OVERNIGHT, SAME_DAY, TOMORROW, MANUAL, BACKFILL)
