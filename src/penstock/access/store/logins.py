"""Stored sessions of the dashboard: hashes of their tokens, never the tokens."""

from __future__ import annotations

from typing import NamedTuple

from penstock.db.store import Tx, first, one


class LoginRow(NamedTuple):
    """A session that has not ended."""

    key_id: int
    secret_hash: str
    seen_at: int
    expires_at: int


def login_put(tx: Tx, *, token_hash: str, key_id: int, secret_hash: str, lifetime_us: int) -> int:
    """Open a session and delete some that have ended. Return when it ends."""
    params = {
        "token_hash": token_hash,
        "key_id": key_id,
        "secret_hash": secret_hash,
        "lifetime_us": lifetime_us,
    }
    return int(one(tx.rows("login_put", params))[0])


def login_get(tx: Tx, token_hash: str) -> LoginRow | None:
    """Return a session that has not ended, or None."""
    row = first(tx.rows("login_get", {"token_hash": token_hash}))
    return None if row is None else LoginRow._make(row)


def login_touch(tx: Tx, token_hash: str) -> None:
    """Record that a session was used."""
    tx.rows("login_touch", {"token_hash": token_hash})


def login_delete(tx: Tx, token_hash: str) -> int | None:
    """End a session. Return the id of its key; None if there is no such session."""
    row = first(tx.rows("login_delete", {"token_hash": token_hash}))
    return None if row is None else int(row[0])
