"""Partitions of scheduled runs and flows, on both engines: by the config's zone, and valid."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Pipeline, day, hour, month, week
from penstock.client import Client
from penstock.core.clock import DAY, parse_iso
from penstock.core.errors import InvalidInput
from penstock.core.ids import decode
from penstock.db.store import Store
from penstock.flows.gates.records import OverrideRequest
from penstock.flows.records import CompletionReport, FlowRequest
from penstock.flows.rows import FlowFilter
from penstock.flows.store.flows import flow_list
from penstock.runs.records import Submission
from penstock.runs.store.lists.pages import RunFilter, run_list_live
from penstock.schedules.cadence import cron, every
from penstock.schedules.preview import repeated_partition
from penstock.schedules.records import Config, ConfigChange, StoredConfig
from penstock.schedules.scheduler import Scheduler
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, work

EVENING = parse_iso("2025-12-31T18:30:00Z")


def single(declared: Any, name: str = "single") -> Pipeline:
    """Return a pipeline with one processor."""
    made = Pipeline(name, partition=declared)
    made.processor("job")(work)
    return made


def pair(declared: Any, name: str = "pair") -> Pipeline:
    """Return a pipeline whose occurrences open flows."""
    made = Pipeline(name, partition=declared)
    first = made.phase("first")
    first.processor("a")(work)
    made.phase("second", after=first).processor("b")(work)
    return made


class Night:
    """A stage at half past six in the evening, UTC, of the last day of the year."""

    def __init__(self, store: Store, clock: VirtualClock, *pipelines: Pipeline) -> None:
        clock.advance(EVENING - clock.now())
        self.clock = clock
        self.stage = Stage(store, clock, *pipelines)
        self.client: Client = self.stage.client
        self.store = store

    def create(self, pipeline: str, **fields: Any) -> StoredConfig:
        """Create a config that fires at 18:47 UTC by default."""
        given = {"cron": "47 18 * * *", **fields}
        return self.client.configs.create("acme", Config(pipeline=pipeline, **given))

    def fire(self) -> None:
        """Run everything that is due within a day."""
        self.clock.advance(DAY)
        Scheduler(self.store, clock=self.clock).run_once()

    def partitions(self) -> dict[str, str | None]:
        """Return the partition of each live run, by config."""
        runs = self.store.read(lambda tx: run_list_live(tx, RunFilter(limit=100)))
        return {str(run.config_id): run.partition for run in runs}


def test_runs_have_the_partition_of_their_config(store: Store, clock: VirtualClock) -> None:
    """Each config's own zone decides, in one batch, for cron and interval, by any rule."""
    night = Night(
        store, clock,
        single(day("d", offset=-1)), single(month(repeats=True), "monthly"), single(None, "plain"),
    )  # fmt: skip
    made = [
        (night.create("single"), "2025-12-30"),
        (night.create("single", cron="47 3 * * *", timezone="Asia/Tokyo"), "2025-12-31"),
        (night.create("monthly"), "2025-12"),
        (night.create("monthly", cron="47 3 1 * *", timezone="Asia/Tokyo"), "2026-01"),
        (night.create("plain"), None),
    ]
    night.fire()
    expected = {str(decode("cfg", config.config_id)): value for config, value in made}
    assert night.partitions() == expected


def test_an_interval_uses_the_zone_of_its_config(store: Store, clock: VirtualClock) -> None:
    night = Night(store, clock, single(day()))
    config = Config(pipeline="single", interval=timedelta(days=1), timezone="Asia/Tokyo")
    night.client.configs.create("acme", config)
    night.fire()
    assert list(night.partitions().values()) == ["2026-01-02"]


def test_a_start_by_hand_has_a_partition(store: Store, clock: VirtualClock) -> None:
    night = Night(store, clock, single(day()))
    config = night.create("single", timezone="Asia/Tokyo")
    night.client.configs.start(config.config_id)
    assert list(night.partitions().values()) == ["2026-01-01"]


def test_flows_process_the_day_of_their_config(store: Store, clock: VirtualClock) -> None:
    """An evening schedule processes its own day; a config elsewhere has that day of its own."""
    night = Night(store, clock, pair("d"))
    here = night.create("pair")
    there = night.create("pair", cron="47 3 * * *", timezone="Asia/Tokyo")
    previews = [
        (one.mode, one.partition)
        for config in (here, there)
        for one in night.client.configs.preview(config.config_id, 1).occurrences
    ]
    assert previews == [("daily", "2025-12-31"), ("daily", "2026-01-01")]
    night.fire()
    flows = store.read(lambda tx: flow_list(tx, FlowFilter()))
    found = {(flow.config_id, flow.mode, flow.partition) for flow in flows}
    assert found == {
        (decode("cfg", here.config_id), "daily", "2025-12-31"),
        (decode("cfg", there.config_id), "daily", "2026-01-01"),
    }


