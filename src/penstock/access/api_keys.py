"""API keys: their format, checksum and hash, and the permissions of roles.

``pnk_7h2kq0v3_<40 characters><6 characters>`` is a prefix that secret scanners recognise, the key's
id, a secret of 200 bits and a checksum over all of it, so that a mistyped or truncated key is
rejected without a database query. Only the SHA-256 of the secret is stored: at that entropy, a
slower hash adds no security. Pure: randomness comes from `core.ids`, functions take `now`. The
client creates keys; the API authenticates them.
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

from penstock.access.run_credentials import RunGrant
from penstock.core.errors import InvalidInput
from penstock.core.ids import decode, encode

PREFIX: Final = "pnk"
SECRET_CHARS: Final = 40
CHECK_CHARS: Final = 6
KEY_MAX: Final = 80
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SHAPE = re.compile(rf"{PREFIX}_([{_ALPHABET}]{{8}}|[{_ALPHABET}]{{13}})_([{_ALPHABET}]{{46}})")


class Permission(StrEnum):
    """A permission that a route requires of its caller."""

    READ_RUNS = "read_runs"
    READ = "read"
    WORK = "work"
    OPERATE = "operate"
    ADMINISTER = "administer"


class Role(StrEnum):
    """Role of an API key: a set of permissions. Neither WORKER nor VIEWER includes the other."""

    ADMIN = "admin"
    """Everything, including keys."""
    OPERATOR = "operator"
    """Read and change everything except keys."""
    WORKER = "worker"
    """Claim, execute and report on runs; publish, pull and settle messages."""
    VIEWER = "viewer"
    """Read only."""

    def has_permission(self, power: Permission) -> bool:
        """Return whether the role has a permission."""
        return power in PERMISSIONS[self]

    def covers(self, least: Role) -> bool:
        """Return whether the role has every permission of `least`."""
        return PERMISSIONS[least] <= PERMISSIONS[self]


_WORKER = frozenset({Permission.READ_RUNS, Permission.WORK})
_VIEWER = frozenset({Permission.READ_RUNS, Permission.READ})
PERMISSIONS: Final[Mapping[Role, frozenset[Permission]]] = MappingProxyType(
    {
        Role.VIEWER: _VIEWER,
        Role.WORKER: _WORKER,
        Role.OPERATOR: _VIEWER | _WORKER | {Permission.OPERATE},
        Role.ADMIN: frozenset(Permission),
    }
)


class KeyState(StrEnum):
    """State of an API key. A ROTATING key is accepted with its previous secret as well."""

    ACTIVE = "active"
    ROTATING = "rotating"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller: its key, its role, and the customer it is bound to, if any."""

    key_id: int
    name: str
    role: Role
    customer_id: str | None = None
    rate: float | None = None
    valid_seconds: float | None = None
    """Seconds until the key, or its replaced secret, expires; None if it does not."""
    grant: RunGrant | None = None
    """The only run it may report on; None for a key."""
    is_person: bool = False
    """Whether an identity provider authenticated the caller, without an API key."""

    @property
    def actor(self) -> str:
        """Actor that the journal records for changes made by this caller."""
        if self.is_person:
            return f"person:{self.name}"
        return f"key:{self.name}" if self.grant is None else f"endpoint:{self.name}"

    @property
    def key(self) -> str:
        """Public id of the key, or the key of the grant."""
        if self.is_person:
            return self.actor
        return encode("key", self.key_id) if self.grant is None else self.grant.key

    @property
    def request_scope(self) -> str:
        """Scope of the idempotency keys that it sends."""
        if self.is_person:
            return self.actor
        return f"{self.key_id}" if self.grant is None else self.grant.key


def run_principal(grant: RunGrant) -> Principal:
    """Return the principal that may report on one run only."""
    return Principal(
        key_id=0,
        name=encode("run", grant.run_id),
        role=Role.WORKER,
        customer_id=grant.customer_id,
        grant=grant,
    )


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """The parts of a well-formed key. It may not exist in the database."""

    key_id: int
    secret: str

    def __repr__(self) -> str:
        return f"ParsedKey(key_id={self.key_id}, secret=…)"


def format_key(key_id: int, secret: str) -> str:
    """Return the text of a key. It is shown once, when the key is created or rotated."""
    assert len(secret) == SECRET_CHARS
    body = f"{PREFIX}_{encode('key', key_id).removeprefix('key_')}_{secret}"
    return body + _check(body)


def parse(text: object) -> ParsedKey | None:
    """Return the parts of a key, or None if the text is malformed or its checksum is wrong."""
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


def hash_secret(secret: str) -> str:
    """Return the hash under which a secret is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def matches_hash(secret: str, stored: str | None) -> bool:
    """Return whether a secret matches the stored hash, in constant time."""
    return hmac.compare_digest(hash_secret(secret), stored or "")


def key_state(
    now: int, *, expires_at: int | None, revoked_at: int | None, previous_until: int | None
) -> KeyState:
    """Return the state of a key at `now`. A key is expired at `expires_at` and after it."""
    if revoked_at is not None:
        return KeyState.REVOKED
    if expires_at is not None and now >= expires_at:
        return KeyState.EXPIRED
    if previous_until is not None and now < previous_until:
        return KeyState.ROTATING
    return KeyState.ACTIVE


def check_role(value: object) -> Role:
    """Return the role with this name. Raise InvalidInput if there is none."""
    try:
        return Role(str(value))
    except ValueError:
        raise InvalidInput("role", f"one of {', '.join(Role)}", value) from None


def _check(body: str) -> str:
    number = int.from_bytes(hashlib.sha256(body.encode()).digest()[:8], "big")
    return "".join(_ALPHABET[(number >> 5 * index) & 31] for index in range(CHECK_CHARS))
