"""The health of customers: one customer, also for itself, and lists by filter and order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.access.store.registry import processor_list
from penstock.core.clock import HOUR
from penstock.core.errors import NotFound
from penstock.monitoring import health_refresher
from penstock.monitoring import store as reads
from penstock.monitoring.health_refresher import PASS_EVERY, HealthRefresher
from penstock.runs import attempt_result
from penstock.schedules.records import Config
from tests.kits.client_harness import Harness
from tests.kits.plans import plan_of

NIGHTLY = Config(pipeline="nightly", cron="0 2 * * *")


def refresh(harness: Harness) -> int:
    """Make a pass of the refresher; return how many customers changed."""
    harness.clock.advance(PASS_EVERY)
    return HealthRefresher(harness.store).run_once().changed


def named(harness: Harness, limit: int = 1, **filters: Any) -> list[str]:
    """Return the customers of all pages of a list."""
    found: list[str] = []
    cursor = None
    while True:
        page = harness.client.views.customers(limit=limit, cursor=cursor, **filters)
        found += [one.customer for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.fixture
def five(harness: Harness) -> Harness:
    """Return a client with a customer of each health except slow."""
    client = harness.client
    for name in ("acme", "globex", "initech", "umbrella", "wayne"):
        made = client.configs.create(name, NIGHTLY)
        if name in ("acme", "wayne"):
            client.configs.disable(made.config_id, reason="credentials expired")
    client.configs.create("wayne", NIGHTLY)
    client.pauses.pause("customer", "globex", reason="asked for it")
    harness.submit("nightly", customer="initech")
    harness.end(attempt_result.forced(harness.take(), actor="tester"))
    return harness


def test_a_customer_sees_its_own_health(harness: Harness) -> None:
    """Operators and the customer get what the list has; others do not find it."""
    client = harness.client
    off = client.configs.create("acme", NIGHTLY)
    client.configs.create("acme", Config(pipeline="nightly", cron="0 3 * * *"))
    client.configs.create("globex", NIGHTLY)
    client.configs.disable(off.config_id, reason="credentials expired")
    harness.submit("nightly", customer="acme")
    harness.submit("nightly", customer="acme")
    harness.complete(harness.take())
    harness.take()
    client.customers.set("acme", weight=3, concurrency=7)
    listed = {one.customer: one for one in client.views.customers().items}
    for name in ("acme", "globex"):
        assert client.views.customer_health(name) == listed[name]
        assert client.scoped(name).views.customer_health(name) == listed[name]
    acme = listed["acme"]
    assert (acme.health, acme.outcomes) == ("failing", "c")
    assert (acme.weight, acme.concurrency) == (3, 7)
    assert (acme.runs_today, acme.running, acme.dead_letters) == (1, 1, 0)
    with pytest.raises(NotFound):
        client.scoped("acme").views.customer_health("globex")
    with pytest.raises(NotFound):
        client.views.customer_health("unknown")


def test_a_customer_lists_itself(five: Harness) -> None:
    """A bound caller gets its own customer, if it fits; its current health decides."""
    views = five.client.scoped("acme").views
    assert [one.customer for one in views.customers(sort="trouble").items] == ["acme"]
    assert [one.customer for one in views.customers(health="off").items] == ["acme"]
    assert not views.customers(health="well").items
    assert not views.customers(q="globex").items
    theirs = five.client.configs.list(customer="globex").items[0].config_id
    assert not views.customers(q=theirs).items


def test_customers_are_filtered_by_stored_health(five: Harness) -> None:
    """Each customer is listed under its health and under no other, by page."""
    assert named(five, health="off") == []
    assert refresh(five) == 5
    assert refresh(five) == 0
    assert named(five, health="off") == ["acme"]
    assert named(five, health="failing") == ["wayne"]
    assert named(five, health="paused") == ["globex"]
    assert named(five, health="at_risk") == ["initech"]
    assert named(five, health="well") == ["umbrella"]
    assert named(five, health="slow") == []
    five.client.pauses.resume("customer", "globex")
    assert named(five, health="paused") == []  # the current health is shown
    assert refresh(five) == 1
    assert named(five, health="well") == ["globex", "umbrella"]


def test_customers_are_counted_by_health(five: Harness) -> None:
    """The counts are those of the last refresh."""
    assert five.client.views.customer_counts().well == 5
    refresh(five)
    counts = five.client.views.customer_counts()
    assert (counts.off, counts.failing, counts.at_risk, counts.slow) == (1, 1, 1, 0)
    assert (counts.paused, counts.well) == (1, 1)


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_order_of_customers(five: Harness, limit: int) -> None:
    """Customers are listed by name, worst health first, or by their next start."""
    client = five.client
    client.configs.create("umbrella", Config(pipeline="nightly", cron="30 1 * * *"))
    by_name = ["acme", "globex", "initech", "umbrella", "wayne"]
    assert named(five, limit) == named(five, limit, sort="name") == by_name
    assert named(five, limit, sort="trouble") == by_name  # not refreshed: all well, and listed
    refresh(five)
    worst_first = ["acme", "wayne", "initech", "globex", "umbrella"]
    assert named(five, limit, sort="trouble") == worst_first
    assert named(five, limit, sort="next")[0] == "umbrella"
    assert set(named(five, limit, sort="next")) == set(by_name) - {"acme"}
    assert named(five, limit, sort="next", health="well") == ["umbrella"]


def test_customers_are_found_by_their_configs(
    five: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipeline, provider and domain apply to one config, in every order, also by small blocks."""
    client = five.client
    made = client.configs.create(
        "umbrella", Config(pipeline="outside", cron="0 4 * * *", provider="AWS", domain="COST")
    )
    client.configs.create("acme", Config(pipeline="outside", cron="0 4 * * *", provider="GCP"))
    refresh(five)
    for block in (reads.BLOCK, 2):
        monkeypatch.setattr(reads, "BLOCK", block)
        for sort in ("name", "trouble", "next"):
            assert set(named(five, sort=sort, pipeline="outside")) == {"acme", "umbrella"}
            assert named(five, sort=sort, pipeline="outside", provider="AWS") == ["umbrella"]
            assert named(five, sort=sort, provider="GCP", domain="COST") == []
            assert named(five, sort=sort, q="um", domain="COST") == ["umbrella"]
            assert named(five, sort=sort, q=made.config_id) == ["umbrella"]
        assert named(five, sort="trouble", q="w") == ["wayne"]
    client.configs.delete(made.config_id)
    assert named(five, pipeline="outside") == ["acme"]


