"""The built-in modes, and the selection of a flow's mode.

`select_mode` selects the requested mode, or one by the wall clock of the pipeline's timezone;
`partition_of` returns the date that a flow processes; `with_leniency` applies a pipeline's
leniency. Nothing here reads a clock: functions take `now`. Gates, the orchestrator and declarations
use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from penstock.core.clock import Micros, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.utc_offsets import zone_info
from penstock.pipelines.mode import ALERT_EVERY_DEGRADED, DAY_MINUTES, Mode

MANUAL_SOURCE: Final = "manual"


class Leniency(StrEnum):
    """Which mode's thresholds the gates of a pipeline use."""

    AUTO = "auto"
    """Those of the flow's own mode."""
    STRICT = "strict"
    """Those of overnight, in every mode."""
    LENIENT = "lenient"
    """Those of same_day, in every mode."""


def modes_by_name(own: Iterable[Mode] = ()) -> dict[str, Mode]:
    """Return the modes of a pipeline by name: its own, then the built-in ones not replaced."""
    found = {mode.name: mode for mode in own}
    return {**found, **{name: mode for name, mode in BUILT_IN.items() if name not in found}}


def with_leniency(mode: Mode, leniency: Leniency, modes: Mapping[str, Mode]) -> Mode:
    """Return the mode with the thresholds, timers and alerts that the leniency selects."""
    if leniency is Leniency.AUTO:
        return mode
    other = modes["overnight" if leniency is Leniency.STRICT else "same_day"]
    names = [field.name for field in dataclasses.fields(mode)]
    return Mode.from_fields(
        **{name: getattr(other if name in _JUDGING else mode, name) for name in names}
    )


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

    If no window contains the time of day, the mode is same_day.
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
    return next(
        (mode for mode in modes.values() if mode.window_contains(minute)), modes["same_day"]
    )


def partition_of(mode: Mode, *, now: Micros, timezone: str) -> str:
    """Return the date that a flow in this mode processes.

    It is `partition_days` after the date on which the mode's window ends. Outside the window, or
    without one, it counts from today.
    """
    local = _local(now, timezone)
    base = local.date()
    if mode.window is not None:
        start, end = mode.window
        if end < start and local.hour * 60 + local.minute >= start:
            base += timedelta(days=1)
    return (base + timedelta(days=mode.partition_days)).isoformat()


def find_overlap(modes: Iterable[Mode]) -> tuple[str, str] | None:
    """Return the names of two modes whose windows share a minute, or None."""
    taken: dict[int, str] = {}
    for mode in modes:
        for minute in range(DAY_MINUTES):
            if mode.window_contains(minute):
                if minute in taken:
                    return taken[minute], mode.name
                taken[minute] = mode.name
    return None


def _local(now: Micros, timezone: str) -> datetime:
    return to_datetime(now).astimezone(zone_info(timezone))


_JUDGING: Final = frozenset(
    {
        "proceed_at", "min_quality", "degraded_at", "otherwise", "recheck_us", "max_wait_us",
        "alert_fail", "alert_degraded_below", "alert_wait_us",
    }
)  # fmt: skip
"""Fields that leniency takes from another mode."""

OVERNIGHT: Final = Mode(
    "overnight", window="23:00-06:00", proceed_at=100, min_quality=0.95, otherwise="WAIT",
    recheck="10m", max_wait="6h", partition_days=-1, until="precompute",
    alert_degraded_below=ALERT_EVERY_DEGRADED, alert_wait="1h", slo="6h", target=100,
)  # fmt: skip
SAME_DAY: Final = Mode(
    "same_day", window="10:00-15:00", proceed_at=100, min_quality=0.90, degraded_at=20,
    otherwise="FAIL", recheck="5m", max_wait="2h", alert_degraded_below=50, slo="2h", target=80,
)  # fmt: skip
TOMORROW: Final = Mode(
    "tomorrow", window="17:00-21:00", proceed_at=70, min_quality=0.85, degraded_at=30,
    otherwise="WAIT", recheck="30m", max_wait="12h", partition_days=1, slo="12h", target=75,
)  # fmt: skip
MANUAL: Final = Mode(
    "manual", proceed_at=100, min_quality=0.80, degraded_at=50, otherwise="FAIL",
    alert_fail=False, slo="2h", target=50,
)  # fmt: skip
BACKFILL: Final = Mode(
    "backfill", proceed_at=100, min_quality=0.95, otherwise="FAIL", age_counts=False,
    alert_fail=False, slo="12h", target=100,
)  # fmt: skip
BUILT_IN: Final[Mapping[str, Mode]] = MappingProxyType(
    {mode.name: mode for mode in (OVERNIGHT, SAME_DAY, TOMORROW, MANUAL, BACKFILL)}
)
