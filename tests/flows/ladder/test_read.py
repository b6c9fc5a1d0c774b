"""The ladder reads flows that fan out without writing: candidates are found in a read."""

from penstock.db.store import Store
from penstock.flows.ladder.store import snapshots_read
from penstock.testing.clock import VirtualClock
from tests.kits.items import ItemStage, fanned


def test_a_flow_with_items_is_read(store: Store, clock: VirtualClock) -> None:
    stage = ItemStage(store, clock, fanned())
    flow = stage.open()
    stage.list_games(["a", "b"])
    stage.step()
    flow_ids = [flow.flow.flow_id]
    (found,) = store.read(lambda tx: snapshots_read(tx, flow_ids))
    (locked,) = store.write(lambda tx: snapshots_read(tx, flow_ids, lock=True))
    assert [one.total for one in found.expansions.values()] == [2]
    assert found.expansions == locked.expansions
