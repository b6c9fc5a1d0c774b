"""Use cases of API keys: create, list, rotate, revoke, authenticate.

A key is shown once, when it is created; it cannot be recovered from what is stored. Every change is
written to the journal, without the secret. `authenticate` reads the store on every call; a server
should cache its result (the API caches it for 30 s).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

from penstock.access import api_keys
from penstock.access.api_keys import KeyState, Principal, Role
from penstock.access.store.keys import (
    KeyRow,
    key_get,
    key_list,
    key_put,
    key_revoke,
    key_rotate,
    key_touch,
    secret_ensure,
)
from penstock.access.store.names import NameResolver, check_limit
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import DAY, MINUTE
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.fields import check_text
from penstock.core.ids import RandomBytes, encode, new_secret
from penstock.core.naming import CustomerKey
from penstock.db.store import Transactions, Tx

__all__ = ["ApiKey", "Keys", "Principal"]

OVERLAP_US = DAY
OVERLAP_MAX_US = 30 * DAY
RATE_MAX = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key; `text` is the key itself, set only when it was just created or rotated."""

    key_id: int
    name: str
    role: Role
    state: KeyState
    customer_id: str | None
    rate: float | None
    created_at: int
    created_by: str
    expires_at: int | None
    rotating_until: int | None
    revoked_at: int | None
    revoked_by: str | None
    last_used_at: int | None
    text: str | None = None

    @property
    def public_id(self) -> str:
        """Public id of the key; it is also the middle part of `text`."""
        return encode("key", self.key_id)


class Keys:
    """Use cases of API keys. A client scoped to a customer cannot use them."""

    def __init__(
        self,
        store: Transactions,
        names: NameResolver,
        actor: str,
        random_bytes: RandomBytes | None = None,
    ) -> None:
        self._store = store
        self._names = names
        self._actor = actor
        self._random = random_bytes

    def create(
        self,
        name: str,
        role: Role | str,
        *,
        customer: str | None = None,
        expires_at: int | None = None,
        rate: float | None = None,
        actor: str | None = None,
    ) -> ApiKey:
        """Create a key; a key bound to `customer` cannot access rows of other customers.

        `expires_at` is a time in microseconds; `rate` is the allowed number of requests per second.
        """
        self._names.require_unscoped("API keys")
        check_text("name", name)
        wanted = api_keys.check_role(role)
        _check_rate(rate)
        who = actor or self._actor
        secret = self._secret()

        def body(tx: Tx) -> ApiKey:
            if expires_at is not None and expires_at <= tx.now():
                raise InvalidInput("expires_at", "a time in the future", expires_at)
            number = (
                None
                if customer is None
                else self._names.ensure_customer_keys(tx, [customer])[customer]
            )
            params: dict[str, Any] = {
                "name": name, "role": wanted.value, "customer": number,
                "hash": api_keys.hash_secret(secret), "rate": rate, "created_by": who,
                "expires_at": expires_at,
            }  # fmt: skip
            key_id = key_put(tx, params)
            detail = {"name": name, "role": wanted.value, "expires_at": expires_at, "rate": rate}
            _note(tx, key_id, number, "created", who, detail=detail)
            return replace(_shown(tx, _must(tx, key_id)), text=api_keys.format_key(key_id, secret))

        return self._store.write(body)

    def get(self, key_id: int) -> ApiKey:
        """Return one key, in any state."""
        self._names.require_unscoped("API keys")
        return self._store.read(lambda tx: _shown(tx, _must(tx, key_id)))

    def page(
        self,
        *,
        customer: str | None = None,
        with_revoked: bool = False,
        after: int = 0,
        limit: int = 100,
    ) -> list[ApiKey]:
        """Return keys in id order; `after` (an id) continues an earlier page."""
        self._names.require_unscoped("API keys")
        check_limit(limit)

        def body(tx: Tx) -> list[ApiKey]:
            number = self._names.customer_key(tx, customer)
            rows = key_list(
                tx, customer_key=number, with_revoked=with_revoked, after=after, limit=limit
            )
            return [_shown(tx, row) for row in rows]

        return self._store.read(body)

    def rotate(
        self, key_id: int, *, overlap_us: int = OVERLAP_US, actor: str | None = None
    ) -> ApiKey:
        """Replace the secret of a key; the old one stays valid for `overlap_us` microseconds."""
        self._names.require_unscoped("API keys")
        if isinstance(overlap_us, bool) or not 0 <= overlap_us <= OVERLAP_MAX_US:
            raise InvalidInput("overlap", "a duration from 0 to 30 days", overlap_us)
        who = actor or self._actor
        secret = self._secret()

        def body(tx: Tx) -> ApiKey:
            old = _must(tx, key_id)
            if _state(tx, old) in (KeyState.REVOKED, KeyState.EXPIRED):
                raise Conflict(f"{encode('key', key_id)} is {_state(tx, old)}: create another key.")
            until = key_rotate(tx, key_id, api_keys.hash_secret(secret), overlap_us)
            if until is None:
                raise Conflict(f"{encode('key', key_id)} is revoked: create another key.")
            _note(tx, key_id, old.customer_key, "rotated", who, detail={"previous_until": until})
            return replace(_shown(tx, _must(tx, key_id)), text=api_keys.format_key(key_id, secret))

        return self._store.write(body)

    def revoke(self, key_id: int, *, reason: str = "", actor: str | None = None) -> bool:
        """Revoke a key permanently; return False if it was already revoked."""
        self._names.require_unscoped("API keys")
        who = actor or self._actor

        def body(tx: Tx) -> bool:
            old = _must(tx, key_id)
            if not key_revoke(tx, key_id, who):
                return False
            _note(tx, key_id, old.customer_key, "revoked", who, why=reason)
            return True

        return self._store.write(body)

    def authenticate(self, text: object) -> Principal | None:
        """Return the principal of a key; None if it is unknown, malformed, expired or revoked."""
        parsed = api_keys.parse(text)
        if parsed is None:
            return None

        def body(tx: Tx) -> tuple[KeyRow | None, int]:
            return key_get(tx, parsed.key_id), tx.now()

        row, now = self._store.read(body)
        # Compare even if the key does not exist, so that both cases take the same time.
        fits = api_keys.matches_hash(parsed.secret, None if row is None else row.hash)
        fits_old = api_keys.matches_hash(parsed.secret, None if row is None else row.previous_hash)
        if row is None:
            return None
        state = _state_at(now, row)
        if state in (KeyState.REVOKED, KeyState.EXPIRED):
            return None
        if not fits and not (fits_old and state is KeyState.ROTATING):
            return None
        if row.last_used_at is None or row.last_used_at < now - MINUTE:
            self._store.write(lambda tx: key_touch(tx, parsed.key_id))
        return Principal(
            key_id=row.key_id,
            name=row.name,
            role=Role(row.role),
            customer_id=row.customer_id,
            rate=row.rate,
        )

    def server_secret(self, name: str) -> str:
        """Return a secret shared by all servers of this installation; created on first use."""
        self._names.require_unscoped("server secrets")
        value = self._secret()
        return self._store.write(lambda tx: secret_ensure(tx, name, value))

    def _secret(self) -> str:
        return new_secret() if self._random is None else new_secret(self._random)


