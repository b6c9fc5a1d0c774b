"""API keys.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class KeyOut(TypedDict):
    """An API key, without its secret."""

    key_id: str  # Its id.
    name: str  # What it is for.
    role: str  # What it may do.
    customer_id: str | None  # Bound to this customer.
    state: str  # active, rotating, expired or revoked.
    rate: float | None  # Requests per second.
    created_at: str  # When it was made.
    created_by: str  # Who made it.
    expires_at: str | None  # When it ends.
    rotating_until: str | None  # Until when its old secret holds as well.
    revoked_at: str | None  # When it was revoked.
    revoked_by: str | None  # Who revoked it.
    last_used_at: str | None  # When it was last used, to a minute.


class KeyPage(TypedDict):
    """A page of a list."""

    items: list[KeyOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class KeyIn(TypedDict):
    """A new API key."""

    name: str  # What it is for.
    role: Literal["admin", "operator", "worker", "viewer"]  # What it may do.
    customer_id: NotRequired[str | None]  # Bound to this customer.
    expires: NotRequired[str | None]  # A duration such as 90d.
    rate: NotRequired[float | None]  # Requests per second.


class KeyMade(TypedDict):
    """An API key with its secret, shown this once."""

    key: str | None  # The key. It cannot be shown again, not even to a repeated request.
    info: KeyOut  # What is known of it.


class RotateIn(TypedDict):
    """How long the old secret still works."""

    overlap: NotRequired[str]  # A duration such as 24h; 0s for none.


class RevokeIn(TypedDict):
    """Why a key is ended."""

    reason: NotRequired[str]  # Why; written down.


class ListKeysQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (list_keys)."""

    customer_id: str | None  # Only keys bound to this customer.
    with_revoked: bool | None  # Revoked ones too.
    limit: int | None  # Page size.
    cursor: str | None  # The `next_cursor` of the page before.
