"""Whether PostgreSQL enforces tenant isolation by row-level security."""

from __future__ import annotations

from typing import NamedTuple

from penstock.db.store import Tx, one


class Wall(NamedTuple):
    """Whether confined transactions are possible, and whether plain ones are confined as well."""

    stands: bool
    confines_everybody: bool


def wall_look(tx: Tx) -> Wall:
    """Whether the second wall stands."""
    stands, confines = one(tx.rows("wall_look"))
    return Wall(bool(stands), bool(confines))
