"""Stored sessions of the dashboard: hashes of their tokens, never the tokens."""

from __future__ import annotations

from typing import NamedTuple

from penstock.db.store import Tx, first, one


class LoginRow(NamedTuple):
    """A session that has not ended."""

    token_hash: str
    key_id: int
    """Key that it acts as; 0 for a person of an identity provider."""
    secret_hash: str
    person: str | None
    role: str | None
    customer_id: str | None
    address: str
    agent: str
    created_at: int = 0
    seen_at: int = 0
    expires_at: int = 0


def login_put(tx: Tx, row: LoginRow, lifetime_us: int) -> int:
    """Open a session and delete some that have ended. Return when it ends."""
    given = row._asdict()
    params = {name: given[name] for name in LoginRow._fields[:8]}
    return int(one(tx.rows("login_put", {**params, "lifetime_us": lifetime_us}))[0])


def login_get(tx: Tx, token_hash: str) -> LoginRow | None:
    """Return a session that has not ended, or None."""
    row = first(tx.rows("login_get", {"token_hash": token_hash}))
    return None if row is None else LoginRow._make(row)


def login_list(tx: Tx, like: LoginRow, limit: int = 100) -> list[LoginRow]:
    """Return the sessions of the same key or person, newest first."""
    params = {"key_id": like.key_id, "person": like.person, "limit": limit}
    return [LoginRow._make(row) for row in tx.rows("login_list", params)]


def login_touch(tx: Tx, token_hash: str) -> None:
    """Record that a session was used."""
    tx.rows("login_touch", {"token_hash": token_hash})


def login_delete(tx: Tx, token_hash: str) -> int | None:
    """End a session. Return the id of its key; None if there is no such session."""
    row = first(tx.rows("login_delete", {"token_hash": token_hash}))
    return None if row is None else int(row[0])
