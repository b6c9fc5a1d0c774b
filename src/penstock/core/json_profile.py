"""The JSON profile for all input: rejects documents that some database or JSON parser would reject.

Pure. UTF-8 without a byte order mark; no NaN or infinities; no NUL characters; no lone surrogates;
no two names in an object that are equal after NFC normalization; integers of at most 64 bits;
bounded depth and numbers of names, objects and lists. Violations raise InvalidInput with the
location, and never quote a value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final
from unicodedata import is_normalized, normalize

from penstock.core.errors import InvalidInput

DEPTH_MAX: Final = 64
NAMES_MAX: Final = 100_000
DIGITS_MAX: Final = 40
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_SURROGATE = re.compile("[\ud800-\udfff]")
# Skips a string in one step, even an unterminated one: bodies may contain megabytes of base64.
_TEXT_OR_MARK = re.compile(rb'"(?:[^"\\]|\\.)*+\\?(?:"|\Z)|[\[\]{}:]', re.DOTALL)


def parse_json(body: bytes, field: str = "body", *, names_max: int = NAMES_MAX) -> Any:
    """Parse a JSON document. Raise InvalidInput if it violates the profile."""
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise InvalidInput(field, "UTF-8 without a byte order mark", "a byte order mark")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(field, "UTF-8 text", f"an invalid byte at {error.start}") from None
    _check_nesting(body, field, names_max)
    reader = _Reader(field, names_max)
    try:
        value = json.loads(
            text,
            object_pairs_hook=reader.pairs,
            parse_constant=reader.constant,
            parse_float=reader.number,
            parse_int=reader.whole,
        )
    except json.JSONDecodeError as error:
        location = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput(field, "a JSON document", f"{error.msg} at {location}") from None
    except RecursionError:
        raise InvalidInput(field, f"at most {DEPTH_MAX} levels", "more") from None
    _check_texts(value, field)
    return value


class _Reader:
    """Callbacks of the parser for objects and numbers."""

    def __init__(self, field: str, names_max: int) -> None:
        self._field = field
        self._names_max = names_max
        self._names = 0

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return an object. Reject duplicate names, even if only equal after normalization."""
        self._names += len(pairs)
        if self._names > self._names_max:
            raise InvalidInput(self._field, f"at most {self._names_max} names", "more")
        made = dict(pairs)
        distinct = len(made)
        if not all(is_normalized("NFC", name) for name in made):
            distinct = len({normalize("NFC", name) for name in made})
        if distinct < len(pairs):
            raise InvalidInput(self._field, "unique names in each object", "a duplicate name")
        return made

    def constant(self, name: str) -> Any:
        """Reject NaN, Infinity and -Infinity, which are not JSON."""
        raise InvalidInput(self._field, "finite numbers", name)

    def number(self, text: str) -> float:
        """Parse a number with a fraction or an exponent."""
        value = float(text)
        if not math.isfinite(value):
            raise InvalidInput(self._field, "finite numbers", text[:DIGITS_MAX])
        return value

    def whole(self, text: str) -> int:
        """Parse an integer; it must fit into 64 bits."""
        if len(text) > DIGITS_MAX or not INT_MIN <= int(text) <= INT_MAX:
            raise InvalidInput(
                self._field, "whole numbers of at most 64 bits", f"a number of {len(text)} digits"
            )
        return int(text)


def _check_nesting(body: bytes, field: str, most: int) -> None:
    """Reject documents with too many levels or parts, before any value is built."""
    if body.count(b"[") + body.count(b"{") <= DEPTH_MAX and body.count(b":") <= most:
        return
    depth = count = names = 0
    for found in _TEXT_OR_MARK.finditer(body):
        mark = body[found.start()]
        if mark in b"[{":
            depth += 1
            count += 1
            if depth > DEPTH_MAX:
                raise InvalidInput(field, f"at most {DEPTH_MAX} levels", "more")
            if count > most:
                raise InvalidInput(field, f"at most {most} objects and lists", "more")
        elif mark in b"]}":
            depth -= 1
        elif mark in b":":
            names += 1
            if names > most:
                raise InvalidInput(field, f"at most {most} names", "more")


def _check_texts(value: Any, field: str) -> None:
    for text, location in _texts(value, field):
        if "\x00" in text:
            raise InvalidInput(location[:200], "text without NUL characters", "a NUL character")
        if not text.isascii() and _SURROGATE.search(text):
            raise InvalidInput(location[:200], "text without lone surrogates", "a lone surrogate")


def _texts(value: Any, location: str) -> Iterator[tuple[str, str]]:
    """Yield every string of a document with its location."""
    if isinstance(value, str):
        yield value, location
    elif isinstance(value, dict):
        for name, part in value.items():
            yield name, location
            if isinstance(part, str | dict | list):
                yield from _texts(part, f"{location}.{name}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            if isinstance(part, str | dict | list):
                yield from _texts(part, f"{location}[{index}]")
