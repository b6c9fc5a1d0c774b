"""Declarations of the data that a processor needs, and of the number of rows to expect.

    needs=[same_day("nba_raw.boxscores", expect=per(20, "nba_raw.schedule"), not_null=["points"]),
           historical("nba_analytics.summary", days=10, degraded_at=5),
           optional("nba_raw.odds")]

Declarations only: probes read the data, `flows.gates.evidence` assesses their observations,
`flows.gates.gate` decides. An invalid declaration raises a DeclarationError that names the mistake.
Table and column names are restricted to plain identifiers, because probes put them into SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypedDict, Unpack

from penstock.core.clock import Micros, parse_duration
from penstock.core.errors import DeclarationError, InvalidInput, short_repr
from penstock.pipelines.dependency import (
    ConsistencyCheck,
    Dependency,
    DependencyKind,
    Expect,
    ExpectKind,
    QualityWeights,
    RowCounter,
)
from penstock.pipelines.shown import warehouse_shown

__all__ = [
    "ConsistencyCheck",
    "Dependency",
    "DependencyKind",
    "Expect",
    "ExpectKind",
    "QualityWeights",
    "historical",
    "optional",
    "per",
    "produced",
    "same_day",
]

TABLE: Final = re.compile(
    r"(?:(?:[A-Za-z][A-Za-z0-9_-]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}\.)?"
    r"[A-Za-z_][A-Za-z0-9_]{0,127}",
    re.ASCII,
)
"""Names of tables: up to three parts; only the first of three, the project, may contain hyphens."""
COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
CHECK_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.,()<>=+-]{0,79}", re.ASCII)
WAREHOUSE_KINDS: Final = ("bigquery", "duckdb", "postgres", "postgresql", "sqlite")
"""Kinds of addresses for which `penstock.probes` has an adapter."""
SQL_MAX: Final = 20_000
DAYS_MAX: Final = 3_660


class DependencyOptions(TypedDict, total=False):
    """Options of every same-day and optional dependency."""

    partition: str
    """Column that holds the partition. Default: the pipeline's partition column."""
    customer_column: str
    """Column that holds the customer; only rows of the flow's customer count. Default: the
    pipeline's customer column.
    """
    shared: bool
    """Whether the rows are common to all customers, so that none are filtered out. Default False.
    """
    where: str
    """Condition on the rows, such as "region = :region"; parameters are bound. Default: none."""
    expect: int | str | RowCounter | Expect
    """Expected rows: a number, a query, a function of the partition, or `per(...)`. Default: at
    least one row.
    """
    max_age: str | int | float | timedelta
    """Maximum age; older data is stale. If not set, freshness is not checked."""
    age_column: str
    """Column with the time at which a row was written. Default: `updated_at`."""
    not_null: Iterable[str]
    """Columns that must not contain NULL."""
    checks: Mapping[str, str] | Iterable[str]
    """Queries, by name, that must return no rows."""
    quality: Mapping[str, float]
    """Weights of freshness, validity and consistency. Default: 0.4, 0.4 and 0.2."""
    modes: Iterable[str]
    """Modes in which the dependency applies. Default: every mode."""
    warehouse: str
    """Warehouse that contains the table. Default: the pipeline's warehouse."""


class SameDayOptions(DependencyOptions, total=False):
    """Additional options of a same-day dependency."""

    critical: bool
    """Whether the gate waits for the data if it is absent (the default). False: absence only lowers
    the completeness.
    """
    weight: float
    """Weight in overall completeness and quality. Default 1; 0 excludes the dependency."""
    fail_if_missing: bool
    """Whether absent data fails the gate immediately; overrides have no effect. Default False."""
    floor: float
    """Completeness in percent below which critical data counts as absent, regardless of the
    average. Default: the mode's `degraded_at`, or 50 if the mode has none.
    """


class ProducedOptions(TypedDict, total=False):
    """Options of a table that a processor produces."""

    partition: str
    """Column that holds the partition. Default: the pipeline's partition column."""
    customer_column: str
    """Column that holds the customer. Default: the pipeline's customer column."""
    shared: bool
    """Whether the rows are common to all customers. Default False."""
    where: str
    """Condition on the rows. Default: none."""
    expect: int | str | RowCounter | Expect
    """Expected rows, as for `same_day`. Default: at least one row."""
    fail_if_missing: bool
    """Whether fewer rows fail the phase. Default False: an alert and a warning in the log."""
    modes: Iterable[str]
    """Modes in which the table is checked. Default: every mode."""
    warehouse: str
    """Warehouse that contains the table. Default: the pipeline's warehouse."""


