"""API keys as stored: hashes, never secrets; and the server's own secrets, made on first use.

The client mints and judges keys; this topic only keeps them. Also says whether the second wall
between customers (row-level security) stands in this database.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.db.store import Tx, first, one


class KeyRow(NamedTuple):
    """A key as stored."""

    key_id: int
    name: str
    role: str
    customer: int | None
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
    """Create a key (name, role, customer, hash, rate, created_by, expires_at); returns its id."""
    return int(one(tx.rows("key_put", params))[0])


def key_get(tx: Tx, key_id: int) -> KeyRow | None:
    """One key, whatever its state."""
    row = first(tx.rows("key_get", {"key_id": key_id}))
    return None if row is None else KeyRow._make(row)


def key_list(
    tx: Tx,
    *,
    customer: int | None = None,
    with_revoked: bool = False,
    after: int = 0,
    limit: int = 100,
) -> list[KeyRow]:
    """Keys in id order; `after` continues an earlier page."""
    params = {"customer": customer, "with_revoked": with_revoked, "after": after, "limit": limit}
    return [KeyRow._make(row) for row in tx.rows("key_list", params)]


def key_rotate(tx: Tx, key_id: int, hash: str, overlap_us: int) -> int | None:
    """Replace a key's secret; until when the old one holds, None when it was revoked."""
    params = {"key_id": key_id, "hash": hash, "overlap_us": overlap_us}
    row = first(tx.rows("key_rotate", params))
    return None if row is None else int(row[0])


def key_revoke(tx: Tx, key_id: int, actor: str) -> bool:
    """End a key; False when it was revoked before."""
    return bool(tx.rows("key_revoke", {"key_id": key_id, "actor": actor}))


def key_touch(tx: Tx, key_id: int) -> bool:
    """Remember that a key was used; False when that was done within the last minute."""
    return bool(tx.rows("key_touch", {"key_id": key_id}))


def secret_ensure(tx: Tx, name: str, value: str) -> str:
    """The server secret of this name, which is `value` unless there was one before."""
    return str(one(tx.rows("secret_ensure", {"name": name, "value": value}))[0])


def secret_get(tx: Tx, name: str) -> str | None:
    """The server secret of this name, if there is one."""
    row = first(tx.rows("secret_get", {"name": name}))
    return None if row is None else str(row[0])


def secret_swap(tx: Tx, name: str, before: str, value: str) -> bool:
    """Replace a server secret; False when it is no longer what the caller saw."""
    return bool(tx.rows("secret_swap", {"name": name, "before": before, "value": value}))
