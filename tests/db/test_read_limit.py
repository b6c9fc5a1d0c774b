"""The time limit of reads."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from penstock.core.errors import ReadTimeout
from penstock.db.replica.reads import LaggingReads
from penstock.db.store import Store, Tx, read_limit
from tests.db.test_drivers import add, every_engine, has
from tests.web.test_panel_failures import SLOW


def slow(tx: Tx) -> None:
    """Run a statement of many seconds."""
    connection: Any = tx._connection  # type: ignore[attr-defined]
    connection.execute(SLOW[tx.engine]).fetchall()


@every_engine
class TestReadLimit:
    """A limit holds for the reads of its block, and only for them."""

    def test_a_slow_statement_is_stopped(self, store: Store) -> None:
        with read_limit(0.05), pytest.raises(ReadTimeout):
            store.read(slow)
        assert store.read(lambda tx: tx.engine) == store.capabilities.engine

    def test_nothing_starts_once_it_is_over(self, store: Store) -> None:
        with read_limit(0), pytest.raises(ReadTimeout):
            store.read(lambda tx: tx.now())
        with read_limit(60), read_limit(0), read_limit(60), pytest.raises(ReadTimeout):
            store.read(lambda tx: tx.now())

    def test_writes_have_none(self, store: Store) -> None:
        with read_limit(0):
            add(store, "acme")
        assert has(store, "acme")


def test_a_replica_is_not_blamed_for_a_slow_read() -> None:
    """The read fails; it is not repeated on the primary, and the replica stays in use."""
    check, servers = Mock(), Mock()
    servers.replica.read.side_effect = ReadTimeout
    reads = LaggingReads(servers.primary, lambda: servers.replica, check, Mock())
    with pytest.raises(ReadTimeout):
        reads.read(lambda tx: tx.now())
    assert not check.failed.called
    assert not servers.primary.read.called
