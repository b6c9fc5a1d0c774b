"""Declaration of a mode: thresholds, waiting, window, partition, phases and alerts of a flow.

    Mode("evening", window="20:00-23:00", otherwise="WAIT", max_wait="90m", degraded_at=40)

A mode waits if and only if `otherwise` is WAIT; it must then set `max_wait`. An invalid option
raises a DeclarationError that names it. `pipelines.modes` defines the built-in modes and selects
one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypedDict, Unpack

from penstock.core.clock import MINUTE, Micros, format_duration, parse_duration
from penstock.core.errors import DeclarationError, InvalidInput, short_repr
from penstock.core.naming import check_declared_name

RECHECK_DEFAULT: Final = 5 * MINUTE
SELF_HEAL_DEFAULT: Final = 60 * MINUTE
ALERT_EVERY_DEGRADED: Final = 101.0
"""Value of `alert_degraded_below` with which every degraded start raises an alert."""
DAY_MINUTES: Final = 24 * 60
Reader: TypeAlias = Callable[[Any, str, str], Any]

_WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)\s*(?:-|–)\s*([01]\d|2[0-4]):([0-5]\d)", re.ASCII)


class FallbackVerdict(StrEnum):
    """Verdict of a gate when neither threshold is reached."""

    WAIT = "WAIT"
    FAIL = "FAIL"


class ModeOptions(TypedDict, total=False):
    """Options of a mode. Percentages are from 0 to 100, quality scores from 0 to 1."""

    proceed_at: float
    """Minimum completeness in percent at which the phase starts. Default 100."""
    min_quality: float
    """Minimum quality score for a start that is not degraded. Default 0.9."""
    degraded_at: float | None
    """Minimum completeness at which the phase starts degraded. None (the default): never."""
    otherwise: str
    """Verdict below both thresholds: "WAIT" (requires max_wait) or "FAIL" (the default)."""
    recheck: str | int | float | timedelta
    """Interval between evaluations while a gate waits. Default 5 minutes."""
    max_wait: str | int | float | timedelta
    """Maximum time that a gate waits."""
    window: str
    """Time of day that selects this mode: "23:00-06:00" in the pipeline's timezone."""
    partition_days: int
    """Days from the date on which the window ends to the date of the partition; only for
    partitions by day. Default 0: the day of the scheduled time.
    """
    until: str
    """The last phase this mode runs; phases after it are skipped."""
    phases: Iterable[str]
    """The phases this mode runs. Default: all of them."""
    age_counts: bool
    """Whether stale data lowers the quality. Set to False for backfills. Default True."""
    alert_fail: bool
    """Whether a FAIL verdict raises an alert. Default True."""
    alert_degraded_below: float | None
    """Completeness below which a degraded start raises an alert. None (the default): no alert."""
    alert_wait: str | int | float | timedelta
    """Waiting time after which a gate raises an alert."""
    slo: str | int | float | timedelta
    """Time that a flow should take from start to end. It does not shorten any wait."""
    deadline: str | int | float | timedelta
    """Time after its start at which an unfinished flow fails. Default: twice the slo; without one,
    24 hours or twice max_wait. A deadline earlier than max_wait is rejected.
    """
    self_heal: str | int | float | timedelta
    """Time after which a phase that could have started or ended is evaluated again by self-heal.
    Default 60 minutes.
    """
    target: float
    """Completeness in percent that the service level requires. Default 100."""
    default: bool
    """Whether schedules use this mode outside every window. Default: the only mode without one."""


