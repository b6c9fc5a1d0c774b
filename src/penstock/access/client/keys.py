"""Use cases of API keys: create, list, rotate, revoke, authenticate.

A key is shown once, when it is created; it cannot be recovered from what is stored. Every change is
written to the journal, without the secret. `authenticate` reads the store on every call; a server
should cache its result (the API caches it for 30 s).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any

from penstock.access import api_keys
from penstock.access.api_keys import KeyState, Principal, Role
from penstock.access.from_rows import key_record, state_at
from penstock.access.records import ApiKey, IssuedKey, KeyId, RoleInput
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
from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import DAY, MINUTE, SECOND, parse_duration
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.fields import check_text
from penstock.core.ids import RandomBytes, decode, encode, new_secret
from penstock.core.naming import CustomerKey
from penstock.core.records.record import Changed, DurationInput, Meta, Page, Wire
from penstock.db.store import Transactions, Tx

__all__ = ["Keys", "Principal"]

OVERLAP_MAX_US = 30 * DAY
RATE_MIN, RATE_MAX = 0.001, 100_000
REASON_MAX = 500

_NAME = Meta(
    description="Label that describes the purpose of the key.", examples=["nightly-worker"]
)
_ROLE = Meta(description="Role of the key: admin, operator, worker or viewer.")
_CUSTOMER = Meta(description="Customer that the key is restricted to; null for all customers.")
_EXPIRES = Meta(description="Lifetime as a duration such as `90d`; unlimited when omitted.")
_RATE = Meta(
    description="Allowed requests per second in each API process; the server's default when null."
)
_RATE_BOUNDS = Meta(ge=RATE_MIN, le=RATE_MAX)
_BOUND_TO = Meta(description="Return only keys restricted to this customer.")
_WITH_REVOKED = Meta(description="Include revoked keys.")
_OVERLAP = Meta(description="Time that the old secret stays valid, as a duration; `0s` for none.")
_REASON = Meta(description="Reason for the action, stored with its record.", max_length=REASON_MAX)


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
        name: Annotated[str, _NAME],
        role: Annotated[RoleInput, _ROLE],
        *,
        customer: Annotated[str | None, Wire("customer_id"), _CUSTOMER] = None,
        expires: Annotated[DurationInput | None, _EXPIRES] = None,
        rate: Annotated[Annotated[float, _RATE_BOUNDS] | None, _RATE] = None,
    ) -> IssuedKey:
        """Create an API key. Its secret is returned only in this response."""
        self._names.require_unscoped("API keys")
        check_text("name", name)
        wanted = api_keys.check_role(role)
        lifetime = None if expires is None else parse_duration(expires, "expires")
        if lifetime == 0:
            raise InvalidInput("expires", "a duration above 0", expires)
        _check_rate(rate)
        secret = self._secret()

        def body(tx: Tx) -> IssuedKey:
            expires_at = None if lifetime is None else tx.now() + lifetime
            number = (
                None
                if customer is None
                else self._names.ensure_customer_keys(tx, [customer])[customer]
            )
            params: dict[str, Any] = {
                "name": name, "role": wanted.value, "customer": number,
                "hash": api_keys.hash_secret(secret), "rate": rate, "created_by": self._actor,
                "expires_at": expires_at,
            }  # fmt: skip
            key_id = key_put(tx, params)
            detail = {"name": name, "role": wanted.value, "expires_at": expires_at, "rate": rate}
            self._note(tx, key_id, number, "created", detail=detail)
            return _issued(tx, key_id, secret)

        return self._store.write(body)

    def get(self, key_id: KeyId) -> ApiKey:
        """Return one key, in any state."""
        self._names.require_unscoped("API keys")
        number = _number(key_id)
        return self._store.read(lambda tx: key_record(_must(tx, number), tx.now()))

    def list(
        self,
        *,
        customer: Annotated[str | None, Wire("customer_id"), _BOUND_TO] = None,
        with_revoked: Annotated[bool, _WITH_REVOKED] = False,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[ApiKey]:
        """List API keys without their secrets, oldest first."""
        self._names.require_unscoped("API keys")

        def read(after: Sequence[Any] | None) -> Sequence[tuple[int, ApiKey]]:
            def body(tx: Tx) -> Sequence[tuple[int, ApiKey]]:
                rows = key_list(
                    tx,
                    customer_key=self._names.customer_key(tx, customer),
                    with_revoked=with_revoked,
                    after=after[0] if after else 0,
                    limit=limit,
                )
                return [(row.key_id, key_record(row, tx.now())) for row in rows]

            return self._store.read(body)

        return paged(
            self._names,
            "keys",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda row: [row[0]],
            record=lambda row: row[1],
            filters={"customer": customer, "with_revoked": with_revoked},
        )

    def rotate(
        self, key_id: KeyId, *, overlap: Annotated[DurationInput, _OVERLAP] = "24h"
    ) -> IssuedKey:
        """Replace the secret of a key. The old one stays valid for the overlap."""
        self._names.require_unscoped("API keys")
        number = _number(key_id)
        overlap_us = parse_duration(overlap, "overlap")
        if overlap_us > OVERLAP_MAX_US:
            raise InvalidInput("overlap", "a duration from 0 to 30 days", overlap)
        secret = self._secret()

        def body(tx: Tx) -> IssuedKey:
            old = _must(tx, number)
            state = state_at(old, tx.now())
            if state in (KeyState.REVOKED, KeyState.EXPIRED):
                raise Conflict(f"{encode('key', number)} is {state}: create another key.")
            until = key_rotate(tx, number, api_keys.hash_secret(secret), overlap_us)
            if until is None:
                raise Conflict(f"{encode('key', number)} is revoked: create another key.")
            self._note(tx, number, old.customer_key, "rotated", detail={"previous_until": until})
            return _issued(tx, number, secret)

        return self._store.write(body)

    def revoke(self, key_id: KeyId, *, reason: Annotated[str, _REASON] = "") -> Changed:
        """Revoke a key permanently. All servers reject it within 60 seconds."""
        self._names.require_unscoped("API keys")
        number = _number(key_id)

        def body(tx: Tx) -> Changed:
            old = _must(tx, number)
            if not key_revoke(tx, number, self._actor):
                return Changed(is_changed=False)
            self._note(tx, number, old.customer_key, "revoked", why=reason)
            return Changed(is_changed=True)

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
        state = state_at(row, now)
        if state in (KeyState.REVOKED, KeyState.EXPIRED):
            return None
        if not fits and not (fits_old and state is KeyState.ROTATING):
            return None
        if row.last_used_at is None or row.last_used_at < now - MINUTE:
            self._store.write(lambda tx: key_touch(tx, parsed.key_id))
        ends = [end for end in (row.expires_at, None if fits else row.previous_until) if end]
        return Principal(
            key_id=row.key_id,
            name=row.name,
            role=Role(row.role),
            customer_id=row.customer_id,
            rate=row.rate,
            valid_seconds=None if not ends else (min(ends) - now) / SECOND,
        )

    def server_secret(self, name: str) -> str:
        """Return a secret shared by all servers of this installation; created on first use."""
        self._names.require_unscoped("server secrets")
        value = self._secret()
        return self._store.write(lambda tx: secret_ensure(tx, name, value))

    def _secret(self) -> str:
        return new_secret() if self._random is None else new_secret(self._random)

    def _note(
        self,
        tx: Tx,
        key_id: int,
        customer_key: CustomerKey | None,
        action: str,
        *,
        detail: dict[str, Any] | None = None,
        why: str = "",
    ) -> None:
        """Append a change to the journal; `detail` never contains a secret or its hash."""
        text = None if detail is None else json.dumps(detail, sort_keys=True)
        entry = Entry(
            "key", key_id, customer_key, action, self._actor, why=why or None, detail=text
        )
        journal_append_many(tx, [entry])


def _number(key_id: str) -> int:
    try:
        return decode("key", key_id)
    except InvalidInput:
        raise NotFound("key", key_id) from None


def _must(tx: Tx, key_id: int) -> KeyRow:
    row = key_get(tx, key_id)
    if row is None:
        raise NotFound("key", encode("key", key_id))
    return row


def _issued(tx: Tx, key_id: int, secret: str) -> IssuedKey:
    info = key_record(_must(tx, key_id), tx.now())
    return IssuedKey(key=api_keys.format_key(key_id, secret), info=info)


def _check_rate(rate: object) -> None:
    if rate is None:
        return
    if (
        isinstance(rate, bool)
        or not isinstance(rate, int | float)
        or not math.isfinite(rate)
        or not RATE_MIN <= rate <= RATE_MAX
    ):
        raise InvalidInput("rate", f"{RATE_MIN} to {RATE_MAX:,} requests per second", rate)
