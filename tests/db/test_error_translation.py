"""Which engine errors mean that the store is unavailable, whatever their class is called."""

import sqlite3
from pathlib import Path

import psycopg
import pytest
from psycopg import errors as pgerrors

from penstock.access.store.registry import customer_ensure_many
from penstock.core.errors import StoreUnavailable
from penstock.db.postgres import store as postgres
from penstock.db.postgres.connect_failure import explain_failure, is_too_old, show_version
from penstock.db.sqlite import store as sqlite
from penstock.db.sqlite.store import SqliteStore


@pytest.mark.parametrize(
    "error",
    [
        pgerrors.ReadOnlySqlTransaction,
        pgerrors.InsufficientPrivilege,
        pgerrors.IdleInTransactionSessionTimeout,
        pgerrors.AdminShutdown,
        pgerrors.CannotConnectNow,
    ],
)
def test_postgres_is_unavailable(error: type[psycopg.Error]) -> None:
    assert isinstance(postgres._translated(error("x")), StoreUnavailable)


@pytest.mark.parametrize("error", [pgerrors.NumericValueOutOfRange, pgerrors.CheckViolation])
def test_an_invalid_row_is_not_an_outage(error: type[psycopg.Error]) -> None:
    raised = error("x")
    assert postgres._translated(raised) is raised


def test_sqlite_is_readonly() -> None:
    store = SqliteStore(":memory:")
    store.migrate()
    store._writer.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="readonly database"):
        store.write(lambda tx: customer_ensure_many(tx, ["acme"]))
    store.close()


def test_readers_that_failed_to_open_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often opening fails, readers are opened once it works again."""
    store = SqliteStore(tmp_path / "a.db")
    store.migrate()

    def fail(*_: object, **__: object) -> sqlite3.Connection:
        raise StoreUnavailable("too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "open_connection", fail)
        for _ in range(sqlite.READERS_MAX):
            with pytest.raises(StoreUnavailable, match="open files"):
                store.read(lambda tx: tx.now())
    assert store.read(lambda tx: tx.now()) > 0
    store.close()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("connection timeout expired", "the host did not respond in time"),
        ("FATAL:  sorry, too many clients already", "all connections of the server are in use"),
        ("FATAL:  no pg_hba.conf entry for host", "the server does not allow this user to connect"),
        ("server does not support SSL, but SSL was required", "the server does not support TLS"),
        (
            "host a: Connection refused\nhost b: timeout expired",
            "host a: Connection refused host b",
        ),
        ("Anmeldung fehlgeschlagen.", "Anmeldung fehlgeschlagen"),
    ],
)
def test_failed_connections(text: str, reason: str) -> None:
    """One known cause is named; of several, or an unknown one, the driver's text is shown."""
    explained = explain_failure(text)
    assert explained.reason.startswith(reason)
    assert explained.fix.endswith(".")


@pytest.mark.parametrize(
    ("version", "is_old", "shown"),
    [(180_001, False, "18.1"), (150_000, False, "15.0"), (149_999, True, "14.9999"),
     (90_624, True, "9.6")],
)  # fmt: skip
def test_versions(version: int, is_old: bool, shown: str) -> None:
    assert is_too_old(version) is is_old
    assert show_version(version) == shown
