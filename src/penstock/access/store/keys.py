"""Stored API keys (hashes, never secrets) and the server's own secrets, created on first use.

The client creates and validates keys; this module only stores them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first, one


class KeyRow(NamedTuple):
    """A key as stored."""

    key_id: int
    name: str
    role: str
    customer_key: CustomerKey | None
    customer_id: str | None
    hash: str
    previous_hash: str | None
    previous_until: int | None
    rate: float | None
    created_at: int
    created_by: str
    expires_at: int | None
    revoked_at: int | None
    revoked_by: str | None
    last_used_at: int | None


def key_put(tx: Tx, params: dict[str, Any]) -> int:
    """Create a key (name, role, customer, hash, rate, created_by, expires_at). Return its id."""
    return int(one(tx.rows("key_put", params))[0])


def key_get(tx: Tx, key_id: int) -> KeyRow | None:
    """Return one key in any state, or None."""
    row = first(tx.rows("key_get", {"key_id": key_id}))
    return None if row is None else KeyRow._make(row)


def key_list(
    tx: Tx,
    *,
    customer_key: CustomerKey | None = None,
    with_revoked: bool = False,
    after: int = 0,
    limit: int = 100,
) -> list[KeyRow]:
    """Return keys in id order; `after` continues an earlier page."""
    params = {
        "customer": customer_key,
        "with_revoked": with_revoked,
        "after": after,
        "limit": limit,
    }
    return [KeyRow._make(row) for row in tx.rows("key_list", params)]


def key_rotate(tx: Tx, key_id: int, hash: str, overlap_us: int) -> int | None:
    """Replace a key's secret. Return the expiry of the old secret; None if the key is revoked."""
    params = {"key_id": key_id, "hash": hash, "overlap_us": overlap_us}
    row = first(tx.rows("key_rotate", params))
    return None if row is None else int(row[0])


def key_revoke(tx: Tx, key_id: int, actor: str) -> bool:
    """Revoke a key. Return False if it was already revoked."""
    return bool(tx.rows("key_revoke", {"key_id": key_id, "actor": actor}))


def key_touch(tx: Tx, key_id: int) -> bool:
    """Record that a key was used. Return False if that was recorded within the last minute."""
    return bool(tx.rows("key_touch", {"key_id": key_id}))


def secret_ensure(tx: Tx, name: str, value: str) -> str:
    """Return the server secret with this name; create it with `value` if it does not exist."""
    return str(one(tx.rows("secret_ensure", {"name": name, "value": value}))[0])


def secret_get(tx: Tx, name: str) -> str | None:
    """Return the server secret with this name, or None."""
    row = first(tx.rows("secret_get", {"name": name}))
    return None if row is None else str(row[0])


def secret_swap(tx: Tx, name: str, before: str, value: str) -> bool:
    """Replace a server secret. Return False if it no longer equals `before`."""
    return bool(tx.rows("secret_swap", {"name": name, "before": before, "value": value}))