class HistoricalOptions(TypedDict, total=False):
    """Options of a historical dependency other than its numbers of days."""

    partition: str
    """Column that holds the day. Default: the pipeline's partition column."""
    customer_column: str
    """Column that holds the customer. Default: the pipeline's customer column."""
    shared: bool
    """Whether the rows are common to all customers. Default False."""
    where: str
    """Condition on the rows. Default: none."""
    fail_if_missing: bool
    """Whether a history without any day fails the gate immediately. Default False."""
    modes: Iterable[str]
    """Modes in which the dependency applies. Default: every mode."""
    warehouse: str
    """Warehouse that contains the table. Default: the pipeline's warehouse."""


class ReferenceOptions(TypedDict, total=False):
    """Options of the table that `per(...)` counts."""

    of: str
    """Column whose distinct values are counted instead of rows."""
    partition: str
    """Column that holds the partition. Default: that of the need."""
    customer_column: str
    """Column that holds the customer. Default: that of the need."""
    shared: bool
    """Whether its rows are common to all customers. Default False."""
    where: str
    """Condition on its rows. Default: none."""
    zero: str
    """Meaning of zero rows: "missing" (default) makes the dependency absent, "off_day" expects
    none.
    """


def same_day(table: str, **options: Unpack[SameDayOptions]) -> Dependency:
    """Declare a dependency on rows of the flow's own partition."""
    return _made(DependencyKind.SAME_DAY, table, options)


def optional(table: str, **options: Unpack[DependencyOptions]) -> Dependency:
    """Declare an optional dependency on rows of the partition; if absent, the run is degraded."""
    return _made(DependencyKind.OPTIONAL, table, options)


def produced(table: str, **options: Unpack[ProducedOptions]) -> Dependency:
    """Declare a table that a processor writes, and the expected rows of its partition.

    It is probed when the phase has completed. Fewer rows raise an alert; with `fail_if_missing` the
    phase fails.
    """
    unknown = sorted(set(options) - set(ProducedOptions.__annotations__))
    if unknown:
        known = ", ".join(sorted(ProducedOptions.__annotations__))
        raise DeclarationError(
            f"produced({short_repr(table)}): {unknown[0]} is not an option; known: {known}."
        )
    return _made(DependencyKind.SAME_DAY, table, options)


def historical(
    table: str,
    *,
    days: int,
    min_days: int | None = None,
    degraded_at: int | None = None,
    **options: Unpack[HistoricalOptions],
) -> Dependency:
    """Declare a dependency on data of the `days` days before the partition.

    min_days: number of days with data that is sufficient (default: `days`). degraded_at: number of
    days with which the phase may start degraded (default: `min_days`).
    """
    made = _made(DependencyKind.HISTORICAL, table, options)
    enough = days if min_days is None else min_days
    least = enough if degraded_at is None else degraded_at
    for word, number in (("days", days), ("min_days", enough), ("degraded_at", least)):
        if type(number) is not int:
            raise _mistake(made, f"{word} takes a whole number of days, got {short_repr(number)}.")
    if not 1 <= least <= enough <= days <= DAYS_MAX:
        raise _mistake(
            made,
            f"expected 1 ≤ degraded_at ≤ min_days ≤ days ≤ {DAYS_MAX}, "
            f"got {least}, {enough} and {days}.",
        )
    return replace(made, lookback_days=days, min_days=enough, degraded_days=least)


def per(n: float, table: str, **options: Unpack[ReferenceOptions]) -> Expect:
    """Expect n rows per row of `table` in the partition, or per distinct value of column `of`."""
    where = f"per({short_repr(n)}, {short_repr(table)})"
    number: object = n
    if type(number) not in (int, float) or not 0 < n < 1e12:
        raise DeclarationError(f"{where}: expected a number of rows per unit above 0.")
    _name(TABLE, table, "table", where)
    given: dict[str, Any] = {}
    for word, value in options.items():
        if word not in _REFERENCE_READERS:
            known = ", ".join(sorted(_REFERENCE_READERS))
            raise DeclarationError(f"{where}: {word} is not an option; known: {known}.")
        if value is not None:
            name, read = _REFERENCE_READERS[word]
            given[name] = read(value, word, where)
    _check_shared(given, where)
    return Expect(kind=ExpectKind.PER, each=float(n), table=table, **given)


