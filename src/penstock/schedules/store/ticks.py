"""Ticks of the services that scheduler processes run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.clock import Micros
from penstock.db.store import Tx


class TickRow(NamedTuple):
    """A service, the time of its last tick, and the interval of its ticks."""

    service: str
    ticked_at: Micros
    interval_us: int


def ticks_put(tx: Tx, services: Sequence[tuple[str, int]]) -> None:
    """Record that services, each with its interval, have made a step."""
    tx.run("ticks_put", {}, batch=sorted(services))


def ticks_read(tx: Tx) -> list[TickRow]:
    """Return the services that have ticked, by name."""
    return [TickRow._make(row) for row in tx.rows("ticks_read")]
