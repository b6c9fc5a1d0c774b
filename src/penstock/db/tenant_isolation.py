"""Whether PostgreSQL enforces tenant isolation by row-level security."""

from __future__ import annotations

from typing import NamedTuple

from penstock.db.store import Tx, one


class Wall(NamedTuple):
    """Whether tenant transactions are possible, and whether all others are restricted too."""

    stands: bool
    confines_everybody: bool


def wall_look(tx: Tx) -> Wall:
    """Return whether tenant isolation by row-level security is in place."""
    stands, confines = one(tx.rows("wall_look"))
    return Wall(bool(stands), bool(confines))
