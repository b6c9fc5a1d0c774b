"""Generations, on both engines: whose they are, what they supersede, what outlives pruning."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, day, same_day
from penstock.core.clock import DAY as DAY_US
from penstock.core.clock import HOUR, MINUTE
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import decode, encode
from penstock.db.store import Store, Tx
from penstock.flows.records import CompletionReport, FlowRequest
from penstock.flows.rows import FlowFilter, FlowRow
from penstock.flows.store.flows import flow_list
from penstock.pipelines.partition import DeclaredPartition, text
from penstock.runs import attempt_result
from penstock.runs.attempt_result import AttemptFailure
from penstock.runs.rows import HeldRun
from penstock.runs.store.finish import run_end_many, run_lapse_many, run_release_many
from penstock.schedules.records import Config
from penstock.schedules.scheduler import Scheduler
from penstock.services.store import Retention, prune
from penstock.testing.clock import VirtualClock
from tests.kits.flows import DAY, Stage, work

SHORT = Retention(flows_us=HOUR)


def sales() -> Pipeline:
    """Two phases; the second publishes once a table has arrived."""
    made = Pipeline("sales", partition=day("d", repeats=True), warehouse="w")
    load = made.phase("load")
    load.processor("loader")(work)
    publish = made.phase("publish", after=load)
    publish.processor("publisher", needs=[same_day("t.orders", shared=True)])(work)
    return made


class Shop:
    """A stage with the pipeline `sales` of acme, and configs that fire every hour."""

    def __init__(self, store: Store, clock: VirtualClock, configs: int = 1) -> None:
        self.stage = Stage(store, clock, sales())
        self.client = self.stage.client
        self.clock = clock
        self.configs = [self.config() for _ in range(configs)]

    def config(self, **fields: Any) -> str:
        """Create a config and return its id."""
        given = {"cron": "0 * * * *", **fields}
        return self.client.configs.create("acme", Config(pipeline="sales", **given)).config_id

    def fire(self) -> list[FlowRow]:
        """Fire once; return the flows that it opened."""
        before = {flow.flow_id for flow in self.flows()}
        self.clock.advance(HOUR)
        Scheduler(self.stage.store, clock=self.clock).run_once()
        return [flow for flow in self.flows() if flow.flow_id not in before]

    def flows(self) -> list[FlowRow]:
        """Return all flows, oldest first."""
        return self.stage.store.read(lambda tx: flow_list(tx, FlowFilter()))[::-1]

    def request(self, partition: str, **fields: Any) -> FlowRequest:
        """Return a request for a flow of acme."""
        return FlowRequest(pipeline="sales", customer="acme", partition=partition, **fields)

    def alerts(self) -> list[str]:
        """Return the rules of the open alerts."""
        return [row[0] for row in self.stage.sql("SELECT rule FROM alerts WHERE state = 'open'")]


def end_badly(tx: Tx, held: HeldRun, way: str) -> None:
    """End an attempt in a way that starts the run again."""
    failure = AttemptFailure(error_type="TRANSIENT_NETWORK")
    ends = {
        "transient": attempt_result.failed(held, failure, jitter=0.0),
        "timeout": attempt_result.timed_out(held, jitter=0.0),
        "stale": attempt_result.stale(held, jitter=0.0),
    }
    if way in ends:
        (ended,) = run_end_many(tx, [ends[way]])
        assert ended.retry_run_id is None
    elif way == "release":
        assert run_release_many(tx, [(held.run_id, held.token, 0)])
    else:
        assert run_lapse_many(tx, [(held.run_id, held.token)])


@pytest.fixture
def shop(store: Store, clock: VirtualClock) -> Shop:
    return Shop(store, clock)


class TestOwner:
    """Which config, mode and number a flow opened manually has."""

    def test_it_belongs_to_the_only_active_config(self, shop: Shop) -> None:
        """The scheduled flow is generation 1, the repair by hand generation 2 of the same key."""
        (scheduled,) = shop.fire()
        request = shop.request(scheduled.partition, force=True)
        preview = shop.client.previews.trigger(request)
        opened = shop.client.flows.trigger(request)
        assert opened.flow.config_id == shop.configs[0] == preview.config_id
        found = (opened.flow.mode, opened.flow.generation)
        assert found == ("daily", 2) == (preview.mode, preview.generation)

    def test_without_force_the_scheduled_flow_is_returned(self, shop: Shop) -> None:
        (scheduled,) = shop.fire()
        found = shop.client.flows.trigger(shop.request(scheduled.partition))
        assert (found.is_new, found.flow.flow_id) == (False, encode("flow", scheduled.flow_id))
        assert len(shop.flows()) == 1

    def test_the_first_flow_of_a_partition_is_manual(self, shop: Shop) -> None:
        opened = shop.client.flows.trigger(shop.request(DAY))
        assert (opened.flow.mode, opened.flow.generation) == ("manual", 1)

    def test_one_of_several_must_be_named(self, store: Store, clock: VirtualClock) -> None:
        shop = Shop(store, clock, configs=2)
        with pytest.raises(InvalidInput, match="config: expected one of the active") as caught:
            shop.client.flows.trigger(shop.request(DAY))
        assert f"--config-id {shop.configs[0]}" in str(caught.value.fix)
        opened = shop.client.flows.trigger(shop.request(DAY, config=shop.configs[1]))
        assert opened.flow.config_id == shop.configs[1]

    def test_a_foreign_config_does_not_exist(self, shop: Shop) -> None:
        other = shop.client.configs.create("other", Config(pipeline="sales", cron="0 * * * *"))
        with pytest.raises(NotFound):
            shop.client.flows.trigger(shop.request(DAY, config=other.config_id))

    def test_a_disabled_config_keeps_its_partition(self, shop: Shop) -> None:
        """After five failures the config is off; the repair still follows its generation 1."""
        (scheduled,) = shop.fire()
        shop.client.configs.disable(shop.configs[0])
        opened = shop.client.flows.trigger(shop.request(scheduled.partition, force=True))
        assert (opened.flow.config_id, opened.flow.generation) == (shop.configs[0], 2)

    def test_numbers_from_before_the_config_are_not_given_again(
        self, store: Store, clock: VirtualClock
    ) -> None:
        shop = Shop(store, clock, configs=0)
        partition = "2025-11-17"
        first = shop.client.flows.trigger(shop.request(partition, mode="daily"))
        assert (first.flow.config_id, first.flow.generation) == (None, 1)
        shop.config()
        (scheduled,) = shop.fire()
        assert (scheduled.partition, scheduled.mode) == (partition, "daily")
        assert scheduled.generation == 2

    def test_parameters_come_from_the_config(self, store: Store, clock: VirtualClock) -> None:
        shop = Shop(store, clock, configs=0)
        shop.config(parameters={"region": "eu"})
        shop.client.flows.trigger(shop.request(DAY))
        (held,) = shop.stage.claim("loader").values()
        assert held.parameters == '{"region": "eu"}'

    def test_the_schedule_does_not_wait_for_work_by_hand(self, shop: Shop) -> None:
        """Overlap skip looks at scheduled flows only: a repair must not skip today's flow."""
        shop.client.flows.trigger(shop.request(DAY))
        assert len(shop.fire()) == 1


