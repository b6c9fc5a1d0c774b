"""Breakers are listed, explained and reset, on both engines."""

from __future__ import annotations

import json

import pytest

from penstock.core.clock import MINUTE
from penstock.core.errors import NotFound
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.flows.breakers.records import BreakerTarget
from penstock.testing.clock import VirtualClock
from tests.kits.flows import DAY, Stage, chain

TARGET = BreakerTarget(
    pipeline="nba", partition=DAY, phase="raw", customer="acme", reason="the source is back"
)


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """Five flows of a partition whose first phase failed, and a sixth that is blocked."""
    made = Stage(store, clock, chain("raw", "analytics"))
    for _ in range(5):
        made.open(force=True)
        made.kill()
        made.step()
    made.open(force=True)
    return made


def test_list_and_show(stage: Stage, clock: VirtualClock) -> None:
    """An open breaker says since when, why, whom it holds up and what resets it."""
    breakers = stage.client.breakers
    (one,) = breakers.list().items
    assert (one.customer, one.pipeline, one.partition, one.phase) == ("acme", "nba", DAY, "raw")
    assert (one.state, one.failures) == ("OPEN", 5)
    assert breakers.list(phase="analytics").items == []
    assert len(breakers.list(customer="acme", pipeline="nba", partition=DAY).items) == 1
    clock.advance(20 * MINUTE)
    found = breakers.get("nba", DAY, "raw", customer="acme")
    assert found.text == (
        "Open for 20m after 5 failures in a row; a trial is allowed in 40m. A reset allows all "
        "starts immediately. It holds up 1 flow."
    )
    assert [f.kind for f in found.recent] == ["run"] * 5
    assert {f.text for f in found.recent} == {"VALIDATION_ERROR"}
    ((flow_id,),) = stage.sql("SELECT max(flow_id) FROM flows")
    assert found.blocked_flows == [encode("flow", flow_id)]
    assert found.command == f"penstock breakers reset nba {DAY} raw --customer acme"
    clock.advance(40 * MINUTE)
    assert breakers.get("nba", DAY, "raw", customer="acme").breaker.state == "HALF_OPEN"


def test_reset(stage: Stage) -> None:
    """A reset starts what was blocked, resolves the alert, and is audited and journalled."""
    (alert,) = [a for a in stage.client.alerts.list(state="open").items if a.rule == "breaker_open"]
    assert alert.detail["fix"] == f"penstock breakers reset nba {DAY} raw --customer acme"
    done = stage.client.breakers.reset(TARGET)
    assert (done.breaker.failures, len(done.flow_ids)) == (5, 1)
    assert stage.step().runs == 1, "the blocked flow goes on"
    assert stage.client.breakers.list(state="all").items == []
    ((rule,),) = stage.sql("SELECT state FROM alerts WHERE rule = 'breaker_open'")
    assert rule == "resolved"
    ((actor, reason, old),) = stage.sql(
        "SELECT actor, reason, old_values FROM audit WHERE action = 'BREAKER_RESET'"
    )
    assert (actor, reason, json.loads(old)["failures"]) == ("tester", "the source is back", 5)
    assert stage.sql("SELECT count(*) FROM journal WHERE action = 'breaker_reset'") == [(1,)]
    with pytest.raises(NotFound, match="breaker with failures nba 2025-11-16 raw of acme"):
        stage.client.breakers.reset(TARGET)


def test_a_dry_run_changes_nothing(stage: Stage) -> None:
    """It returns what a reset would, and the breaker stays open."""
    assert stage.client.dry_run().breakers.reset(TARGET).breaker.failures == 5
    assert len(stage.client.breakers.list().items) == 1


def test_pages(stage: Stage) -> None:
    """A closed breaker with failures is listed on request; pages continue where one ended."""
    stage.open(partition="2025-11-17")
    stage.kill()
    stage.step()
    first = stage.client.breakers.list(state="all", limit=1)
    rest = stage.client.breakers.list(state="all", limit=5, cursor=first.next_cursor)
    assert [one.partition for one in (*first.items, *rest.items)] == [DAY, "2025-11-17"]
    assert rest.items[0].state == "CLOSED"
    text = stage.client.breakers.get("nba", "2025-11-17", "raw", customer="acme").text
    assert text == "Closed with 1 failure; it opens after 4 more."
