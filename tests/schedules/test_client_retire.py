"""Taking a config off the clock: what was due is on record."""

from collections.abc import Callable

import pytest

from penstock.core.clock import HOUR
from tests.kits.desk import Desk


@pytest.mark.parametrize("how", ["disable", "delete", "event"])
def test_due_slots_are_written_off(desk: Desk, how: str) -> None:
    """Slots that were due and not ticked yet are in the ledger when a config leaves the clock."""
    config = desk.config()
    desk.clock.advance(5 * HOUR)
    ways: dict[str, Callable[[], object]] = {
        "disable": lambda: desk.client.configs.disable(config.config_id),
        "delete": lambda: desk.client.configs.delete(config.config_id),
        "event": lambda: desk.client.configs.update(
            config.config_id, {"schedule_type": "EVENT_DRIVEN", "event_topic": "some-topic"}
        ),
    }
    ways[how]()
    assert desk.schedule_row(config.config_id) is None
    rows = desk.sql(f"SELECT slots, outcome FROM ledger WHERE config_id = {config.config_id}")
    assert [tuple(row) for row in rows] == [(5, "skipped_missed")]