@pytest.mark.parametrize(
    ("cadence", "declared", "repeats"),
    [
        (cron("0 * * * *"), day(), True),
        (cron("0 9,17 * * *"), day(), True),
        (cron("0 9 * * *"), day(), False),
        (cron("0 9 * * 1-5"), day(), False),
        (cron("30 * * * *"), hour(), False),
        (cron("*/30 * * * *"), hour(), True),
        (cron("0 9 * * 1"), week(), False),
        (cron("0 9 * * 1,4"), week(), True),
        (cron("0 9 1 * *"), month(), False),
        (cron("0 9 1,15 * *"), month(), True),
        (every(DAY), day(), False),
        (every(DAY // 2), day(), True),
        (every(DAY // 24), hour(), False),
    ],
)
def test_which_schedules_repeat_a_partition(cadence: Any, declared: Any, repeats: bool) -> None:
    assert (repeated_partition(cadence, declared.rule) is not None) is repeats


def test_an_hourly_config_of_daily_partitions_must_say_so(
    store: Store, clock: VirtualClock
) -> None:
    night = Night(store, clock, pair("d"), pair(day("d", repeats=True), "often"))
    with pytest.raises(InvalidInput, match=r"at most one occurrence per day") as caught:
        night.create("pair", cron="0 * * * *")
    assert "repeats=True" in str(caught.value.fix)
    with pytest.raises(InvalidInput, match=r"interval: expected at most one .*, got '1h30m'\. "):
        night.client.configs.create("acme", Config(pipeline="pair", interval=timedelta(minutes=90)))
    daily = night.create("pair")
    with pytest.raises(InvalidInput, match="at most one occurrence per day"):
        night.client.configs.update(daily.config_id, ConfigChange(cron="0 * * * *"))
    night.client.configs.update(daily.config_id, ConfigChange(priority=7))
    assert night.create("often", cron="0 * * * *").is_active


@pytest.mark.parametrize("bad", ["2026-13-40", "2026-09-20..2026-10-19"])
def test_bad_partitions_are_refused_everywhere(store: Store, clock: VirtualClock, bad: str) -> None:
    """Triggers, backfills, previews, reports, submissions, overrides, checks, explanations."""
    client = Night(store, clock, pair("d"), single("d")).client
    calls: list[Any] = [
        lambda: client.flows.trigger(FlowRequest(pipeline="pair", partition=bad)),
        lambda: client.flows.trigger(FlowRequest(pipeline="pair", partition=bad, backfill=True)),
        lambda: client.previews.trigger(FlowRequest(pipeline="pair", partition=bad)),
        lambda: client.flows.complete(
            CompletionReport(pipeline="pair", processor="a", partition=bad)
        ),
        lambda: client.runs.submit(Submission(pipeline="single", partition=bad)),
        lambda: client.overrides.grant(
            OverrideRequest(pipeline="pair", partition=bad, reason="r", expires="1h")
        ),
        lambda: client.gates.check("pair", "second", partition=bad),
        lambda: client.diagnostics.explain("pair", bad),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match="partition: expected a day, such as 2025-12-31"):
            call()
    assert store.read(lambda tx: flow_list(tx, FlowFilter())) == []


def test_a_gate_of_an_unknown_processor(store: Store, clock: VirtualClock) -> None:
    """It has no needs, so a misspelt name would proceed."""
    client = Night(store, clock, pair("d")).client
    for processor in ("", "no_such"):
        with pytest.raises(InvalidInput, match="processor: expected a processor of phase second"):
            client.gates.check("pair", "second", processor=processor)


def test_an_empty_customer_is_not_the_default_one(store: Store, clock: VirtualClock) -> None:
    """A sender that lost its customer is refused, and nothing is written for another."""
    client = Night(store, clock, pair("d")).client
    day = "2026-09-20"
    calls: list[Any] = [
        lambda: client.flows.trigger(FlowRequest(pipeline="pair", partition=day, customer="")),
        lambda: client.previews.trigger(FlowRequest(pipeline="pair", partition=day, customer="")),
        lambda: client.flows.complete(
            CompletionReport(pipeline="pair", processor="a", partition=day, customer="")
        ),
        lambda: client.overrides.grant(
            OverrideRequest(pipeline="pair", partition=day, reason="r", expires="1h", customer="")
        ),
        lambda: client.gates.check("pair", "second", partition=day, customer=""),
        lambda: client.diagnostics.explain("pair", day, customer=""),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match="customer_id: expected 1 to 128"):
            call()
    assert store.read(lambda tx: flow_list(tx, FlowFilter())) == []
