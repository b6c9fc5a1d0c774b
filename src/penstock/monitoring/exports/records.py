"""Records of exports."""

from __future__ import annotations

from penstock.core.records.record import Record

__all__ = ["ExportPage"]


class ExportPage(Record):
    """Column names and rows of one page of an export."""

    columns: list[str]
    """Names of the columns; a new version may append further ones."""
    rows: list[list[str | int | float | bool | None]]
    """Values in the order of the columns; times are ISO 8601, ids as elsewhere in the API."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""
