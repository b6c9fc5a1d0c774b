"""Dry runs of bulk requests name the active configs that items duplicate, on both engines."""

from typing import Any

import pytest

from penstock.core.errors import NotFound
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg, new_configs
from tests.kits.plans import generic_plan, plan_of

HOURLY = {"pipeline_template": "nightly", "schedule_cron": "0 * * * *"}


def found(harness: Harness, *wanted: tuple[str, dict[str, Any]]) -> list[str | None]:
    """Return the ids of the configs that these duplicate."""
    outcomes = harness.client.configs.create_bulk(new_configs(list(wanted)), dry_run=True)
    assert [one.index for one in outcomes] == list(range(len(wanted)))
    return [one.config_id for one in outcomes]


def test_the_same_schedule_and_parameters(harness: Harness) -> None:
    """The oldest of several; spelling, labels of the schedule and order of keys do not matter."""
    first = harness.config(parameters={"days": 2})
    harness.config(parameters={"days": 2}, priority=7)
    every = harness.config(schedule_interval_minutes=15)
    event = harness.config(event_topic="orders", event_filter='attributes.a = "b"')
    before = harness.counts()
    assert found(
        harness,
        ("acme", {**HOURLY, "parameters": {"days": 2}, "priority": 1}),
        ("acme", {"pipeline_template": "nightly", "schedule_interval_minutes": 15.0}),
        ("acme", {"pipeline_template": "nightly", "event_topic": "orders",
                  "event_filter": 'attributes.a = "b"'}),
    ) == [cfg(first), cfg(every), cfg(event)]  # fmt: skip
    assert harness.counts() == before


def test_what_differs(harness: Harness) -> None:
    """Another customer, schedule, zone, input, label or topic; disabled and deleted configs."""
    harness.config(parameters={"days": 2})
    harness.config("off", is_active=False)
    harness.client.configs.delete(cfg(harness.config("gone")))
    given = {**HOURLY, "parameters": {"days": 2}}
    assert (
        found(
            harness,
            ("bolt", given),
            ("acme", {**given, "schedule_cron": "1 * * * *"}),
            ("acme", {**given, "timezone": "Asia/Tokyo"}),
            ("acme", {**given, "parameters": {"days": 3}}),
            ("acme", {**given, "provider": "AWS"}),
            ("acme", {"pipeline_template": "nightly", "event_topic": "orders"}),
            ("off", HOURLY),
            ("gone", HOURLY),
        )
        == [None] * 8
    )


def test_invalid_items_are_refused_as_before(harness: Harness) -> None:
    config = harness.config()
    wanted = new_configs([("acme", {**HOURLY, "priority": 99}), ("acme", HOURLY)])
    outcomes = harness.client.configs.create_bulk(wanted, dry_run=True)
    assert [one.status for one in outcomes] == ["refused", "checked"]
    assert [one.config_id for one in outcomes] == [None, cfg(config)]
    only = harness.client.configs.create_bulk(wanted[:1], dry_run=True)
    assert [one.status for one in only] == ["refused"]


def test_a_bulk_request_creates_duplicates(harness: Harness) -> None:
    """The API has no such rule: a caller that wants it asks by a dry run."""
    config = harness.config()
    (made,) = harness.client.configs.create_bulk(new_configs([("acme", HOURLY)]))
    assert made.status == "created"
    assert made.config_id not in (None, cfg(config))


def test_a_bound_caller_learns_nothing_of_others(harness: Harness) -> None:
    config = harness.config()
    harness.config("bolt", parameters={"days": 2})
    bound = harness.client.scoped("bolt").configs
    (outcome,) = bound.create_bulk(new_configs([("acme", HOURLY)]), dry_run=True)
    assert (outcome.status, outcome.code) == ("refused", NotFound.code)
    assert cfg(config) not in str(outcome)
    own = harness.client.scoped("acme").configs
    (outcome,) = own.create_bulk(new_configs([("acme", HOURLY)]), dry_run=True)
    assert outcome.config_id == cfg(config)


def test_one_statement_by_index(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request reads configs once, by the index of their customers."""
    reads = []
    inner = harness.store.read

    def counted(body: Any, *args: Any, **more: Any) -> Any:
        reads.append(body)
        return inner(body, *args, **more)

    found(harness, ("acme", HOURLY))  # declarations are cached from now on
    monkeypatch.setattr(harness.store, "read", counted)
    found(harness, *((f"c{n}", HOURLY) for n in range(100)))
    assert len(reads) == 1
    if harness.store.capabilities.engine == "postgres":
        many = [(f"c{n % 500}", {**HOURLY, "priority": 1 + n % 9}) for n in range(2_000)]
        harness.client.configs.create_bulk(new_configs(many))
        harness.sql("ANALYZE configs, customers")
        types = dict.fromkeys(("customers", "pipelines", "parameters", "crons"), "text[]")
        plan = generic_plan(harness.store, "config_get_like", types)
    else:
        plan = plan_of(harness.store, "config_get_like")
    assert "configs_for_customer" in plan, plan
