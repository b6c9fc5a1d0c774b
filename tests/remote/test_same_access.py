"""The local and the remote client return the same records of API keys."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.access.api_keys import KeyState, Role
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.remote.client import RemoteClient
from tests.remote.test_same_records import remote, same
from tests.server.kit import ServedApi

__all__ = ["remote"]


def test_reads(served: ServedApi, remote: RemoteClient) -> None:
    """Lists, filters and pages are equal."""
    remote.keys.create("ci", "viewer", customer="acme", expires="90d", rate=2.5)
    gone = remote.keys.create("old", Role.WORKER)
    assert remote.keys.revoke(gone.info.key_id, reason="lost").is_changed
    same(served, remote, "keys", "list")
    same(served, remote, "keys", "list", with_revoked=True)
    same(served, remote, "keys", "list", customer="acme")
    first = remote.keys.list(limit=1)
    assert first.next_cursor is not None
    same(served, remote, "keys", "list", limit=1, cursor=first.next_cursor)


def test_changes(served: ServedApi, remote: RemoteClient) -> None:
    """A key is created, rotated and revoked; its secret is returned each time it is made."""
    made = remote.keys.create("ci", Role.OPERATOR, expires=timedelta(hours=1))
    keys = served.harness.client.keys
    assert keys.get(made.info.key_id) == made.info
    assert made.info.expires_at is not None
    assert made.info.expires_at - made.info.created_at == timedelta(hours=1)
    assert keys.authenticate(made.key) is not None
    turned = remote.keys.rotate(made.info.key_id, overlap="1h")
    assert turned.info.state is KeyState.ROTATING
    assert turned.key not in (None, made.key)
    assert remote.keys.revoke(made.info.key_id, reason="lost").is_changed
    assert not remote.keys.revoke(made.info.key_id).is_changed
    assert keys.get(made.info.key_id).revoked_by == "key:admin"


def test_errors(remote: RemoteClient) -> None:
    """Errors have the class of the local client, and name the field."""
    with pytest.raises(NotFound, match="key"):
        remote.keys.rotate("key_5m7t0c2d")
    with pytest.raises(NotFound, match="key"):
        remote.keys.revoke("run_5m7t0c2d")
    with pytest.raises(InvalidInput, match="role: expected one of admin, operator"):
        remote.keys.create("ci", "root")
    with pytest.raises(InvalidInput, match="expires"):
        remote.keys.create("ci", "viewer", expires="0s")
    with pytest.raises(InvalidInput, match="rate"):
        remote.keys.create("ci", "viewer", rate=100_001)
    made = remote.keys.create("ci", "viewer")
    remote.keys.revoke(made.info.key_id)
    with pytest.raises(Conflict, match="revoked"):
        remote.keys.rotate(made.info.key_id)


def test_repeated_creation_hides_the_secret(served: ServedApi) -> None:
    """A repeated request returns the key without its secret; the key must be rotated."""
    by = served.by("admin")
    wanted, headers = {"name": "ci", "role": "viewer"}, {"Idempotency-Key": "k"}
    first = by.call("POST", "/keys", wanted, headers)
    again = by.call("POST", "/keys", wanted, headers)
    assert (first.status, again.status) == (201, 201)
    assert first.json["key"] is not None
    assert again.json == {**first.json, "key": None}
    assert again.headers["idempotency-replayed"] == "true"
    path = f"/keys/{first.json['info']['key_id']}/rotate"
    turned = [by.call("POST", path, None, {"Idempotency-Key": "r"}).json for _ in range(2)]
    assert turned[0]["key"] is not None
    assert turned[1] == {**turned[0], "key": None}