@dataclass(frozen=True, slots=True, init=False)
class Mode:
    """Operating policy of a flow; `ModeOptions` describes the fields."""

    name: str
    proceed_at: float = 100.0
    min_quality: float = 0.90
    degraded_at: float | None = None
    otherwise: FallbackVerdict = FallbackVerdict.FAIL
    recheck_us: Micros | None = None
    max_wait_us: Micros | None = None
    window: tuple[int, ...] | None = None
    """Minutes of the day: start (inclusive) and end (exclusive), across midnight if end < start."""
    partition_days: int = 0
    until: str | None = None
    phases: tuple[str, ...] | None = None
    age_counts: bool = True
    alert_fail: bool = True
    alert_degraded_below: float | None = None
    alert_wait_us: Micros | None = None
    slo_us: Micros | None = None
    deadline_us: Micros | None = None
    target: float = 100.0
    default: bool = False
    self_heal_us: Micros | None = None

    def __init__(self, name: str, **options: Unpack[ModeOptions]) -> None:
        where = f"mode {short_repr(name)}"
        check_declared_name(name, "mode", where)
        self._fill({"name": name, **_fields_of(options, where)})
        _check(self, where)
        check_deadline(self, where)

    @classmethod
    def from_fields(cls, **fields: Any) -> Mode:
        """Return a mode with exactly these fields, without validation; for stored records."""
        made = object.__new__(cls)
        made._fill(fields)
        return made

    def with_options(self, **options: Unpack[ModeOptions]) -> Mode:
        """Return a copy of this mode with some options changed and validated again."""
        where = f"mode {self.name!r}"
        kept = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        made = Mode.from_fields(**{**kept, **_fields_of(options, where)})
        _check(made, where)
        return made

    @property
    def waits(self) -> bool:
        """Whether a gate in this mode waits when neither threshold is reached."""
        return self.otherwise is FallbackVerdict.WAIT

    @property
    def deadline_after_us(self) -> Micros | None:
        """Time after its start at which an unfinished flow fails; None if it has no deadline."""
        if self.deadline_us is not None:
            return self.deadline_us
        return None if self.slo_us is None else 2 * self.slo_us

    @property
    def heals_after_us(self) -> Micros:
        """Time after which self-heal evaluates a phase that could have started or ended."""
        return SELF_HEAL_DEFAULT if self.self_heal_us is None else self.self_heal_us

    def window_contains(self, minute: int) -> bool:
        """Return whether the window contains this minute of the day."""
        if self.window is None:
            return False
        start, end = self.window
        if start < end:
            return start <= minute < end
        return minute >= start or minute < end

    def _fill(self, given: Mapping[str, Any]) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, given.get(field.name, field.default))


