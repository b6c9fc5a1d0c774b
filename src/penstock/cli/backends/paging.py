"""Lists of the API, page after page, for commands over a URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.cli.backends.protocol import Shape

PAGE = 1_000


def gather(ask: Callable[..., Any], limit: int, query: Mapping[str, Any]) -> list[Shape]:
    """The first `limit` things of a list, page after page."""
    found: list[Shape] = []
    cursor = None
    while True:
        page = ask(limit=min(PAGE, limit - len(found)), cursor=cursor, **query)
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None or len(found) >= limit:
            return found
