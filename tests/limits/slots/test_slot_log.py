"""Slots are logged: what was taken after which wait, what was released, and what went wrong."""

import logging

import pytest

from penstock import limits
from penstock.core.errors import LimitTimeout
from penstock.db.store import Store
from penstock.limits.slots.broker import Broker
from penstock.runs.store.logs import run_log_list
from penstock.testing.clock import VirtualClock
from tests.limits.slots.test_in_runs import Stage


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock.limits")


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return (level, message) of the records about slots."""
    found = [one for one in caplog.records if one.name == "penstock.limits"]
    return [(one.levelname, one.getMessage()) for one in found]


@pytest.mark.usefixtures("still")
def test_a_slot_from_taking_to_release(caplog: pytest.LogCaptureFixture) -> None:
    """A slot that is free at once is logged at DEBUG, with its token."""
    with limits.slot("x", capacity=1) as slot:
        token = slot.token
    assert logged(caplog) == [
        ("DEBUG", f"slot of limit x taken after 0.0 s (token {token})"),
        ("DEBUG", f"slot of limit x released (token {token})"),
    ]


def test_a_run_that_waits(store: Store, clock: VirtualClock, still: Broker) -> None:
    """The log of a run says that it waited for a slot and when it got one."""
    holder = limits.slot("x", capacity=1).acquire()
    stage = Stage(store, clock)
    stage.work()
    holder.release()
    stage.work()
    found = store.read(lambda tx: run_log_list(tx, stage.run_id))
    messages = [one.message for one in found if one.logger == "penstock.limits"]
    assert messages[0] == "the run returns to the queue until limit x has a slot for it"
    assert any(message.startswith("slot of limit x taken after") for message in messages)
    assert still.store is store


def test_failures_are_warnings(caplog: pytest.LogCaptureFixture, still: Broker) -> None:
    """A timeout and a quota error are logged as warnings with the name of the limit."""
    holder = limits.slot("x", capacity=1).acquire()
    with pytest.raises(LimitTimeout):
        limits.slot("x", timeout="10s").acquire()
    holder.quota_error()
    warnings = [message for level, message in logged(caplog) if level == "WARNING"]
    assert len(warnings) == 2
    assert warnings[0].startswith("no slot: ")
    assert warnings[1].startswith("quota error of limit x reported by ")
    assert still.held_leases
