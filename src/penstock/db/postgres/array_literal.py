"""Fast array literals for PostgreSQL: a batch of 500 rows is 8,500 values.

The driver's own list adaptation takes a third of the Python time of draining a queue. Columns that
are all NULL or all equal cost nothing here. A column of NULLs is an empty array: `unnest` pads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def array_literal(values: Sequence[Any], kind: str) -> str:
    """Return the text of an array of `kind` (text, bytea, numeric or boolean) with these values."""
    first = values[0]
    if values.count(first) == len(values):
        if first is None:
            return "{}"
        return "{" + ",".join([_item(first, kind)] * len(values)) + "}"
    if kind in ("bigint", "smallint") and None not in values:
        return "{" + ",".join(map(str, values)) + "}"
    return "{" + ",".join([_item(value, kind) for value in values]) + "}"


def text_of(value: Any, kind: str) -> Any:
    """Return a single value as PostgreSQL text, so that a statement has one prepared form."""
    if value is None or kind == "bytea":
        return value
    if kind == "boolean":
        return "t" if value else "f"
    return str(value)


def _item(value: Any, kind: str) -> str:
    if value is None:
        return "NULL"
    if kind == "text":
        text = str(value)
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if kind == "bytea":
        return f'"\\\\x{value.hex()}"'
    if kind == "boolean":
        return "t" if value else "f"
    return str(value)