def _fields_of(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields for the options, each parsed and validated on its own."""
    found = {}
    for word, value in options.items():
        if word not in _READERS:
            known = ", ".join(sorted(_READERS))
            raise DeclarationError(f"{where}: {word} is not an option; known: {known}.")
        field, read = _READERS[word]
        found[field] = read(value, word, where)
    return found


def _check(mode: Mode, where: str) -> None:
    if mode.waits and mode.max_wait_us is None:
        raise DeclarationError(
            f"{where} waits (otherwise is WAIT) but has no max_wait; set max_wait."
        )
    if mode.degraded_at is not None and mode.degraded_at > mode.proceed_at:
        raise DeclarationError(
            f"{where}: degraded_at ({mode.degraded_at:g}) is greater than "
            f"proceed_at ({mode.proceed_at:g})."
        )
    if mode.until is not None and mode.phases is not None:
        raise DeclarationError(f"{where}: set until or phases, not both.")
    if mode.recheck_us is None and mode.max_wait_us is not None:
        object.__setattr__(mode, "recheck_us", RECHECK_DEFAULT)


def check_deadline(mode: Mode, where: str) -> None:
    """Raise DeclarationError if the flow would fail while its gates may still wait."""
    deadline = mode.deadline_after_us
    if deadline is None:
        return
    words = f"the deadline ({format_duration(deadline)}"
    words += ")" if mode.deadline_us is not None else ", twice the slo)"
    if mode.max_wait_us is not None and deadline < mode.max_wait_us:
        raise DeclarationError(
            f"{where}: {words} is earlier than max_wait ({format_duration(mode.max_wait_us)}), so "
            "gates could not wait that long; set a later deadline, or shorten max_wait."
        )
    if mode.slo_us is not None and deadline < mode.slo_us:
        raise DeclarationError(
            f"{where}: {words} is earlier than the slo ({format_duration(mode.slo_us)}); "
            "set a later deadline."
        )


def _number(low: float, high: float, optional: bool = False) -> Reader:
    def read(value: Any, word: str, where: str) -> float | None:
        if value is None and optional:
            return None
        ok = isinstance(value, int | float) and not isinstance(value, bool)
        if not ok or not low <= value <= high:
            raise DeclarationError(
                f"{where}: {word} must be a number from {low:g} to {high:g}, "
                f"got {short_repr(value)}."
            )
        return float(value)

    return read


def _duration(value: Any, word: str, where: str) -> Micros:
    try:
        found = parse_duration(value, word)
    except InvalidInput as error:
        raise DeclarationError(f"{where}: {error.message}") from None
    if found <= 0:
        raise DeclarationError(
            f"{where}: {word} must be longer than zero, got {short_repr(value)}."
        )
    return found


def _window(value: Any, word: str, where: str) -> tuple[int, ...]:
    match = _WINDOW.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise DeclarationError(
            f'{where}: {word} must be two times of day such as "23:00-06:00", '
            f"got {short_repr(value)}."
        )
    start, end = (int(match[n]) * 60 + int(match[n + 1]) for n in (1, 3))
    if start == end or end > DAY_MINUTES:
        raise DeclarationError(
            f"{where}: {word} {short_repr(value)} is empty or extends past 24:00; "
            'the whole day is "00:00-24:00".'
        )
    return start, end


def _otherwise(value: Any, word: str, where: str) -> FallbackVerdict:
    try:
        return FallbackVerdict(str(value).upper())
    except ValueError:
        raise DeclarationError(
            f"{where}: {word} must be WAIT or FAIL, got {short_repr(value)}."
        ) from None


def _flag(value: Any, word: str, where: str) -> bool:
    if not isinstance(value, bool):
        raise DeclarationError(f"{where}: {word} must be True or False, got {short_repr(value)}.")
    return value


def _days(value: Any, word: str, where: str) -> int:
    if type(value) is not int or not -366 <= value <= 366:
        raise DeclarationError(
            f"{where}: {word} must be a whole number of days within a year, "
            f"got {short_repr(value)}."
        )
    return value


def _phase(value: Any, word: str, where: str) -> str:
    check_declared_name(value, "phase", f"{where}, {word}")
    return str(value)


def _phases(value: Any, word: str, where: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable) or not (found := tuple(value)):
        raise DeclarationError(f"{where}: {word} takes phase names, got {short_repr(value)}.")
    return tuple(dict.fromkeys(_phase(item, word, where) for item in found))


_READERS: Final[Mapping[str, tuple[str, Reader]]] = MappingProxyType(
    {
        "age_counts": ("age_counts", _flag),
        "alert_degraded_below": ("alert_degraded_below", _number(0, ALERT_EVERY_DEGRADED, True)),
        "alert_fail": ("alert_fail", _flag),
        "alert_wait": ("alert_wait_us", _duration),
        "deadline": ("deadline_us", _duration),
        "default": ("default", _flag),
        "degraded_at": ("degraded_at", _number(0, 100, True)),
        "max_wait": ("max_wait_us", _duration),
        "min_quality": ("min_quality", _number(0, 1)),
        "otherwise": ("otherwise", _otherwise),
        "partition_days": ("partition_days", _days),
        "phases": ("phases", _phases),
        "proceed_at": ("proceed_at", _number(0, 100)),
        "recheck": ("recheck_us", _duration),
        "self_heal": ("self_heal_us", _duration),
        "slo": ("slo_us", _duration),
        "target": ("target", _number(0, 100)),
        "until": ("until", _phase),
        "window": ("window", _window),
    }
)
"""For each option, the field that it sets and the parser of its value."""
