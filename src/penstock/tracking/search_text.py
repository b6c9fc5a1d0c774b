"""Possible meanings of a search text: id, fragment of an id, message, entity, name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from penstock.core.errors import InvalidInput
from penstock.core.ids import decode_or_none, encode

FRAGMENT_MIN: Final = 4
"""Minimum number of characters of a fragment of an id."""
NAME_MIN: Final = 2
ID_KINDS: Final = ("run", "flow", "cfg", "dl", "alert")
"""Kinds of public ids that are found."""
KINDS: Final = (
    "run",
    "flow",
    "config",
    "dead_letter",
    "alert",
    "message",
    "correlation",
    "entity",
    "customer",
    "pipeline",
    "processor",
    "topic",
    "subscription",
    "limit",
)
"""Kinds of objects in the order in which they are listed."""
_FRAGMENT = re.compile(r"(?:(run|flow|cfg|dl|alert)_)?([0-9a-hjkmnp-tv-z]{4,13})")
_ENTITY = re.compile(r"([A-Za-z0-9_.-]{1,64}):(.{1,200})")
_LIKE = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})


class SearchText(NamedTuple):
    """Possible meanings of a search text; None for those ruled out."""

    text: str
    whole: dict[str, int]
    """Numbers of whole ids, by kind of id."""
    fragment: tuple[str | None, str] | None
    """Kind of id, if given, and a part of its spelling."""
    message_id: int | None
    entity: tuple[str, str] | None
    partition: tuple[str, str] | None
    """Pipeline and partition."""

    @property
    def begins(self) -> str:
        """Pattern of names that begin with the text."""
        return f"{self.text.lower().translate(_LIKE)}%"

    @property
    def contains(self) -> str:
        """Pattern of names that contain the text."""
        return f"%{self.text.lower().translate(_LIKE)}%"


def search_text(q: str) -> SearchText:
    """Parse a text to search for; raise InvalidInput if it is too short."""
    text = q.strip()
    if len(text) < NAME_MIN and not text.isdigit():
        fix = f"A fragment of an id needs {FRAGMENT_MIN} characters."
        raise InvalidInput("q", f"at least {NAME_MIN} characters", q, fix)
    whole = {kind: n for kind in ID_KINDS if (n := decode_or_none(kind, text)) is not None}
    part = None if whole else _FRAGMENT.fullmatch(text.lower())
    entity = _ENTITY.fullmatch(text)
    words = text.split()
    is_number = text.isascii() and text.isdigit() and len(text) < 19
    return SearchText(
        text=text,
        whole=whole,
        fragment=None if part is None else (part[1], part[2]),
        message_id=int(text) if is_number else None,
        entity=None if entity is None else (entity[1], entity[2]),
        partition=(words[0], words[1]) if len(words) == 2 else None,
    )


def spelled(
    fragment: tuple[str | None, str], ids: Iterable[tuple[str, int]]
) -> dict[str, list[int]]:
    """Return the ids whose spelling contains a fragment, by kind of id, in the given order."""
    wanted, part = fragment
    found: dict[str, list[int]] = {}
    for kind, number in ids:
        if wanted in (None, kind) and part in _spelling(kind, number):
            found.setdefault(kind, []).append(number)
    return found


@lru_cache(maxsize=50_000)
def _spelling(kind: str, number: int) -> str:
    """Return an id without its kind; cached, because each keystroke compares the same ids."""
    return encode(kind, number).partition("_")[2]
