"""`verify` finds defects of the engine itself: each test removes one safeguard and lets it work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.bus.store import messages
from penstock.core.clock import HOUR
from penstock.db.store import Store
from penstock.flows.advance import store as advance_store
from penstock.flows.advance import write
from penstock.flows.store import completions
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, chain

Patch = pytest.MonkeyPatch


def completions_are_dropped(patch: Patch) -> None:
    """The end of a run does not complete its processor."""
    patch.setattr(completions, "completion_from_runs", lambda *_: 0)


def ends_of_flows_are_not_stored(patch: Patch) -> None:
    """The journal has the end of a flow, the flow does not."""
    patch.setattr(write, "flow_end_many", lambda *_: None)


def starts_are_not_stored(patch: Patch) -> None:
    """Runs of a phase are created without the row that makes its start unique."""
    patch.setattr(
        write, "trigger_put_many", lambda _, rows: {(r.flow_id, r.phase, r.processor) for r in rows}
    )


def entries_are_not_written(patch: Patch) -> None:
    """The orchestrator acts without a word in the journal."""
    patch.setattr(write, "journal_append_many", lambda *_: None)


def runs_are_lost(patch: Patch) -> None:
    """A run is removed in the transaction that created it."""
    insert = vars(advance_store)["run_insert_many"]

    def lose(tx: Any, rows: Any, *args: Any, **more: Any) -> Any:
        made = insert(tx, rows, *args, **more)
        tx._connection.execute("DELETE FROM runs")
        return made

    patch.setattr(advance_store, "run_insert_many", lose)


def deliveries_are_not_made(patch: Patch) -> None:
    """A message is stored and reaches no subscription."""
    patch.setattr(messages, "_fan_out", lambda *_: set())


BUGS: list[tuple[Callable[[Patch], None], str]] = [
    (completions_are_dropped, "completion_missing"),
    (ends_of_flows_are_not_stored, "flow_state"),
    (starts_are_not_stored, "entry_without_start"),
    (entries_are_not_written, "start_without_entry"),
    (runs_are_lost, "run_lost"),
    (deliveries_are_not_made, "delivery_missing"),
]


def test_found(store: Store, clock: VirtualClock) -> None:
    """Every defect is reported by its kind, next to those of the tests before it."""
    stage = Stage(store, clock, chain("raw", "predict"))
    stage.client.topics.create(Topic(name="orders"))
    stage.client.subscriptions.declare(Subscription(name="billing", topic="orders"))
    clock.advance(HOUR)

    def work(day: int) -> None:
        stage.open(partition=f"2025-12-{day:02}")
        stage.run_off()
        stage.client.topics.publish("orders", [NewMessage(data=b"1")])

    work(1)
    assert stage.client.views.verify().problems == []
    for day, (seed, kind) in enumerate(BUGS, start=2):
        known = {(one.kind, one.subject) for one in stage.client.views.verify().problems}
        with pytest.MonkeyPatch.context() as patch:
            seed(patch)
            work(day)
        found = {(one.kind, one.subject) for one in stage.client.views.verify().problems} - known
        assert kind in {one for one, _ in found}, seed.__doc__
