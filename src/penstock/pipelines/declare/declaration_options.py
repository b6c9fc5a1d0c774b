"""Options of pipelines, phases and processors, parsed into validated records.

This module parses the keyword arguments of `Pipeline(...)`, `pipeline.phase(...)` and
`@phase.processor(...)`; an invalid one raises a DeclarationError that names it. Each option is
validated on its own; `pipelines.declare.validation` validates the pipeline as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypedDict

from penstock.core.clock import Duration, Micros, parse_duration
from penstock.core.errors import DeclarationError, InvalidInput, short_repr
from penstock.pipelines.declare.collect import Collect
from penstock.pipelines.declare.each import (
    Each,
    ItemFunction,
    parse_each,
    parse_item_key,
    parse_min_items,
)
from penstock.pipelines.declare.limit_needs import (
    parse_limits,
    parse_max_runs,
    parse_max_runs_by_key,
    parse_weights,
)
from penstock.pipelines.declare.needs import COLUMN, TABLE, parse_warehouse
from penstock.pipelines.declare.terms import PhaseSettings, PipelineSettings, ProcessorSettings
from penstock.pipelines.dependency import Dependency
from penstock.pipelines.mode import Mode
from penstock.pipelines.modes import Leniency, resolve_modes
from penstock.pipelines.partition import (
    DAY_RULE,
    DeclaredPartition,
    day,
    hour,
    month,
    text,
    week,
)

Reader: TypeAlias = Callable[[Any, str, str], Any]
PartitionDeclarer: TypeAlias = Callable[[], DeclaredPartition]

EVERY_MODE: Final = "*"
"""Key of the fallback time that applies in every mode."""

_ENTITY = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


class PipelineOptions(TypedDict, total=False):
    """Options of a pipeline: its data, its modes and its cascade."""

    partition: str | DeclaredPartition | PartitionDeclarer
    """Form of the partitions: day("column"), hour(...), week(...), month(...) or text(...). The
    column holds the partition, for every dependency that does not name its own; a plain column name
    means day(column), except the names of the other forms. Default: none; the partition of a
    scheduled flow is then its scheduled time.
    """
    warehouse: str
    """Warehouse that gates probe: an address such as "duckdb:season.duckdb", or a configured name.
    """
    customer_column: str
    """Column that holds the customer, for every dependency that does not name its own or is shared.
    """
    modes: Iterable[Mode]
    """Modes of the pipeline. Default: daily, manual and backfill. If you declare modes, manual and
    backfill are added unless they are among them, and daily if no other mode is the default.
    """
    leniency: str
    """Mode whose thresholds gates use: "auto" (default) is the flow's mode; "strict" and "lenient"
    are the modes overnight and same_day of `game_day_modes`, in every mode.
    """
    cascade: str
    """"active" (default), or "observe": record decisions, but let schedules start the runs."""
    slos: Mapping[str, Duration]
    """Time that a flow should take from start to end, by mode."""
    fallback: str | Mapping[str, str]
    """Time of day, or one per mode, at which the scheduler starts phases not yet started."""
    freshness: Mapping[str, Duration | tuple[Duration, str]]
    """Maximum age by table, checked whether or not a flow runs. A pair also names the column that
    holds the time of a row, if it is not `updated_at`.
    """


class PhaseOptions(TypedDict, total=False):
    """Options of a phase: timing, gates and expected processors."""

    slo: Duration
    """Time that the phase should take."""
    stragglers: Duration
    """Time after its start at which later phases stop waiting for its missing processors."""
    on: str
    """"set" (default): one gate for the phase; "each": one gate per processor, at each event."""
    on_late_data: str
    """Reaction to late data: "ignore" (default), or "rerun" in a new generation, at most 3 times.
    """
    expects: Mapping[str, Iterable[str]]
    """Expected processors by mode. An unlisted mode expects all processors that run in it."""
    fallback: str | Mapping[str, str]
    """Time of day, or one per mode, at which the scheduler starts this phase if not yet started."""


class ProcessorOptions(TypedDict, total=False):
    """Options of a processor: its data and its limits."""

    needs: Iterable[Dependency]
    """Data that its gate requires: same_day(...), historical(...), optional(...)."""
    modes: Iterable[str]
    """Modes in which it runs. Default: every mode."""
    produces: str | Dependency | Iterable[str | Dependency]
    """Tables that it writes; those given as produced(...) are probed when the phase completes."""
    limits: Iterable[str] | Mapping[str, int]
    """Limits that its runs hold, such as "bq:{table}"; a mapping sets the weight of each."""
    concurrency: int
    """Maximum number of its runs at a time, across all workers."""
    per_customer: int
    """Maximum number of its runs at a time per customer."""
    per_key: str | Mapping[str, int]
    """Key such as "{team}" for which one run at a time is allowed, or maximum numbers by key."""
    expires_after: Duration
    """Time after which a due run that was not started ends in state EXPIRED. Default: never. A
    config or a submission may set its own."""
    collect: Collect
    """Pass several runs to one call: Collect(max=30, wait="5s")."""
    entities: Iterable[str]
    """Kinds of entities whose changes it reports, such as "players"."""
    each: Each | str | ItemFunction
    """Items for which it has one run each: upstream("list_games"), a query with one row per item,
    or a function of the flow. Default: a single run.
    """
    item_key: str
    """Field of the items that identifies them. Default: the item itself if it is a string or a
    number, otherwise its content.
    """
    min_items: float
    """Share of the items that must succeed; with fewer, the processor fails. Default: 1."""
    incremental: bool | Iterable[str]
    """Receive only what changed since its last success (`run.changed`): True, or kinds of entities
    that processors of earlier phases report.
    """
    incremental_per: str
    """Whether it receives changes of all partitions, "pipeline" (default), or only of its own,
    "partition".
    """


def parse_pipeline_options(options: Mapping[str, Any], where: str) -> PipelineSettings:
    """Parse the options of `Pipeline(...)`."""
    found = _read(options, _PIPELINE, where)
    declared = found.pop("partition", None)
    if declared is not None:
        is_plain = declared.column is not None and declared.rule == DAY_RULE
        found["partition"] = declared.column
        found["partition_rule"] = None if is_plain else declared.rule
    try:
        modes = resolve_modes(found.pop("modes", ()))
    except DeclarationError as error:
        raise DeclarationError(f"{where}: {error.message}") from None
    return PipelineSettings(**found, modes=modes)


def parse_phase_options(options: Mapping[str, Any], where: str) -> PhaseSettings:
    """Parse the options of `pipeline.phase(...)`."""
    return PhaseSettings(**_read(options, _PHASE, where))


def parse_processor_options(options: Mapping[str, Any], where: str) -> ProcessorSettings:
    """Parse the options of `@phase.processor(...)`."""
    found = _read(options, _PROCESSOR, where)
    weights = parse_weights(options.get("limits"), "limits", where)
    if "incremental_per" in found and found.get("incremental") is None:
        raise DeclarationError(f"{where}: incremental_per needs incremental=True or kinds.")
    given = options.get("produces")
    listed = [given] if isinstance(given, Dependency) else given
    outputs = () if listed is None or isinstance(listed, str) else tuple(listed)
    checked = tuple(one for one in outputs if isinstance(one, Dependency))
    for word in ("item_key", "min_items"):
        if word in found and "each" not in found:
            raise DeclarationError(f"{where}: {word} applies to items; declare each=... as well.")
    return ProcessorSettings(**found, weights=weights, outputs=checked)


def _read(
    options: Mapping[str, Any], readers: Mapping[str, tuple[str, Reader]], where: str
) -> dict[str, Any]:
    found = {}
    for word, value in options.items():
        if word not in readers:
            known = ", ".join(sorted(readers))
            # Raise the error that Python raises for unknown keyword arguments.
            raise TypeError(f"{where}: {word!r} is not an option; known: {known}")
        if value is not None:
            field, read = readers[word]
            found[field] = read(value, word, where)
    return found


def _one_of(*words: str) -> Reader:
    def read(value: Any, word: str, where: str) -> str:
        if value not in words:
            known = " or ".join(repr(known) for known in words)
            raise DeclarationError(f"{where}: {word} must be {known}, got {short_repr(value)}.")
        return str(value)

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


def _list(value: Any, word: str, where: str) -> list[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise DeclarationError(f"{where}: {word} takes a list, got {short_repr(value)}.")
    return list(value)


def _matching(pattern: re.Pattern[str], what: str, single: bool = False) -> Reader:
    def read(value: Any, word: str, where: str) -> tuple[str, ...]:
        given = [value] if single and isinstance(value, str) else _list(value, word, where)
        for item in given:
            if not isinstance(item, str) or not pattern.fullmatch(item):
                raise DeclarationError(f"{where}: {word}: {short_repr(item)} is not {what}.")
        return tuple(dict.fromkeys(given))

    return read


def _column(value: Any, word: str, where: str) -> str:
    if not isinstance(value, str) or not COLUMN.fullmatch(value):
        raise DeclarationError(f"{where}: {word}: {short_repr(value)} is not a column name.")
    return value


_FORMS: Final[Mapping[str, str]] = {
    "hour": "hour", "hourly": "hour", "week": "week", "weekly": "week",
    "month": "month", "monthly": "month",
}  # fmt: skip
"""Texts that name a form of partitions, not of days: as a column name they are a mistake."""


def _partition(value: Any, word: str, where: str) -> DeclaredPartition:
    if isinstance(value, str):
        form = _FORMS.get(value.lower())
        if form is not None:
            raise DeclarationError(
                f"{where}: {word}: expected day(...), hour(...), week(...), month(...), text(...) "
                f"or the name of a column with days, got {value!r}. For partitions by {form} "
                f'write partition={form}("column"); for days in a column of this name, '
                f'partition=day("{value}").'
            )
        value = day(value)
    elif value in (day, hour, week, month, text):
        value = value()
    if not isinstance(value, DeclaredPartition):
        raise DeclarationError(
            f"{where}: {word} must be day(...), hour(...), week(...), month(...), text(...) or a "
            f"column name, got {short_repr(value)}."
        )
    if value.column is not None:
        _column(value.column, word, where)
    return value


def _modes(value: Any, word: str, where: str) -> tuple[Mode, ...]:
    found = _list(value, word, where)
    for item in found:
        if not isinstance(item, Mode):
            raise DeclarationError(
                f"{where}: {word} takes Mode(...) records, got {short_repr(item)}."
            )
    return tuple(found)


def _mode_names(value: Any, word: str, where: str) -> frozenset[str]:
    found = _list(value, word, where)
    if not found or not all(isinstance(item, str) for item in found):
        raise DeclarationError(f"{where}: {word} takes mode names, got {short_repr(value)}.")
    return frozenset(found)


def _slos(value: Any, word: str, where: str) -> dict[str, Micros]:
    if not isinstance(value, Mapping):
        raise DeclarationError(f"{where}: {word} takes durations by mode, got {short_repr(value)}.")
    return {str(m): _duration(given, f"{word}[{m!r}]", where) for m, given in value.items()}


def _expects(value: Any, word: str, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise DeclarationError(
            f"{where}: {word} takes processors by mode, got {short_repr(value)}."
        )
    found = {}
    for mode, names in value.items():
        given = _list(names, f"{word}[{mode!r}]", where)
        found[str(mode)] = tuple(dict.fromkeys(_processor_name(n, word, where) for n in given))
    return found


def _processor_name(value: Any, word: str, where: str) -> str:
    # Decorators return the function unchanged, so a processor may be given by function or by name.
    name = value if isinstance(value, str) else getattr(value, "__name__", None)
    name = name if name is not None else getattr(value, "name", None)
    if not isinstance(name, str):
        raise DeclarationError(f"{where}: {word} takes processor names, got {short_repr(value)}.")
    return name


def _fallback(value: Any, word: str, where: str) -> dict[str, int]:
    given = {EVERY_MODE: value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise DeclarationError(f"{where}: {word} takes a time of day, got {short_repr(value)}.")
    found = {}
    for mode, at in given.items():
        match = _TIME.fullmatch(at) if isinstance(at, str) else None
        if match is None:
            raise DeclarationError(
                f'{where}: {word} must be a time of day such as "06:30", got {short_repr(at)}.'
            )
        found[str(mode)] = int(match[1]) * 60 + int(match[2])
    return found


def _freshness(value: Any, word: str, where: str) -> dict[str, tuple[Micros, str]]:
    if not isinstance(value, Mapping):
        raise DeclarationError(
            f"{where}: {word} takes maximum ages by table, got {short_repr(value)}."
        )
    _matching(TABLE, "a table name")(list(value), word, where)
    found = {}
    for table, given in value.items():
        age, column = given if isinstance(given, tuple) else (given, "updated_at")
        about = f"{word}[{table!r}]"
        found[table] = (_duration(age, about, where), _column(column, about, where))
    return found


def _needs(value: Any, word: str, where: str) -> tuple[Dependency, ...]:
    found = _list(value, word, where)
    for item in found:
        if not isinstance(item, Dependency):
            raise DeclarationError(
                f"{where}: {word} takes same_day(...), historical(...) and optional(...), "
                f"got {short_repr(item)}."
            )
    return tuple(found)


def _produces(value: Any, word: str, where: str) -> tuple[str, ...]:
    given = [value] if isinstance(value, str | Dependency) else _list(value, word, where)
    names = [one.table if isinstance(one, Dependency) else one for one in given]
    found: tuple[str, ...] = _matching(TABLE, "a table name")(names, word, where)
    return found


def _collect(value: Any, word: str, where: str) -> Collect:
    if not isinstance(value, Collect):
        raise DeclarationError(
            f'{where}: {word} takes Collect(max=30, wait="5s"), got {short_repr(value)}.'
        )
    return value


def _incremental(value: Any, word: str, where: str) -> tuple[str, ...] | None:
    if isinstance(value, bool):
        return () if value else None
    kinds = _matching(_ENTITY, "a kind of entity such as 'players'")(value, word, where)
    if not kinds:
        raise DeclarationError(f"{where}: {word} takes True or a list of kinds, got an empty list.")
    return tuple(kinds)


def _leniency(value: Any, word: str, where: str) -> str:
    return str(_one_of(*(str(item) for item in Leniency))(value, word, where))


_PIPELINE: Final[Mapping[str, tuple[str, Reader]]] = MappingProxyType(
    {
        "cascade": ("cascade", _one_of("active", "observe")),
        "customer_column": ("customer_column", _column),
        "fallback": ("fallback", _fallback),
        "freshness": ("freshness", _freshness),
        "leniency": ("leniency", _leniency),
        "modes": ("modes", _modes),
        "partition": ("partition", _partition),
        "slos": ("slos", _slos),
        "warehouse": ("warehouse", parse_warehouse),
    }
)
_PHASE: Final[Mapping[str, tuple[str, Reader]]] = MappingProxyType(
    {
        "expects": ("expects", _expects),
        "fallback": ("fallback", _fallback),
        "on": ("on", _one_of("set", "each")),
        "on_late_data": ("on_late_data", _one_of("rerun", "ignore")),
        "slo": ("slo_us", _duration),
        "stragglers": ("stragglers_us", _duration),
    }
)
_PROCESSOR: Final[Mapping[str, tuple[str, Reader]]] = MappingProxyType(
    {
        "collect": ("collect", _collect),
        "concurrency": ("concurrency", parse_max_runs),
        "each": ("each", parse_each),
        "expires_after": ("expires_us", _duration),
        "entities": ("entities", _matching(_ENTITY, "a kind of entity such as 'players'")),
        "incremental": ("incremental", _incremental),
        "incremental_per": ("incremental_per", _one_of("pipeline", "partition")),
        "item_key": ("item_key", parse_item_key),
        "limits": ("limits", parse_limits),
        "min_items": ("min_items", parse_min_items),
        "modes": ("modes", _mode_names),
        "needs": ("needs", _needs),
        "per_customer": ("per_customer", parse_max_runs),
        "per_key": ("per_key", parse_max_runs_by_key),
        "produces": ("produces", _produces),
    }
)