class TestRepeatedReports:
    """A completion reported again after its flow completed opens no generation."""

    @pytest.fixture
    def stage(self, store: Store, clock: VirtualClock) -> Stage:
        return self.staged(store, clock, day("day"))

    def staged(
        self, store: Store, clock: VirtualClock, partition: DeclaredPartition | None
    ) -> Stage:
        options: Any = {} if partition is None else {"partition": partition}
        made = Pipeline("nba", warehouse="w", **options)
        raw = made.phase("raw")
        raw.external("far")
        made.phase("analytics", after=raw).processor("an")(work)
        return Stage(store, clock, made)

    def report(self, stage: Stage, **fields: Any) -> str:
        """Report the completion, let everything run off, and return the outcome."""
        given = {"records": 5, "entities": {"game": [1]}, **fields}
        made = CompletionReport(
            pipeline="nba", processor="far", partition=DAY, customer="acme", **given
        )
        outcome = stage.client.flows.complete(made).outcome
        stage.run_off()
        return outcome

    def test_without_an_execution_id(self, stage: Stage) -> None:
        assert self.report(stage) == "opened"
        stage.clock.advance(9 * MINUTE)
        assert self.report(stage) == "known"
        assert stage.sql("SELECT generation, state FROM flows") == [(1, "COMPLETE")]
        (flow,) = stage.client.flows.list().items
        journal = stage.client.flows.get(flow.flow_id).journal
        assert [one.action for one in journal].count("report_repeated") == 1, "it is visible"
        stage.clock.advance(2 * MINUTE)
        assert self.report(stage) == "opened", "the time has passed"
        assert self.report(stage) == "known"

    @pytest.mark.parametrize("partition", [None, text("day"), day("day", repeats=True)])
    def test_partitions_that_may_repeat(
        self, store: Store, clock: VirtualClock, partition: DeclaredPartition | None
    ) -> None:
        stage = self.staged(store, clock, partition)
        for _ in range(3):
            assert self.report(stage) == "opened"
            clock.advance(4 * MINUTE)

    def test_after_a_cancelled_flow(self, stage: Stage) -> None:
        made = CompletionReport(pipeline="nba", processor="far", partition=DAY, customer="acme")
        opened = stage.client.flows.complete(made)
        assert opened.flow_id is not None
        stage.client.flows.cancel(opened.flow_id, reason="bad input")
        stage.clock.advance(2 * MINUTE)
        assert stage.client.flows.complete(made).outcome == "opened"

    def test_after_a_failed_flow(self, stage: Stage) -> None:
        assert self.report(stage) == "opened"
        stage.sql("UPDATE flows SET state = 'FAILED'")
        assert self.report(stage) == "opened"

    @pytest.mark.parametrize(
        "other",
        [
            {"records": 6},
            {"status": "partial"},
            {"entities": {"game": [2]}},
            {"correlation_id": "again"},
            {"metadata": {"file": "b"}},
            {"execution_id": "two"},
        ],
    )
    def test_another_report_is_another_execution(self, stage: Stage, other: Any) -> None:
        assert self.report(stage) == "opened"
        assert self.report(stage, **other) == "opened"

    def test_with_an_execution_id(self, stage: Stage) -> None:
        assert self.report(stage, execution_id="one") == "opened"
        stage.clock.advance(DAY_US)
        assert self.report(stage, execution_id="one") == "known"

    def test_a_rerun_by_hand(self, stage: Stage) -> None:
        assert self.report(stage) == "opened"
        assert stage.open(mode=None, force=True).is_new
        assert self.report(stage) == "taken"


