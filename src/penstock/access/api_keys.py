"""API keys: how they are spelled, told apart from typos, hashed, and what their roles may do.

``pnk_7h2kq0v3_<40 characters><6 characters>`` is a prefix that secret scanners know, the key's id,
a secret of 200 bits and a checksum over all of it, so that a mistyped or cut key is refused without
a look at the store. Only the SHA-256 of the secret is kept: at that entropy nothing slower helps.
Pure: randomness comes from `core.ids`, time is given. The client mints and the API authenticates.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from penstock.core.errors import InvalidInput
from penstock.core.ids import decode, encode

PREFIX: Final = "pnk"
SECRET_CHARS: Final = 40
CHECK_CHARS: Final = 6
KEY_MAX: Final = 80
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SHAPE = re.compile(rf"{PREFIX}_([{_ALPHABET}]{{8}}|[{_ALPHABET}]{{13}})_([{_ALPHABET}]{{46}})")


class Power(StrEnum):
    """What a route asks of its caller."""

    READ_RUNS = "read_runs"
    READ = "read"
    WORK = "work"
    OPERATE = "operate"
    ADMINISTER = "administer"


class Role(StrEnum):
    """What a key is for. Workers and viewers have different powers; neither contains the other."""

    ADMIN = "admin"
    OPERATOR = "operator"
    WORKER = "worker"
    VIEWER = "viewer"

    def may(self, power: Power) -> bool:
        """Whether the role has a power."""
        return power in POWERS[self]

    def covers(self, least: Role) -> bool:
        """Whether the role may do everything that `least` may."""
        return POWERS[least] <= POWERS[self]


_WORKER = frozenset({Power.READ_RUNS, Power.WORK})
_VIEWER = frozenset({Power.READ_RUNS, Power.READ})
POWERS: Final[Mapping[Role, frozenset[Power]]] = MappingProxyType(
    {
        Role.VIEWER: _VIEWER,
        Role.WORKER: _WORKER,
        Role.OPERATOR: _VIEWER | _WORKER | {Power.OPERATE},
        Role.ADMIN: frozenset(Power),
    }
)


class KeyState(StrEnum):
    """Whether a key opens anything; a rotating one opens with its old secret as well."""

    ACTIVE = "active"
    ROTATING = "rotating"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who is calling: a key, its role, and the one customer it is bound to, if any."""

    key_id: int
    name: str
    role: Role
    customer_id: str | None = None
    rate: float | None = None

    @property
    def actor(self) -> str:
        """Who is written down for what this caller changes."""
        return f"key:{self.name}"


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """A well-formed key, taken apart; not yet known to be a real one."""

    key_id: int
    secret: str

    def __repr__(self) -> str:
        return f"ParsedKey(key_id={self.key_id}, secret=…)"


def spell(key_id: int, secret: str) -> str:
    """The key as its owner gets it, once."""
    assert len(secret) == SECRET_CHARS
    body = f"{PREFIX}_{encode('key', key_id).removeprefix('key_')}_{secret}"
    return body + _check(body)


def parse(text: object) -> ParsedKey | None:
    """A key taken apart; None when it is none, or has a typo."""
    if not isinstance(text, str) or len(text) > KEY_MAX:
        return None
    shape = _SHAPE.fullmatch(text)
    if shape is None or not hmac.compare_digest(_check(text[:-CHECK_CHARS]), text[-CHECK_CHARS:]):
        return None
    try:
        key_id = decode("key", f"key_{shape.group(1)}")
    except InvalidInput:
        return None
    return ParsedKey(key_id, shape.group(2)[:SECRET_CHARS])


def digest(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_secret_of(secret: str, stored: str | None) -> bool:
    """Whether a secret is the one stored; takes the same time however much of it is right."""
    return hmac.compare_digest(digest(secret), stored or "")


def state_of(
    now: int, *, expires_at: int | None, revoked_at: int | None, previous_until: int | None
) -> KeyState:
    """The state of a key at a time; a key expires at its moment, not after it."""
    if revoked_at is not None:
        return KeyState.REVOKED
    if expires_at is not None and now >= expires_at:
        return KeyState.EXPIRED
    if previous_until is not None and now < previous_until:
        return KeyState.ROTATING
    return KeyState.ACTIVE


def check_role(value: object) -> Role:
    """A role by its name, or InvalidInput."""
    try:
        return Role(str(value))
    except ValueError:
        raise InvalidInput("role", f"one of {', '.join(Role)}", value) from None


def _check(body: str) -> str:
    number = int.from_bytes(hashlib.sha256(body.encode()).digest()[:8], "big")
    return "".join(_ALPHABET[(number >> 5 * place) & 31] for place in range(CHECK_CHARS))
