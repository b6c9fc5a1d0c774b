"""Migrated in-memory stores, copied from a template, ten times as fast as a migration.

For tests and simulations only. A copy is byte-identical to a freshly migrated database.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from penstock.core.clock import Clock
from penstock.db.sqlite.store import SqliteStore


def memory_store(clock: Clock | None = None) -> SqliteStore:
    """Return a new, migrated in-memory store."""
    store = SqliteStore(":memory:", clock)
    _migrated()._writer.backup(store._writer)
    return store


def save_store(store: SqliteStore, path: Path) -> None:
    """Write a copy of a store to a file, which it replaces."""
    for old in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        old.unlink(missing_ok=True)
    copy = SqliteStore(path)
    store._writer.backup(copy._writer)
    copy.close()


@cache
def _migrated() -> SqliteStore:
    store = SqliteStore(":memory:")
    store.migrate()
    return store
