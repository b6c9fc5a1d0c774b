"""Isolation of items in services: one bad row, message or customer stops no other.

`interleaved` puts the first item of every owner before anybody's second.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


def interleaved(items: Iterable[T], owner: Callable[[T], Hashable]) -> list[T]:
    """Return the items round by round: the first of every owner, then the second, and so on."""
    taken: dict[Hashable, int] = {}
    ranked: list[tuple[int, int, T]] = []
    for position, item in enumerate(items):
        name = owner(item)
        rank = taken[name] = taken.get(name, -1) + 1
        ranked.append((rank, position, item))
    return [item for _, _, item in sorted(ranked, key=lambda one: one[:2])]
