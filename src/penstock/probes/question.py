"""Building the queries that probe one dependency, and reading their rows into an observation.

One aggregate query covers as much as possible: rows, newest time, filled cells and the units of a
per-unit expectation. The user's queries (expectation, checks) follow on the same connection.
Values are bound, names are checked and quoted, and nothing here runs a query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from penstock.core.clock import Micros
from penstock.core.errors import short_repr
from penstock.flows.gates.evidence import Observation
from penstock.pipelines.dependency import (
    Dependency,
    DependencyKind,
    Expect,
    ExpectKind,
    expected_by_function,
)
from penstock.pipelines.partition import range_of
from penstock.probes.binding import bind_parameters, values_of
from penstock.probes.names import column_quoted
from penstock.probes.protocol import (
    Dialect,
    ProbeFailed,
    ProbeRequest,
    ProbeStatement,
    QueryResults,
    Scalar,
    Warehouse,
)
from penstock.probes.timestamps import days_before, parse_timestamp

DAYS_PER_STATEMENT: Final = 400
"""Maximum number of columns per result; the lowest limit among the databases is 1,664."""
ROWS_END: Final = 2**63
"""Bound of expected rows: a column of the store holds less."""
FAULTS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeQueries:
    """A dependency and the statements that probe it.

    days: the days of a historical dependency. days_by_scan: rows name the days that are present,
    instead of a flag per day.
    """

    dependency: Dependency
    statements: tuple[ProbeStatement, ...]
    days: tuple[str, ...] = ()
    days_by_scan: bool = False

    @property
    def shape(self) -> tuple[object, ...]:
        """Key that equal queries to one warehouse share; includes a counting function."""
        return (self.statements, self.days, self.dependency.expect.body)


def build_queries(
    dependency: Dependency, request: ProbeRequest, warehouse: Warehouse
) -> ProbeQueries:
    """Build the statements for a dependency; raise ProbeFailed when a name in it is invalid."""
    if dependency.kind is DependencyKind.HISTORICAL:
        return _days_question(dependency, request, warehouse)
    values = values_of(request)
    statements = [_rows_statement(dependency, request, warehouse)]
    expect = dependency.expect
    if _counts_apart(expect):
        statements.append(_units_statement(expect, request, warehouse))
    if expect.kind is ExpectKind.QUERY:
        statements.append(bind_parameters(expect.sql or "", values, warehouse.dialect, rows_max=2))
    for check in dependency.checks:
        faults = bind_parameters(_FAULTS.format(sql=_bare(check.sql)), values, warehouse.dialect)
        statements.append(faults)
    return ProbeQueries(dependency=dependency, statements=tuple(statements))


def read_observation(
    asked: ProbeQueries,
    fetched: QueryResults,
    *,
    request: ProbeRequest,
    probed_at: Micros,
    took_us: Micros,
) -> Observation:
    """Interpret the rows; calls a counting function. Raise ProbeFailed when they are invalid."""
    if asked.dependency.kind is DependencyKind.HISTORICAL:
        present = _days_present(asked, fetched)
        return Observation(
            key=asked.dependency.key,
            looked_at=probed_at,
            days_present=len(present),
            days_missing=tuple(day for day in asked.days if day not in present),
            scanned_bytes=fetched.scanned_bytes,
            took_us=took_us,
        )
    dependency = asked.dependency
    results = list(fetched.results)
    rows, newest, units, *filled = results.pop(0)[0]
    if _counts_apart(dependency.expect):
        units = results.pop(0)[0][0]
    counted = results.pop(0) if dependency.expect.kind is ExpectKind.QUERY else ()
    failed = [
        check.name for check, found in zip(dependency.checks, results, strict=True) if found[0][0]
    ]
    cells = rows * len(filled)
    return Observation(
        key=dependency.key,
        looked_at=probed_at,
        rows=rows,
        expected=_expected(dependency.expect, units, counted, request),
        units=units,
        newest_us=parse_timestamp(newest, dependency.age_column),
        not_null_share=sum(filled) / cells if cells else None,
        checks_total=len(dependency.checks),
        checks_failed=tuple(failed),
        scanned_bytes=fetched.scanned_bytes,
        took_us=took_us,
    )


# --- rows -----------------------------------------------------------------------------------------

# The user's query is on separate lines, so that a trailing comment does not hide the rest of the
# statement.
_FAULTS = (
    f"SELECT count(*) FROM (SELECT 1 AS fault FROM (\n{{sql}}\n) AS q LIMIT {FAULTS_MAX}) AS f"
)


def _rows_statement(
    dependency: Dependency, request: ProbeRequest, warehouse: Warehouse
) -> ProbeStatement:
    """Select rows, newest time, units and filled cells of the partition, in this order."""
    dialect = warehouse.dialect
    source = warehouse.from_clause(dependency.table, "source")
    values = dict(source.values)
    newest = "NULL"
    if dependency.max_age_us is not None:
        column = column_quoted(dependency.age_column, dialect)
        newest = f"CAST(max({column}) AS {dialect.text_type})"
    units = "NULL"
    if dependency.expect.kind is ExpectKind.PER and not _counts_apart(dependency.expect):
        counted = _units_statement(dependency.expect, request, warehouse)
        units = f"({counted.text})"
        values.update(counted.values)
    filled = [f"count({column_quoted(name, dialect)})" for name in dependency.not_null]
    where = _where(_conditions(dependency, request, dialect, values))
    picked = ", ".join(["count(*)", newest, units, *filled])
    return ProbeStatement(
        text=f"SELECT {picked} FROM {source.text} AS t{where}", values=tuple(values.items())
    )


def _counts_apart(expect: Expect) -> bool:
    """Whether units are counted by a separate statement.

    In a subquery, a column of the user's condition that the counted table lacks would be taken
    from the outer table.
    """
    return expect.kind is ExpectKind.PER and expect.where is not None


def _units_statement(expect: Expect, request: ProbeRequest, warehouse: Warehouse) -> ProbeStatement:
    dialect = warehouse.dialect
    source = warehouse.from_clause(expect.table or "", "units")
    values = dict(source.values)
    # A separate alias: otherwise SQLite takes columns missing from this table from the outer one.
    units = "*" if expect.of is None else f"DISTINCT {column_quoted(expect.of, dialect, 'u')}"
    where = _where(_conditions(expect, request, dialect, values, "u"))
    text = f"SELECT count({units}) FROM {source.text} AS u{where}"
    return ProbeStatement(text=text, values=tuple(values.items()))


def _conditions(
    source: Dependency | Expect,
    request: ProbeRequest,
    dialect: Dialect,
    values: dict[str, Scalar],
    alias: str = "t",
) -> list[str]:
    """Return the conditions on the rows of the flow; bound values are added to `values`."""
    found = []
    if source.partition is not None:
        column = column_quoted(source.partition, dialect, alias)
        bounds = range_of(request.partition)
        if bounds is None:
            values["partition"] = request.partition
            found.append(f"{column} = {dialect.mark('partition')}")
        else:
            values["partition_from"], values["partition_to"] = bounds
            found.append(f"{column} >= {dialect.mark('partition_from')}")
            found.append(f"{column} <= {dialect.mark('partition_to')}")
    return found + _ownership(source, request, dialect, values, alias)


def _ownership(
    source: Dependency | Expect,
    request: ProbeRequest,
    dialect: Dialect,
    values: dict[str, Scalar],
    alias: str = "t",
) -> list[str]:
    """Return the conditions other than the partition: the customer and the declared `where`."""
    found = []
    if source.customer is not None:
        values["customer"] = request.customer
        column = column_quoted(source.customer, dialect, alias)
        found.append(f"{column} = {dialect.mark('customer')}")
    if source.where is not None:
        written = bind_parameters(source.where, values_of(request), dialect)
        values.update(written.values)
        # On separate lines, so that a trailing comment does not hide the rest of the statement.
        found.append(f"(\n{written.text}\n)")
    return found


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _bare(sql: str) -> str:
    return sql.rstrip().rstrip(";")


def _expected(
    expect: Expect, units: int | None, counted: Sequence[Sequence[Any]], request: ProbeRequest
) -> int:
    if expect.kind is ExpectKind.PER:
        return expect.rows(units or 0)
    if expect.kind is ExpectKind.QUERY:
        if len(counted) != 1 or len(counted[0]) != 1:
            raise ProbeFailed("the query for the expected rows must return one row with one number")
        if counted[0][0] is None:
            raise ProbeFailed("the query for the expected rows returned NULL; return 0 for none")
        return _whole(counted[0][0], "the query for the expected rows")
    if expect.kind is ExpectKind.CALLABLE:
        if expect.body is None:
            raise ProbeFailed(f"{expect.reference} is not loaded, so the expected rows are unknown")
        return _whole(
            expected_by_function(expect.body, request.partition, request.customer),
            str(expect.reference),
        )
    return expect.number


def _whole(value: Any, what: str) -> int:
    """Return a count that user code returned, rounded up."""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number or not 0 <= value < ROWS_END:  # also NaN
        expected = f"a number of at least 0 and below {ROWS_END:,}"
        raise ProbeFailed(f"{what} must return {expected}, got {short_repr(value)}")
    rows: int = math.ceil(value)
    return rows


# --- days -----------------------------------------------------------------------------------------


def _days_question(
    dependency: Dependency, request: ProbeRequest, warehouse: Warehouse
) -> ProbeQueries:
    if dependency.partition is None:
        raise ProbeFailed(f"{dependency.table} has no partition column, so its days are unknown")
    days = days_before(request.partition, dependency.lookback_days or 0)
    source = warehouse.from_clause(dependency.table, "source")
    column = column_quoted(dependency.partition, warehouse.dialect)
    values = dict(source.values)
    more = _ownership(dependency, request, warehouse.dialect, values)
    source = replace(source, values=tuple(values.items()))
    statements = [
        _days_statement(some, source, column, more, warehouse.dialect) for some in _batches(days)
    ]
    return ProbeQueries(
        dependency=dependency,
        statements=tuple(statements),
        days=tuple(days),
        days_by_scan=warehouse.dialect.days_by_scan,
    )


def _days_statement(
    days: Sequence[str],
    source: ProbeStatement,
    column: str,
    more: Sequence[str],
    dialect: Dialect,
) -> ProbeStatement:
    """Find the days that have rows: their names by one scan, or a flag per day by one lookup."""
    named = {f"day_{n}": day for n, day in enumerate(days)}
    marks = [dialect.mark(name) for name in named]
    values = (*source.values, *named.items())
    if dialect.days_by_scan:
        day = f"CAST({column} AS {dialect.text_type})"
        where = _where([f"{column} IN ({', '.join(marks)})", *more])
        text = f"SELECT DISTINCT {day} FROM {source.text} AS t{where}"
        return ProbeStatement(text=text, values=values, rows_max=len(days))
    flags = [
        f"CASE WHEN EXISTS (SELECT 1 FROM {source.text} AS t"
        f"{_where([f'{column} = {mark}', *more])}) THEN 1 ELSE 0 END"
        for mark in marks
    ]
    return ProbeStatement(text=f"SELECT {', '.join(flags)}", values=values)


def _days_present(asked: ProbeQueries, results: QueryResults) -> set[str]:
    present: set[str] = set()
    for days, rows in zip(_batches(asked.days), results.results, strict=True):
        if asked.days_by_scan:
            present.update(str(row[0])[:10] for row in rows)
        else:
            present.update(day for day, flag in zip(days, rows[0], strict=True) if flag)
    return present


def _batches(days: Sequence[str]) -> list[Sequence[str]]:
    return [
        days[start : start + DAYS_PER_STATEMENT]
        for start in range(0, len(days), DAYS_PER_STATEMENT)
    ]
