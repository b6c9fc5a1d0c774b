"""Arrays as PostgreSQL reads them, built quickly: a batch of 500 rows is 8,500 values.

The driver's own list adaptation costs a third of a drain's Python time; columns that are all NULL
or all the same cost nothing here. An empty array is enough for a column of NULLs: `unnest` pads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def array_literal(values: Sequence[Any], kind: str) -> str:
    """The text of an array of `kind` (text, bytea, a number or boolean) holding `values`."""
    first = values[0]
    if values.count(first) == len(values):
        if first is None:
            return "{}"
        return "{" + ",".join([_item(first, kind)] * len(values)) + "}"
    if kind in ("bigint", "smallint") and None not in values:
        return "{" + ",".join(map(str, values)) + "}"
    return "{" + ",".join([_item(value, kind) for value in values]) + "}"


def text_of(value: Any, kind: str) -> Any:
    """A single value as PostgreSQL reads it: text, so that a statement has one prepared form."""
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
