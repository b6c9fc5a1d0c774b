"""Ticks of services, the state of the database, audit sinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.clock import Micros
from penstock.db.store import Tx, one


class TickRow(NamedTuple):
    """A service, the time of its last tick, and the interval of its ticks."""

    service: str
    ticked_at: Micros
    interval_us: int


class StoreRow(NamedTuple):
    """Version of the engine, number and name of the last migration, size in bytes."""

    version: str
    number: int
    name: str
    size: int


def ticks_put(tx: Tx, services: Sequence[tuple[str, int]]) -> None:
    """Record that services, each with its interval, have made a step."""
    tx.run("ticks_put", {}, batch=sorted(services))


def ticks_read(tx: Tx) -> list[TickRow]:
    """Return the services that have ticked, by name."""
    return [TickRow._make(row) for row in tx.rows("ticks_read")]


def store_state(tx: Tx) -> StoreRow:
    """Return version, schema and size of the database."""
    return StoreRow._make(one(tx.rows("store_state")))


def sinks_read(tx: Tx) -> list[str]:
    """Return the audit sinks that have been shipped to."""
    return [row[0] for row in tx.rows("sinks_read")]
