"""Conversion of a source's values to items, each with a stable and unique key.

Pure. A text or a whole number is its own key; any other value is identified by the field that the
processor declares as `item_key`, or else by a digest of its content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.core.errors import short_repr

ITEMS_MAX: Final = 100_000
ITEM_BYTES_MAX: Final = 16 * 1024
KEY_MAX: Final = 200
FIRST_BATCH: Final = 200
"""Number of runs of a long list that the trigger's transaction creates, so that the first ones can
start immediately.
"""
BATCH: Final = 1_000
"""Maximum number of items whose runs one transaction creates."""


_ENCODER: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


class InvalidItems(ValueError):
    """The values are not a list of items; the text states what was expected and how to fix it."""


class KeyedItem(NamedTuple):
    """An item of a processor; `value` is its JSON, None if it is the text of its key."""

    key: str
    value: str | None


def item_list(values: Any, item_key: str | None, source: str) -> list[KeyedItem]:
    """Return the items of a list of values. Raise InvalidItems if the values are invalid.

    source: where the values came from, for messages.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence):
        raise InvalidItems(f"expected {source} to be a list of items, got {short_repr(values)}")
    if len(values) > ITEMS_MAX:
        raise InvalidItems(
            f"expected {source} to have at most {ITEMS_MAX:,} items, got {len(values):,}: "
            "let an item cover several, such as a page of ids"
        )
    found: dict[str, KeyedItem] = {}
    for position, value in enumerate(values):
        item = _item(value, item_key, _Where(position, source))
        if item.key in found:
            fix = "make item_key unique" if item_key else "declare item_key, or list each item once"
            raise InvalidItems(
                f"expected {source} to name every item once, got {short_repr(item.key)} twice: "
                f"{fix}"
            )
        found[item.key] = item
    return list(found.values())


class _Where:
    """The position of an item, formatted only for an error."""

    __slots__ = ("_position", "_source")

    def __init__(self, position: int, source: str) -> None:
        self._position = position
        self._source = source

    def __str__(self) -> str:
        return f"item {self._position + 1} of {self._source}"


def batches(items: Sequence[KeyedItem]) -> list[Sequence[KeyedItem]]:
    """Return the items in lists whose runs are created together; the first of several is short."""
    first = len(items) if len(items) <= BATCH // 2 else FIRST_BATCH
    rest = [items[at : at + BATCH] for at in range(first, len(items), BATCH)]
    return [items[:first], *rest]


def encoded(items: Sequence[KeyedItem]) -> str:
    """Return a list of items as the text that is stored."""
    return msgspec.json.encode(items).decode()


def decoded(text: str) -> list[KeyedItem]:
    """Return the items of a stored text."""
    return msgspec.json.decode(text, type=list[KeyedItem])


def _item(value: Any, item_key: str | None, where: object) -> KeyedItem:
    if isinstance(value, str) and item_key is None:
        # The most frequent kind: the text is the key, and there is nothing else to store.
        if len(value) > KEY_MAX or not value or not value.isprintable():
            _check_key(value, where)
        return KeyedItem(value, None)
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidItems(f"expected {where} to be a JSON value: {error}") from None
    if len(text) * 4 > ITEM_BYTES_MAX and len(text.encode("utf-8", "replace")) > ITEM_BYTES_MAX:
        raise InvalidItems(
            f"expected {where} to have at most {ITEM_BYTES_MAX:,} bytes as JSON, got "
            f"{len(text):,}: store the data elsewhere and list references to it"
        )
    if "\0" in text or "\\u0000" in text:
        raise InvalidItems(f"expected {where} to have no NUL character, got {short_repr(value)}")
    key = _key(value, text, item_key, where)
    _check_key(key, where)
    return KeyedItem(key, text)


def _check_key(key: str, where: object) -> None:
    if not 0 < len(key) <= KEY_MAX:
        raise InvalidItems(
            f"expected the key of {where} to have 1 to {KEY_MAX} characters, got {len(key)}"
        )
    if not key.isprintable():
        raise InvalidItems(f"expected the key of {where} to be printable, got {short_repr(key)}")


def _key(value: Any, text: str, item_key: str | None, where: object) -> str:
    if item_key is not None:
        if not isinstance(value, Mapping) or item_key not in value:
            raise InvalidItems(
                f"expected {where} to have the field {item_key!r} (item_key), got "
                f"{short_repr(value)}"
            )
        value = value[item_key]
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InvalidItems(
                f"expected {item_key!r} of {where} to be a string or a whole number, got "
                f"{short_repr(value)}"
            )
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
