"""Removal of a config from the schedule: due occurrences are recorded."""

from collections.abc import Callable

import pytest

from penstock.core.clock import HOUR
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg, change_of


@pytest.mark.parametrize("how", ["disable", "delete", "event"])
def test_due_occurrences_are_recorded(harness: Harness, how: str) -> None:
    """When a config leaves the schedule, its due but unstarted occurrences go to the ledger."""
    config = harness.config()
    harness.clock.advance(5 * HOUR)
    ways: dict[str, Callable[[], object]] = {
        "disable": lambda: harness.client.configs.disable(cfg(config)),
        "delete": lambda: harness.client.configs.delete(cfg(config)),
        "event": lambda: harness.client.configs.update(
            cfg(config), change_of({"schedule_type": "EVENT_DRIVEN", "event_topic": "some-topic"})
        ),
    }
    ways[how]()
    assert harness.schedule_row(config.config_id) is None
    rows = harness.sql(f"SELECT slots, outcome FROM ledger WHERE config_id = {config.config_id}")
    assert [tuple(row) for row in rows] == [(5, "skipped_missed")]
