"""Parquet files: rows of a CSV file with typed columns, written by DuckDB in a stream."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

TYPES: Final = {
    "time": "TIMESTAMPTZ",
    "boolean": "BOOLEAN",
    "duration": "DOUBLE",
    "number": "DOUBLE",
    "integer": "BIGINT",
}


def write_parquet(source: Path, target: Path, forms: Mapping[str, str]) -> None:
    """Write a CSV file as Parquet. `forms`: column -> form; a form without a type is text."""
    # Imported here because it is optional.
    import duckdb

    types = ", ".join(f"'{name}': '{TYPES.get(form, 'VARCHAR')}'" for name, form in forms.items())
    rows, file = (str(path).replace("'", "''") for path in (source, target))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            f"COPY (SELECT * FROM read_csv('{rows}', header = true, quote = '\"', escape = '\"', "
            f"delim = ',', auto_detect = false, columns = {{{types}}})) "
            f"TO '{file}' (FORMAT parquet, COMPRESSION zstd)"
        )
