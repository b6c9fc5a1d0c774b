"""The state of the database, audit sinks."""

from __future__ import annotations

from typing import NamedTuple

from penstock.db.store import Tx, one


class StoreRow(NamedTuple):
    """Version of the engine, number and name of the last migration, size in bytes."""

    version: str
    number: int
    name: str
    size: int


def store_state(tx: Tx) -> StoreRow:
    """Return version, schema and size of the database."""
    return StoreRow._make(one(tx.rows("store_state")))


def sinks_read(tx: Tx) -> list[str]:
    """Return the audit sinks that have been shipped to."""
    return [row[0] for row in tx.rows("sinks_read")]