class TestSuperseding:
    """A new generation by hand replaces older open ones."""

    def blocked(self, shop: Shop) -> FlowRow:
        """Open a scheduled flow that waits for its table before it publishes."""
        (scheduled,) = shop.fire()
        shop.stage.rows["t.orders"] = 0
        shop.stage.run_off()
        assert shop.stage.states(scheduled)["publish"] == "WAITING"
        return scheduled

    def test_what_explain_prints_publishes_once(self, shop: Shop) -> None:
        scheduled = self.blocked(shop)
        printed = shop.client.diagnostics.explain(
            "sales", scheduled.partition, customer="acme"
        ).actions
        (command,) = [one.command for one in printed if one.command.startswith("penstock trigger")]
        assert f"publish --mode daily --config-id {shop.configs[0]}" in command
        request = shop.request(
            scheduled.partition, mode="daily", config=shop.configs[0], phases=["publish"]
        )
        old = encode("flow", scheduled.flow_id)
        preview = shop.client.previews.trigger(request)
        assert preview.superseded == [old]
        assert f"supersedes {old} (generation 1)" in preview.text
        opened = shop.client.flows.trigger(request)
        assert opened.superseded == [old]
        shop.stage.rows["t.orders"] = 5
        for _ in range(3):
            shop.clock.advance(HOUR)
            shop.stage.run_off()
        number = decode("flow", opened.flow.flow_id)
        published = [row for row in shop.stage.triggers() if row[1] == "publish"]
        assert [row[0] for row in published] == [number]
        assert shop.stage.state(scheduled) == "CANCELLED"
        journal = shop.client.flows.get(old).journal
        assert "superseded by a new generation that tester opened" in str(journal)

    def test_the_list_says_so(self, shop: Shop) -> None:
        """A flow's record has the recorded reason, also for a caller of one customer."""
        scheduled = self.blocked(shop)
        newer = shop.client.flows.trigger(shop.request(scheduled.partition, force=True)).flow
        other = shop.client.flows.trigger(shop.request(DAY)).flow
        silent = shop.client.flows.trigger(shop.request("2025-01-01")).flow
        typed = "superseded supplier file: the data is wrong"
        shop.client.flows.cancel(other.flow_id, typed)
        shop.client.flows.cancel(silent.flow_id)
        why = "superseded by a new generation that tester opened manually"
        expected = {
            encode("flow", scheduled.flow_id): (why, True),
            newer.flow_id: (None, False),
            other.flow_id: (typed, False),
            silent.flow_id: (None, False),
        }
        shop.clock.advance(40 * DAY_US)
        for client in (shop.client, shop.client.scoped("acme")):
            found = {
                one.flow_id: (one.cancel_reason, one.is_superseded)
                for one in client.flows.list(customer="acme").items
            }
            assert found == expected
            old = client.flows.get(encode("flow", scheduled.flow_id)).flow
            assert (old.state, old.cancel_reason) == ("CANCELLED", why)

    def test_pending_runs_are_cancelled(self, shop: Shop) -> None:
        (scheduled,) = shop.fire()
        shop.stage.step()
        shop.client.flows.trigger(shop.request(scheduled.partition, force=True))
        live = shop.stage.sql("SELECT flow_id FROM runs WHERE state = 'PENDING'")
        assert scheduled.flow_id not in {row[0] for row in live}
        assert len(live) == 1

    @pytest.mark.parametrize("way", ["transient", "timeout", "stale", "release", "lapse"])
    def test_runs_in_progress_do_not_start_again(self, shop: Shop, way: str) -> None:
        """Only the new generation's run can be claimed, however the older one's ends."""
        (scheduled,) = shop.fire()
        held = shop.stage.claim("loader", start=way != "lapse")["loader"]
        shop.client.flows.trigger(shop.request(scheduled.partition, force=True))
        shop.stage.write(lambda tx: end_badly(tx, held, way))
        shop.clock.advance(6 * MINUTE)
        shop.stage.step()
        claimed = shop.stage.claim("loader")["loader"]
        assert shop.stage.sql("SELECT run_id FROM runs") == [(claimed.run_id,)]
        assert claimed.flow_id != scheduled.flow_id
        ended = shop.client.runs.detail(encode("run", held.run_id))
        assert ended.run.state == "CANCELLED"
        why = "superseded by a new generation that tester opened manually"
        last = ended.journal[-1]
        assert (last.action, last.actor, last.why) == ("ended", "tester", why)
        assert shop.client.dead_letters.list().items == []

    def test_runs_in_progress_may_complete(self, shop: Shop) -> None:
        (scheduled,) = shop.fire()
        held = shop.stage.claim("loader")["loader"]
        shop.client.flows.trigger(shop.request(scheduled.partition, force=True))
        asked = "SELECT cancel_requested_at FROM runs WHERE cancel_requested_at IS NOT NULL"
        assert shop.stage.sql(asked) == []
        shop.stage.end(held)
        assert shop.client.runs.get(encode("run", held.run_id)).state == "COMPLETED"

    def test_a_cancelled_flow_retries_nothing(self, shop: Shop) -> None:
        """Also if its worker does not know of the request to stop."""
        (scheduled,) = shop.fire()
        held = shop.stage.claim("loader")["loader"]
        shop.client.flows.cancel(encode("flow", scheduled.flow_id), "wrong day")
        shop.stage.write(lambda tx: end_badly(tx, held, "transient"))
        assert shop.stage.sql("SELECT run_id FROM runs") == []
        ended = shop.client.runs.detail(encode("run", held.run_id))
        assert (ended.run.state, ended.run.error_type) == ("CANCELLED", "TRANSIENT_NETWORK")
        assert ended.journal[-1].why == "wrong day"

    def test_keep_older(self, shop: Shop) -> None:
        scheduled = self.blocked(shop)
        request = shop.request(scheduled.partition, force=True, keep_older=True)
        assert shop.client.previews.trigger(request).superseded == []
        assert shop.client.flows.trigger(request).superseded == []
        assert shop.stage.state(scheduled) == "OPEN"

    def test_other_partitions_and_modes_go_on(self, shop: Shop) -> None:
        scheduled = self.blocked(shop)
        shop.client.flows.trigger(shop.request(DAY, force=True))
        shop.client.flows.trigger(shop.request(scheduled.partition, mode="backfill"))
        assert shop.stage.state(scheduled) == "OPEN"

    def test_a_repair_closes_the_alert_of_the_older_generation(self, shop: Shop) -> None:
        """Generation 1 failed at its deadline; its alert ends when generation 2 has succeeded."""
        scheduled = self.blocked(shop)
        shop.clock.advance(2 * DAY_US)
        shop.stage.step()
        assert shop.stage.state(scheduled) == "FAILED"
        assert "flow_failed" in shop.alerts()
        shop.stage.rows["t.orders"] = 5
        opened = shop.client.flows.trigger(shop.request(scheduled.partition, force=True))
        assert opened.flow.generation == 2
        assert "flow_failed" in shop.alerts()
        shop.stage.run_off()
        number = decode("flow", opened.flow.flow_id)
        assert shop.stage.rows_of(number).flow.state == "COMPLETE"
        assert shop.alerts() == []


