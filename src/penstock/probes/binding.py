"""Translating a user's query with `:name` parameters into a driver statement with bound values.

The query is unchanged except for parameters outside of strings, quoted names and
comments. A parameter without a value is an error, never an empty value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from penstock.core.errors import short_repr
from penstock.core.redact import is_reference
from penstock.pipelines.query_text import QUERY_TOKEN
from penstock.probes.protocol import (
    Dialect,
    ProbeFailed,
    ProbeRequest,
    ProbeStatement,
    Row,
    Scalar,
)


def values_of(request: ProbeRequest) -> dict[str, Any]:
    """Return the values a query may use: parameters, overridden by `partition` and `customer`."""
    return {**request.parameters, "partition": request.partition, "customer": request.customer}


def bind_parameters(
    sql: str, values: Mapping[str, Any], dialect: Dialect, rows_max: int = 1
) -> ProbeStatement:
    """Return the query in the driver's syntax, with the values that it uses."""
    used: dict[str, Scalar] = {}
    parts: list[str] = []
    end = 0
    for token in QUERY_TOKEN.finditer(sql):
        parts.append(_literal(sql[end : token.start()], dialect))
        end = token.end()
        name = token["name"]
        if name is None:
            parts.append(_literal(token[0], dialect))
            continue
        used[name] = _value(name, values)
        parts.append(dialect.mark(name))
    parts.append(_literal(sql[end:], dialect))
    return ProbeStatement(
        text="".join(parts), values=tuple(sorted(used.items())), rows_max=rows_max
    )


def row_value(row: Row, columns: Sequence[str]) -> Any:
    """Return a row as one JSON value: its only column, or a mapping of its columns by name."""
    values = [_json_value(value) for value in row]
    return values[0] if len(values) == 1 else dict(zip(columns, values, strict=True))


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value) if isinstance(value, UUID) else value


def _literal(text: str, dialect: Dialect) -> str:
    return text.replace("%", dialect.literal_percent)


def _value(name: str, values: Mapping[str, Any]) -> Scalar:
    if name not in values:
        known = ", ".join(f":{name}" for name in sorted(values))
        raise ProbeFailed(f"expected a query with parameters among {known}, got :{name}")
    value = values[name]
    if is_reference(value):
        # A statement and its values may appear in the logs of the warehouse.
        raise ProbeFailed(f":{name} refers to a secret, and secrets are not bound in queries")
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ProbeFailed(f"expected a scalar value for :{name}, got {short_repr(value)}")
