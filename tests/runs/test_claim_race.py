"""A claim in progress against the sweep of its session (PostgreSQL has concurrent writers)."""

import pytest

from penstock.db.store import Tx
from penstock.runs.store import leases, runs
from tests.conftest import OpenStore
from tests.kits.world import World

pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
LEASE = 30_000_000


def test_a_session_is_not_swept_under_a_claim(world: World, open_store: OpenStore) -> None:
    """Until the claim commits, sweepers leave its session alone; heartbeats do not wait."""
    session, other = world.session(), open_store()
    run_id = world.insert_one()
    claim = runs.Claim(
        pool_key=world.pool, processors=[world.processor], n=1, session_id=session, claimed_by="w"
    )
    world.clock.advance(LEASE + 1)

    def body(tx: Tx) -> list[int]:
        held = runs.run_claim(tx, claim)
        assert other.write(leases.session_expire) == []
        return [run.run_id for run in held]

    assert world.write(body) == [run_id]
    assert len(other.write(leases.session_expire)) == 1
    assert [run.run_id for run in world.read(lambda tx: leases.run_orphans(tx, 10))] == [run_id]


def test_a_heartbeat_does_not_wait_for_a_claim(world: World, open_store: OpenStore) -> None:
    """A worker renews its session while one of its claims is in progress."""
    session, other = world.session(), open_store()
    claim = runs.Claim(pool_key=world.pool, processors=[], n=1, session_id=session)

    def heartbeat(tx: Tx) -> bool:
        return leases.session_heartbeat(tx, session, LEASE, is_draining=False)

    def body(tx: Tx) -> bool:
        runs.run_claim(tx, claim)
        return other.write(heartbeat)

    assert world.write(body)
