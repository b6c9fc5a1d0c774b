"""Read lists of the API page by page, for commands over a URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.cli.backends.protocol import Shape

PAGE = 1_000


def read_pages(ask: Callable[..., Any], limit: int, query: Mapping[str, Any]) -> list[Shape]:
    """Return the first `limit` items of a list, following its cursors."""
    found: list[Shape] = []
    cursor = None
    while True:
        page = ask(limit=min(PAGE, limit - len(found)), cursor=cursor, **query)
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None or len(found) >= limit:
            return found
