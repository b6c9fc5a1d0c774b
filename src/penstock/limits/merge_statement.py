"""The MERGE of staged rows into a BigQuery table: keeps the newest row per key. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from penstock.core.errors import InvalidInput

ORDER: Final = "_penstock_order"
"""Column of a staging table with the position of a row in the input."""
_COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,299}", re.ASCII)


def merge_statement(
    target: str,
    staging: str,
    columns: Sequence[str],
    *,
    key: Sequence[str],
    version: str | None = None,
) -> str:
    """Return the MERGE statement.

    Of staged rows with the same key, the one with the newest version is used, else the last. A
    stored row is replaced unless its version is newer, so that repeating the statement changes
    nothing.
    """
    for name in columns:
        if not _COLUMN.fullmatch(name):
            raise InvalidInput("rows", "columns of letters, digits and underscores", name)
    missing = [name for name in (*key, *filter(None, [version])) if name not in columns]
    if not key or missing:
        raise InvalidInput("key", f"columns among {', '.join(columns)}", missing or "none")
    newest = f"`{version}` DESC, " if version else ""
    others = [name for name in columns if name not in key]
    matched = ""
    if others:
        guard = f" AND (t.`{version}` IS NULL OR s.`{version}` >= t.`{version}`)" if version else ""
        sets = ", ".join(f"`{name}` = s.`{name}`" for name in others)
        matched = f"WHEN MATCHED{guard} THEN UPDATE SET {sets}\n"
    return (
        f"MERGE `{target}` AS t USING (\n"
        f"  SELECT * FROM `{staging}` WHERE true QUALIFY row_number() OVER (\n"
        f"    PARTITION BY {_listed(key)} ORDER BY {newest}`{ORDER}` DESC) = 1\n"
        f") AS s ON {' AND '.join(f't.`{name}` = s.`{name}`' for name in key)}\n"
        f"{matched}"
        f"WHEN NOT MATCHED THEN INSERT ({_listed(columns)}) "
        f"VALUES ({', '.join(f's.`{name}`' for name in columns)})"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
