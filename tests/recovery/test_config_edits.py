"""Configs by filter: which ones fire in a window, and changing many of them with a preview."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.core.errors import InvalidInput
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import day
from penstock.recovery.records import ConfigEdit
from penstock.schedules.records import Config, ConfigChange, NewConfig
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from tests.recovery.kit import Services

AT = datetime(2025, 11, 18, 3, tzinfo=UTC)


def pipelines() -> list[Pipeline]:
    """Return a pipeline by day, and one without partitions."""
    daily, often = Pipeline("daily", partition=day()), Pipeline("often")
    for one in (daily, often):

        @one.processor
        def work(run: RunContext) -> None:
            """Do nothing."""

    return [daily, often]


def test_the_cron_of_many_customers(store: Store, clock: VirtualClock) -> None:
    """A preview lists every change; the change is made in steps, checked and audited each."""
    services = Services(store, clock, *pipelines())
    client = services.client.as_actor("ann")
    configs = [NewConfig(customer=f"c{n:03}", pipeline="daily", cron="0 2 * * *")
               for n in range(70)]  # fmt: skip
    client.configs.create_many(configs)
    client.configs.create("c000", Config(pipeline="daily", cron="0 5 * * *"))
    wanted: dict[str, Any] = {
        "pipeline": "daily", "cron": "0 2 * * *", "change": ConfigChange(cron="0 3 * * *"),
        "limit": 50,
    }  # fmt: skip
    seen = client.recovery.edit_configs(ConfigEdit(**wanted, is_dry_run=True))
    assert (seen.matched, len(seen.changed), seen.refused) == (70, 50, [])
    assert seen.changed[0].before == {"schedule_cron": "0 2 * * *"}
    assert seen.changed[0].after == {"schedule_cron": "0 3 * * *"}
    assert seen.impact.text == "50 of 50 configs change (schedule_cron), 0 are refused; 70 match."
    assert client.configs.get(seen.changed[0].config_id).cron == "0 2 * * *"
    first = client.recovery.edit_configs(ConfigEdit(**wanted, reason="the source is late"))
    last = client.recovery.edit_configs(
        ConfigEdit(**wanted, after=first.next_after, reason="the source is late")
    )
    assert (len(first.changed), len(last.changed), last.next_after) == (50, 20, None)
    crons = [str(one.cron) for one in client.configs.list(limit=100).items]
    assert sorted(crons) == ["0 3 * * *"] * 70 + ["0 5 * * *"]
    entry = client.configs.audit("c001").items[-1]
    assert (entry.action, entry.changed_by, entry.reason) == (
        "UPDATED", "ann", "the source is late",
    )  # fmt: skip


def test_a_change_that_some_refuse(store: Store, clock: VirtualClock) -> None:
    """A config that the change cannot be applied to is refused with the reason."""
    services = Services(store, clock, *pipelines())
    client = services.client
    for pipeline in ("daily", "often"):
        client.configs.create("acme", Config(pipeline=pipeline, cron="0 2 * * *"))
    change = ConfigChange(cron="0 * * * *")
    done = client.recovery.edit_configs(ConfigEdit(customer="acme", change=change))
    assert [one.pipeline for one in done.changed] == ["often"]
    assert "at most one occurrence per day" in done.refused[0].why
    same = client.recovery.edit_configs(ConfigEdit(customer="acme", change=change))
    assert (same.changed, same.unchanged, len(same.refused)) == ([], 1, 1)
    with pytest.raises(InvalidInput, match="at least one of"):
        client.recovery.edit_configs(ConfigEdit(change=change))


def test_which_configs_fire_in_a_window(store: Store, clock: VirtualClock) -> None:
    """By cron in its own zone, by interval, with jitter; pages continue."""
    services = Services(store, clock, *pipelines())
    client = services.client

    def made(customer: str, **terms: Any) -> str:
        config = Config(pipeline="often", **terms)
        return client.configs.create(customer, config).config_id

    three = made("acme", cron="0 3 * * *", jitter=timedelta(minutes=5))
    berlin = made("acme", cron="0 4 * * *", timezone="Europe/Berlin")
    made("acme", cron="30 3 * * *")
    every = made("globex", interval=timedelta(minutes=15))
    client.configs.disable(made("globex", cron="0 3 * * *"))
    found = client.configs.due(AT).items
    assert [one.config_id for one in found] == [three, berlin, every]
    assert {one.at for one in found} == {AT}
    assert AT <= found[0].starts_at < AT + timedelta(minutes=5)
    hour = client.configs.due(AT, AT + timedelta(hours=1))
    assert [one.occurrences for one in hour.items] == [1, 1, 1, 4]
    first = client.configs.due(AT, limit=2)
    rest = client.configs.due(AT, limit=2, cursor=first.next_cursor)
    assert [one.config_id for one in (*first.items, *rest.items)] == [three, berlin, every]
    assert [one.config_id for one in client.configs.due(AT, customer="globex").items] == [every]
    with pytest.raises(InvalidInput, match="at most 32 days"):
        client.configs.due(AT, AT - timedelta(hours=1))