def _must(tx: Tx, key_id: int) -> KeyRow:
    row = key_get(tx, key_id)
    if row is None:
        raise NotFound("key", encode("key", key_id))
    return row


def _state(tx: Tx, row: KeyRow) -> KeyState:
    return _state_at(tx.now(), row)


def _state_at(now: int, row: KeyRow) -> KeyState:
    return api_keys.key_state(
        now,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        previous_until=row.previous_until,
    )


def _shown(tx: Tx, row: KeyRow) -> ApiKey:
    state = _state(tx, row)
    return ApiKey(
        key_id=row.key_id,
        name=row.name,
        role=Role(row.role),
        state=state,
        customer_id=row.customer_id,
        rate=row.rate,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        rotating_until=row.previous_until if state is KeyState.ROTATING else None,
        revoked_at=row.revoked_at,
        revoked_by=row.revoked_by,
        last_used_at=row.last_used_at,
    )


def _note(
    tx: Tx,
    key_id: int,
    customer_key: CustomerKey | None,
    action: str,
    who: str,
    *,
    detail: dict[str, Any] | None = None,
    why: str = "",
) -> None:
    """Append a change to the journal; `detail` never contains a secret or its hash."""
    text = None if detail is None else json.dumps(detail, sort_keys=True)
    entry = Entry("key", key_id, customer_key, action, who, why=why or None, detail=text)
    journal_append_many(tx, [entry])


def _check_rate(rate: object) -> None:
    if rate is None:
        return
    if (
        isinstance(rate, bool)
        or not isinstance(rate, int | float)
        or not math.isfinite(rate)
        or not 0 < rate <= RATE_MAX
    ):
        raise InvalidInput("rate", f"above 0 and at most {RATE_MAX:,.0f} requests per second", rate)
