"""Pages of lists: signed cursors that are valid for one list, its filters and its customer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

from penstock.access.store.names import NameResolver, check_limit
from penstock.core import cursor as cursors
from penstock.core.records.record import Meta, Page

__all__ = ["Cursor", "Offset", "PageLimit", "paged", "paged_part"]

Row = TypeVar("Row")
Item = TypeVar("Item")

LIMIT_MAX = 1_000
OFFSET_MAX = 9_000

PageLimit = Annotated[
    int, Meta(description="Maximum number of rows to return.", ge=1, le=LIMIT_MAX)
]
Cursor = Annotated[
    str | None,
    Meta(description="`next_cursor` of the previous page; the first page when omitted."),
]


Offset = Annotated[
    int,
    Meta(description="Number of rows to skip; use a cursor for deep pages.", ge=0, le=OFFSET_MAX),
]


def paged(
    names: NameResolver,
    what: str,
    read: Callable[[list[Any] | None], Sequence[Row]],
    *,
    cursor: str | None,
    limit: int,
    position: Callable[[Row], Sequence[Any]],
    record: Callable[[Row], Item],
    filters: Mapping[str, Any] | None = None,
) -> Page[Item]:
    """Return one page of the list `what`.

    `read` returns at most `limit` rows after a position; `position` returns the position of a row.
    A cursor of another list, of other filters or of another customer raises InvalidInput.
    """
    check_limit(limit)

    def bounded(after: list[Any] | None) -> tuple[Sequence[Item], Sequence[Any] | None]:
        rows = read(after)
        following = position(rows[-1]) if len(rows) >= limit else None
        return [record(row) for row in rows], following

    return paged_part(names, what, bounded, cursor=cursor, filters=filters)


def paged_part(
    names: NameResolver,
    what: str,
    read: Callable[[list[Any] | None], tuple[Sequence[Item], Sequence[Any] | None]],
    *,
    cursor: str | None,
    filters: Mapping[str, Any] | None = None,
) -> Page[Item]:
    """Return one page of a list whose next position is given separately, even after few rows."""
    question = {
        "list": what,
        "for": names.customer_id,
        "filters": {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in (filters or {}).items()
            if value is not None
        },
    }
    after = None
    if cursor is not None:
        after = cursors.verify_cursor(names.cursor_secret(), question, cursor)
    items, position = read(after)
    following = None
    if position is not None:
        following = cursors.sign_cursor(names.cursor_secret(), question, position)
    return Page(items=list(items), next_cursor=following)