def _made(kind: DependencyKind, table: str, options: Mapping[str, Any]) -> Dependency:
    where = f"{kind}({short_repr(table)})"
    _name(TABLE, table, "table", where)
    known = set().union(
        *(t.__annotations__ for t in (DependencyOptions, SameDayOptions, HistoricalOptions))
    )
    for word in options:
        if word not in known:
            raise DeclarationError(
                f"{where}: {word} is not an option; known: {', '.join(sorted(known))}."
            )
    allowed = {
        DependencyKind.SAME_DAY: known,
        DependencyKind.OPTIONAL: set(DependencyOptions.__annotations__),
        DependencyKind.HISTORICAL: set(HistoricalOptions.__annotations__),
    }[kind]
    for word in options:
        if word not in allowed:
            raise DeclarationError(f"{where}: {word} does not apply to {kind} dependencies.")
    given: dict[str, Any] = {
        "table": table,
        "kind": kind,
        "critical": kind is not DependencyKind.OPTIONAL,
    }
    for word, value in options.items():
        name, read = _READERS[word]
        given[name] = read(value, word, where)
    if given.get("fail_if_missing") and not given["critical"]:
        raise DeclarationError(f"{where}: fail_if_missing contradicts critical=False.")
    if given.get("floor") is not None and not given["critical"]:
        raise DeclarationError(f"{where}: floor applies to critical data only.")
    _check_shared(given, where)
    return Dependency(**given)


def _check_shared(given: Mapping[str, Any], where: str) -> None:
    if given.get("shared") and given.get("customer") is not None:
        raise DeclarationError(
            f"{where}: shared=True contradicts customer_column; rows belong to all customers or "
            "to the one in the column."
        )


def _mistake(dependency: Dependency, text: str) -> DeclarationError:
    return DeclarationError(f"{dependency.kind}({short_repr(dependency.table)}): {text}")


