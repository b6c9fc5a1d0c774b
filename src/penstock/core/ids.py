"""Public ids: an opaque, reversible encoding of the store's bigint ids, and random identifiers.

``run_7h2kq0v3`` is a kind, an underscore and Crockford base32 of a keyed permutation: 8 characters
for ids below 2**40, 13 above. The permutation hides order and counts from casual readers; it is not
a secret and authorises nothing. The constants must never change: ids appear in logs and links.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from penstock.core.errors import InvalidInput, NotFound

RandomBytes: TypeAlias = Callable[[int], bytes]

KINDS: Final = frozenset(
    {
        "run",
        "cfg",
        "flow",
        "alert",
        "dl",
        "ses",
        "evt",
        "audit",
        "key",
        "ovr",
        "int",
        "dec",
        "lease",
        "bf",
        "sil",
        "notice",
    }
)
ID_MAX: Final = 2**63 - 1

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUE = {char: value for value, char in enumerate(_ALPHABET)}
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_SHORT_LIMIT = 2**40
_SHORT_CHARS, _SHORT_HALF = 8, 20
_LONG_CHARS, _LONG_HALF = 13, 32
_MULTIPLIER = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1


def encode(kind: str, n: int) -> str:
    """Return the public id, such as `run_7h2kq0v3`, of a database id."""
    assert 0 <= n <= ID_MAX, n
    if n < _SHORT_LIMIT:
        return f"{kind}_{_spell(_scramble(n, _SHORT_HALF, _keys(kind)), _SHORT_CHARS)}"
    return f"{kind}_{_spell(_scramble(n, _LONG_HALF, _keys(kind)), _LONG_CHARS)}"


def decode(kind: str, text: object, field: str | None = None) -> int:
    """Return the database id of a public id. Raise InvalidInput if it is not an id of that kind."""
    field = field or f"{kind}_id"
    expected = f'an id such as "{encode(kind, 1)}"'
    if not isinstance(text, str) or len(text) > 64:
        raise InvalidInput(field, expected, text)
    prefix, _, body = text.lower().partition("_")
    if prefix != kind:
        raise InvalidInput(field, expected, text, _other_kind(prefix))
    keys = _keys(kind)
    number = _read(body)
    if number is not None and len(body) == _SHORT_CHARS:
        return _unscramble(number, _SHORT_HALF, keys)
    if number is not None and len(body) == _LONG_CHARS and number <= _WORD:
        n = _unscramble(number, _LONG_HALF, keys)
        if _SHORT_LIMIT <= n <= ID_MAX:
            return n
    raise InvalidInput(field, expected, text)


def decode_or_not_found(kind: str, name: str, text: str) -> int:
    """Return the database id of a public id; raise NotFound for a `name` if the id is malformed."""
    try:
        return decode(kind, text)
    except InvalidInput:
        raise NotFound(name, text) from None


def decode_or_none(kind: str, text: object) -> int | None:
    """Return the database id of a public id; None if it is not an id of that kind."""
    try:
        return decode(kind, text)
    except InvalidInput:
        return None


def new_correlation_id(random_bytes: RandomBytes = secrets.token_bytes) -> str:
    """Return a new correlation id: 128 random bits in 26 characters."""
    return _spell(int.from_bytes(random_bytes(16), "big"), 26)


def new_boot_id(random_bytes: RandomBytes = secrets.token_bytes) -> str:
    """Return a new id for one start of a process: 128 random bits in 26 characters."""
    return _spell(int.from_bytes(random_bytes(16), "big"), 26)


def new_secret(random_bytes: RandomBytes = secrets.token_bytes) -> str:
    """Return a new secret: 200 random bits in 40 characters."""
    return _spell(int.from_bytes(random_bytes(25), "big"), 40)


def stable_fraction(key: int | str) -> float:
    """Return a number in [0, 1) that depends only on the key, for stable jitter."""
    digest = hashlib.blake2b(f"{type(key).__name__}:{key}".encode(), digest_size=8).digest()
    return float((int.from_bytes(digest, "big") >> 11) / 2**53)


@lru_cache(maxsize=32)
def _keys(kind: str) -> tuple[int, ...]:
    """Return the Feistel round keys of a kind; they differ by kind, so that the ids of run 1 and
    config 1 look unrelated.
    """
    assert kind in KINDS, kind
    digest = hashlib.blake2b(kind.encode(), digest_size=32, person=b"penstock-ids").digest()
    return tuple(int.from_bytes(digest[i : i + 8], "big") for i in range(0, 32, 8))


def _other_kind(prefix: str) -> str | None:
    return f"This is the id of another kind of resource ({prefix})." if prefix in KINDS else None


def _scramble(n: int, half: int, keys: tuple[int, ...]) -> int:
    """Permute a number of 2·half bits with a Feistel network, which is reversible for any round
    function.
    """
    mask, shift = (1 << half) - 1, 64 - half
    left, right = n >> half, n & mask
    for key in keys:
        left, right = right, left ^ ((((right ^ key) * _MULTIPLIER) & _WORD) >> shift)
    return (left << half) | right


def _unscramble(n: int, half: int, keys: tuple[int, ...]) -> int:
    mask, shift = (1 << half) - 1, 64 - half
    left, right = n >> half, n & mask
    for key in reversed(keys):
        left, right = right ^ ((((left ^ key) * _MULTIPLIER) & _WORD) >> shift), left
    return (left << half) | right


def _spell(n: int, chars: int) -> str:
    if chars == _SHORT_CHARS:  # the common case; a bulk submit encodes thousands of ids
        high, low = n >> 20, n & 0xFFFFF
        return f"{_PAIRS[high >> 10]}{_PAIRS[high & 1023]}{_PAIRS[low >> 10]}{_PAIRS[low & 1023]}"
    out = []
    for _ in range(chars):
        out.append(_ALPHABET[n & 31])
        n >>= 5
    return "".join(reversed(out))


def _read(text: str) -> int | None:
    n = 0
    for char in text:
        value = _VALUE.get(char)
        if value is None:
            return None
        n = n << 5 | value
    return n