class TestPruning:
    """What is remembered about flows that are gone."""

    def prune(self, shop: Shop) -> None:
        """Delete ended flows."""
        shop.clock.advance(DAY_US)
        shop.stage.write(lambda tx: prune(tx, SHORT))
        assert shop.flows() == []

    @pytest.mark.parametrize("mode", [None, "daily"])
    def test_a_repeated_report_opens_nothing(self, shop: Shop, mode: str | None) -> None:
        shop.stage.rows["t.orders"] = 5
        report = CompletionReport(
            pipeline="sales", customer="acme", processor="loader", partition=DAY, mode=mode,
            execution_id="e1",
        )  # fmt: skip
        first = shop.client.flows.complete(report)
        assert first.outcome == "opened"
        shop.stage.run_off()
        self.prune(shop)
        again = shop.client.flows.complete(report)
        assert (again.outcome, again.flow_id) == ("known", first.flow_id)
        assert shop.flows() == []

    def test_execution_ids_are_forgotten_with_the_logs(self, shop: Shop) -> None:
        shop.stage.rows["t.orders"] = 5
        report = CompletionReport(
            pipeline="sales", customer="acme", processor="loader", partition=DAY, execution_id="e1"
        )
        shop.client.flows.complete(report)
        shop.stage.run_off()
        self.prune(shop)
        shop.clock.advance(400 * DAY_US)
        shop.stage.write(lambda tx: prune(tx, Retention()))
        assert shop.stage.sql("SELECT execution_id FROM completion_ids") == []

    def test_a_chosen_generation_is_opened_once(self, shop: Shop) -> None:
        opened = shop.stage.open("sales", mode="daily", generation=3)
        assert opened.flow.generation == 3
        shop.stage.rows["t.orders"] = 5
        shop.stage.run_off()
        self.prune(shop)
        with pytest.raises(Conflict, match=r"generation 3 .* retention has deleted"):
            shop.stage.open("sales", mode="daily", generation=3)
        again = shop.client.flows.trigger(shop.request(DAY, mode="daily"))
        assert again.flow.generation == 4
