"""Lists of configs by health, by the beginning of their customer's id, and by next start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.core.clock import to_datetime
from penstock.core.errors import InvalidInput
from penstock.schedules.records import Config
from tests.kits.client_harness import Harness
from tests.kits.plans import plan_of

HEALTH = ("well", "at_risk", "failing", "off", "paused")


@pytest.fixture
def five(harness: Harness) -> Harness:
    """Return a client with a config of each health; the customer is named after it."""
    client = harness.client
    for name in HEALTH:
        made = client.configs.create(name, Config(pipeline="nightly", cron="0 2 * * *"))
        for _ in range({"at_risk": 1, "failing": 3}.get(name, 0)):
            fail(harness, made.config_id)
        if name == "off":
            client.configs.disable(made.config_id, reason="credentials expired")
        if name == "paused":
            client.pauses.pause("config", made.config_id, reason="asked for it")
    return harness


def fail(harness: Harness, config_id: str) -> None:
    """Start a config as its schedule does and let its run fail for good."""
    harness.client.configs.start(config_id, trigger_source="scheduler")
    harness.fail(harness.take())


def listed(harness: Harness, **filters: Any) -> list[str]:
    """Return the customers of the configs of all pages."""
    found: list[str] = []
    cursor = None
    while True:
        page = harness.client.configs.list(limit=1, cursor=cursor, **filters)
        found += [one.customer for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_configs_by_health(five: Harness) -> None:
    """Each config is listed under the health that its record has, and under no other."""
    assert [one.health for one in five.client.configs.list().items] == list(HEALTH)
    for health in HEALTH:
        assert listed(five, health=health) == [health]
        assert listed(five, health=health, pipeline="outside") == []
        assert listed(five, health=health, customer_prefix="x") == []
    bound = five.client.scoped("well").configs
    assert [one.customer for one in bound.list(health="well").items] == ["well"]
    assert not bound.list(health="off").items


def test_a_prefix_continues_after_a_config(harness: Harness) -> None:
    """The order is by customer, so the position of a config is that of its customer."""
    configs, wanted = harness.client.configs, Config(pipeline="nightly", cron="0 2 * * *")
    made = [configs.create(name, wanted).config_id for name in ("pb", "pa", "pb", "pa")]
    order = [made[1], made[3], made[0], made[2]]
    for number, config_id in enumerate(order):
        found = configs.list(customer_prefix="p", after=config_id).items
        assert [one.config_id for one in found] == order[number + 1 :]


def test_configs_by_customer_prefix(five: Harness) -> None:
    """The beginning of an id finds customers in order of their ids, also with other orders."""
    client = five.client
    for name in ("pa", "off"):
        client.configs.create(name, Config(pipeline="outside", cron="0 1 * * *"))
    assert listed(five, customer_prefix="pa") == ["pa", "paused"]
    assert listed(five, customer_prefix="off") == ["off", "off"]
    assert listed(five, customer_prefix="pa", pipeline="outside") == ["pa"]
    assert listed(five, customer_prefix="pa", sort="next_run_time") == ["pa", "paused"]
    assert listed(five, customer_prefix="nobody") == []
    assert [
        one.customer for one in client.scoped("pa").configs.list(customer_prefix="p").items
    ] == ["pa"]


def test_configs_due_before(five: Harness) -> None:
    """Only configs whose next start is before a time are listed, soonest first."""
    first = five.client.configs.list(sort="next_run_time", limit=1).items[0].next_run_time
    assert first is not None
    assert listed(five, due_before=first) == []
    assert len(listed(five, due_before=first + timedelta(seconds=1))) == 4
    assert to_datetime(five.clock.now()) < first


def test_filters_that_exclude_each_other(harness: Harness) -> None:
    """Health has an order of its own, and `is_failing` is a health."""
    configs = harness.client.configs
    with pytest.raises(InvalidInput, match="no sort by next_run_time"):
        configs.list(health="well", sort="next_run_time")
    with pytest.raises(InvalidInput, match="no is_failing"):
        configs.list(health="well", is_failing=True)


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("config_list_in_trouble", "config_health_failing"),
        ("config_list_off", "configs_off"),
        ("config_list_named", "configs_for_customer"),
    ],
)
def test_configs_are_listed_by_index(harness: Harness, statement: str, index: str) -> None:
    """Configs in another state, or of other customers, are not read."""
    given = {"after": 0, "limit": 5, "failures_from": 1, "failures_to": 2, "after_customer": "",
             "first": "a", "last": "b"}  # fmt: skip
    shown = plan_of(harness.store, statement, **given)
    assert index in shown, shown