def _name(pattern: re.Pattern[str], value: object, what: str, where: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise DeclarationError(
            f"{where}: {short_repr(value)} is not a {what} name; use letters, digits and '_'"
            + (", with dots between project, dataset and table." if what == "table" else ".")
        )
    return value


def _column(value: object, word: str, where: str) -> str:
    return _name(COLUMN, value, "column", f"{where}, {word}")


def _flag(value: object, word: str, where: str) -> bool:
    if not isinstance(value, bool):
        raise DeclarationError(f"{where}: {word} must be True or False, got {short_repr(value)}.")
    return value


def _weight(value: object, word: str, where: str) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e6
    if not ok:
        raise DeclarationError(
            f"{where}: {word} must be a number of at least 0, got {short_repr(value)}."
        )
    return float(value)  # type: ignore[arg-type]  # a number, as checked above


def _percent(value: object, word: str, where: str) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100
    if not ok:
        raise DeclarationError(
            f"{where}: {word} must be a percentage from 0 to 100, got {short_repr(value)}."
        )
    return float(value)  # type: ignore[arg-type]  # a number, as checked above


def _zero(value: object, word: str, where: str) -> str:
    if value not in ("missing", "off_day"):
        raise DeclarationError(
            f"{where}: {word} must be 'missing' or 'off_day', got {short_repr(value)}."
        )
    return str(value)


def _age(value: Any, word: str, where: str) -> Micros:
    try:
        age = parse_duration(value, word)
    except InvalidInput as error:
        raise DeclarationError(f"{where}: {error.message}") from None
    if age <= 0:
        raise DeclarationError(f"{where}: {word} must be longer than zero.")
    return age


def _texts(value: Any, word: str, where: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DeclarationError(f"{where}: {word} takes a list, got {short_repr(value)}.")
    return tuple(value)


def _columns(value: Any, word: str, where: str) -> tuple[str, ...]:
    found = [_column(item, word, where) for item in _texts(value, word, where)]
    return tuple(dict.fromkeys(found))


def _modes(value: Any, word: str, where: str) -> frozenset[str]:
    found = _texts(value, word, where)
    if not found or not all(isinstance(item, str) for item in found):
        raise DeclarationError(f"{where}: {word} takes mode names, got {short_repr(value)}.")
    return frozenset(found)


def _sql(value: object, word: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > SQL_MAX or "\0" in value:
        raise DeclarationError(
            f"{where}: {word} takes the text of a query, got {short_repr(value)}."
        )
    return value.strip()


def _checks(value: Any, word: str, where: str) -> tuple[ConsistencyCheck, ...]:
    if isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        pairs = [(f"check {n}", sql) for n, sql in enumerate(_texts(value, word, where), 1)]
    for name, _ in pairs:
        if not isinstance(name, str) or not CHECK_NAME.fullmatch(name):
            raise DeclarationError(
                f"{where}: {short_repr(name)} is not a check name: use up to 80 letters, digits, "
                "spaces and _ . , ( ) < > = + -, with a letter or digit first."
            )
    return tuple(
        ConsistencyCheck(name=name, sql=_sql(sql, f"check {name!r}", where)) for name, sql in pairs
    )


def _expect(value: Any, word: str, where: str) -> Expect:
    if isinstance(value, Expect):
        return value
    if isinstance(value, str):
        return Expect(kind=ExpectKind.QUERY, sql=_sql(value, word, where))
    if callable(value):
        name = f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', '?')}"
        return Expect(kind=ExpectKind.CALLABLE, reference=name, body=value)
    if type(value) is int and value >= 0:
        return Expect(number=value)
    raise DeclarationError(
        f"{where}: {word} takes a number of rows, a query, a function of the partition "
        f"or per(...), got {short_repr(value)}."
    )


def _quality(value: Any, word: str, where: str) -> QualityWeights:
    parts = ("freshness", "validity", "consistency")
    if not isinstance(value, Mapping) or not value or any(key not in parts for key in value):
        raise DeclarationError(
            f"{where}: {word} takes weights of {', '.join(parts)}, got {short_repr(value)}."
        )
    given = {key: _weight(weight, f"{word}[{key!r}]", where) for key, weight in value.items()}
    return QualityWeights(**{**dict.fromkeys(parts, 0.0), **given})


def parse_warehouse(value: object, word: str, where: str) -> str:
    """Parse the name or address of a warehouse; an address needs a probe for its kind.

    Definitions are stored and shown to every caller, so an address with a password is rejected.
    """
    if isinstance(value, str) and warehouse_shown(value) != value:
        raise DeclarationError(
            f"{where}: {word} contains a password, which everyone who may read pipelines would see."
            ' Use a name, such as "sales", and configure its address in the deployment: '
            "PENSTOCK_WAREHOUSES=sales=postgresql://…"
        )
    if not isinstance(value, str) or not value.strip() or len(value) > 500:
        raise DeclarationError(f"{where}: {word} takes a name or address, got {short_repr(value)}.")
    kind, colon, _ = value.partition(":")
    if colon and kind not in WAREHOUSE_KINDS:
        raise DeclarationError(
            f"{where}: {word}: there is no probe for {short_repr(kind)}; gates can query "
            f"{', '.join(f'{known}:' for known in WAREHOUSE_KINDS)} or a name from the setting "
            "`warehouses`."
        )
    return value


_READERS: Final[Mapping[str, tuple[str, Callable[[Any, str, str], Any]]]] = {
    "age_column": ("age_column", _column),
    "checks": ("checks", _checks),
    "customer_column": ("customer", _column),
    "critical": ("critical", _flag),
    "expect": ("expect", _expect),
    "fail_if_missing": ("fail_if_missing", _flag),
    "floor": ("floor", _percent),
    "max_age": ("max_age_us", _age),
    "modes": ("modes", _modes),
    "not_null": ("not_null", _columns),
    "partition": ("partition", _column),
    "quality": ("quality", _quality),
    "shared": ("shared", _flag),
    "warehouse": ("warehouse", parse_warehouse),
    "weight": ("weight", _weight),
    "where": ("where", _sql),
}
"""For each option, the field that it sets and the parser of its value."""
_REFERENCE_READERS: Final[Mapping[str, tuple[str, Callable[[Any, str, str], Any]]]] = {
    "customer_column": ("customer", _column),
    "of": ("of", _column),
    "partition": ("partition", _column),
    "shared": ("shared", _flag),
    "where": ("where", _sql),
    "zero": ("zero", _zero),
}
"""For each option of `per`, the field that it sets and the parser of its value."""