def test_a_page_reads_a_bounded_number_of_customers(
    five: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that finds nothing among the customers it may read is followed by another."""
    monkeypatch.setattr(reads, "BLOCK", 2)
    monkeypatch.setattr(reads, "CUSTOMERS_READ", 2)
    five.client.configs.create("wayne", Config(pipeline="outside", cron="0 4 * * *"))
    page = five.client.views.customers(pipeline="outside", limit=2)
    assert not page.items
    assert page.next_cursor is not None
    assert named(five, pipeline="outside") == ["wayne"]


def test_a_slow_processor_makes_a_customer_slow(harness: Harness) -> None:
    """An open anomaly of the duration is the reason; one that ended is not."""
    harness.client.configs.create("acme", NIGHTLY)
    (key,) = (row.processor_key for row in processors(harness) if row.pipeline == "nightly")

    def body(tx: Any) -> None:
        tx.run(
            "anomalies_add",
            batch=[(key, 1, "", "duration", 1, 7_560.0, None, 6_600.0, 3_000.0, 20, tx.now())],
        )

    harness.store.write(body)
    refresh(harness)
    (one,) = harness.client.views.customers(health="slow").items
    assert one.reason.endswith("took 2h6m, usually at most 1h50m")
    harness.store.write(lambda tx: tx.run("anomalies_end", batch=[(key, 1, "", "duration")]))
    assert harness.client.views.customer_health("acme").health == "well"


def processors(harness: Harness) -> Sequence[Any]:
    """Return the registered processors."""
    return harness.store.read(processor_list)


def test_processes_share_the_position(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of several processes together read all customers, none of them twice."""
    monkeypatch.setattr(health_refresher, "CHUNK", 1)
    monkeypatch.setattr(health_refresher, "SUSPECTS", 0)
    for name in ("acme", "globex", "initech", "umbrella"):
        made = harness.client.configs.create(name, NIGHTLY)
        harness.client.configs.disable(made.config_id, reason="credentials expired")
    replicas = [HealthRefresher(harness.store) for _ in range(2)]
    for number in range(4):
        harness.clock.advance(PASS_EVERY)
        assert replicas[number % 2].run_once().changed == 1


def test_a_paused_customer_does_not_stay_suspect(harness: Harness) -> None:
    """Its failing configs do not change that it is paused; it would displace other customers."""
    harness.config(customer="acme")
    harness.clock.advance(HOUR)
    harness.tick()
    harness.fail(harness.take())
    harness.client.pauses.pause("customer", "acme", reason="asked for it")
    harness.clock.advance(HOUR)
    assert refresh(harness) == 1
    harness.tick()
    refresh(harness)
    assert harness.store.read(lambda tx: reads.customers_suspect(tx, tx.now(), 9)) == []


def test_customers_are_listed_by_index(harness: Harness) -> None:
    """Every order reads an index in its order; a count reads one health."""
    bounds = {"after": "", "first": "", "last": "z", "most": 5, "after_place": 0, "rank_from": 0,
              "rank_to": 9, "is_by_config": False}  # fmt: skip
    for statement, index in (
        ("customers_by_name", "customer"),
        ("customers_by_health", "customers_by_health"),
        ("customers_by_next_start", "customers_by_next_start"),
    ):
        shown = plan_of(harness.store, statement, **bounds)
        assert index in shown, shown
    shown = plan_of(harness.store, "customers_with_health", health_rank=0, most=5)
    assert "customers_by_health" in shown, shown
