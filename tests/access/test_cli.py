"""`penstock keys`: create, list, rotate and revoke keys."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from penstock import connect
from penstock.access.api_keys import parse
from tests.kits.shell import Shell


def authenticate(shell: Shell, text: str) -> Any:
    """Return the principal of a key; None if the key is not valid."""
    with connect(shell.url) as client:
        return client.keys.authenticate(text)


def test_create_shows_the_key_once(shell: Shell) -> None:
    """The first line is the key, the last one says that it is not shown again."""
    out = shell.ok("keys", "create", "ci", "--role", "worker", "--customer", "acme")
    lines = out.splitlines()
    assert parse(lines[0]) is not None
    assert "not shown again" in lines[-1]
    assert authenticate(shell, lines[0]).customer_id == "acme"
    assert lines[0] not in shell.ok("keys", "list")
    assert "acme" in shell.ok("keys", "list")


def test_quiet_prints_only_the_key(shell: Shell) -> None:
    """With --quiet, standard output is the key alone, for scripts."""
    out = shell.ok("keys", "create", "ci", "--role", "viewer", "--quiet")
    assert parse(out.strip()) is not None


def test_json(shell: Shell) -> None:
    """The JSON of `create` has the key, that of `list` does not."""
    made = shell.json("keys", "create", "ci", "--role", "admin", "--rate", "5", "--expires", "90d")
    assert parse(made["key"]) is not None
    (listed,) = shell.json("keys", "list")["items"]
    assert "key" not in listed
    assert (listed["role"], listed["rate"], listed["state"]) == ("admin", 5.0, "active")
    assert listed["expires_at"] > listed["created_at"]


def test_rotate_and_revoke(shell: Shell) -> None:
    """The old secret works during the overlap; a revoked key is invalid and listed with --all."""
    first = shell.json("keys", "create", "ci", "--role", "viewer")
    key_id = first["info"]["key_id"]
    second = shell.json("keys", "rotate", key_id, "--overlap", "1h")
    assert second["info"]["state"] == "rotating"
    assert authenticate(shell, first["key"]) is not None
    third = shell.json("keys", "rotate", key_id, "--overlap", "0s")
    assert authenticate(shell, second["key"]) is None
    assert shell.json("keys", "revoke", key_id, "--reason", "lost")["changed"]
    assert not shell.json("keys", "revoke", key_id)["changed"]
    assert authenticate(shell, third["key"]) is None
    assert shell.json("keys", "list")["items"] == []
    assert len(shell.json("keys", "list", "--all")["items"]) == 1
    assert "revoked" in shell.ok("keys", "list", "--all")


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (("create", "ci"), 2, "--role"),
        (("create", "ci", "--role", "root"), 2, "root"),
        (("create", "", "--role", "viewer"), 2, "NAME"),
        (("create", "ci", "--role", "viewer", "--expires", "soon"), 2, "expires"),
        (("create", "ci", "--role", "viewer", "--rate", "-1"), 2, "rate"),
        (("rotate", "run_53qhrxfy"), 2, "ID: expected"),
        (("rotate", "key_53qhrxfy"), 3, "key_53qhrxfy"),
        (("revoke", "key_53qhrxfy"), 3, "key_53qhrxfy"),
    ],
)
def test_refusals(shell: Shell, args: tuple[str, ...], code: int, word: str) -> None:
    """Errors name the bad input, and no key is created."""
    result = shell("keys", *args)
    assert result.code == code, result
    assert word in result.err
    assert shell.json("keys", "list")["items"] == []


def test_empty_list(shell: Shell) -> None:
    """Without keys the list suggests `keys create`."""
    assert "penstock keys create" in shell.ok("keys", "list")


@pytest.mark.postgres
def test_doctor_on_postgresql(shell: Shell, pg_migrated_dsn: str) -> None:
    """Doctor checks row-level security and durability on PostgreSQL."""
    found = {c["check"]: c for c in shell.json("doctor")["checks"]}
    assert "isolation" not in found
    assert found["durability"]["verdict"] == "OK"
    shell.url = pg_migrated_dsn
    with psycopg.connect(pg_migrated_dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    found = {c["check"]: c for c in shell("doctor", "--json").json()["checks"]}
    assert found["isolation"]["verdict"] == "OK"
    assert found["durability"]["verdict"] == "WARN"
    assert "synchronous_commit = off" in found["durability"]["says"]
    assert "synchronous_commit = on" in found["durability"]["fix"]
    with psycopg.connect(pg_migrated_dsn, autocommit=True) as connection:
        connection.execute("DROP POLICY one_customer ON configs")
    found = {c["check"]: c for c in shell("doctor", "--json").json()["checks"]}
    assert found["isolation"]["verdict"] == "WARN"
    assert "api-keys.md" in found["isolation"]["fix"]
