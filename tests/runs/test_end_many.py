"""Ending no run at all, with which a worker checks that the store accepts writes."""

from typing import Any

import pytest

from penstock.core.errors import StoreUnavailable
from penstock.runs.rows import FinishedRun
from penstock.runs.store.finish import run_end_many
from penstock.worker.completer import PROBE_FINISH
from tests.conftest import ALL_ENGINES
from tests.kits.world import World

MAKE_READONLY = {
    "postgres": "SET TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
}


@pytest.mark.parametrize("engine", ALL_ENGINES, indirect=True)
def test_it_changes_nothing(world: World) -> None:
    world.running()
    before = world.dump()
    assert world.write(lambda tx: run_end_many(tx, [PROBE_FINISH])) == []
    assert world.dump() == before


@pytest.mark.parametrize("engine", ALL_ENGINES, indirect=True)
def test_it_fails_where_nothing_can_be_written(world: World) -> None:
    """For example on a standby, right after a failover."""

    def body(tx: Any) -> list[FinishedRun]:
        tx._connection.execute(MAKE_READONLY[tx.engine])
        return run_end_many(tx, [PROBE_FINISH])

    with pytest.raises(StoreUnavailable, match=r"read-?only"):
        world.write(body)
