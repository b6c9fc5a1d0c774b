"""Cancelling many runs and flows while they end by themselves, statement by statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, text
from penstock.client import Client
from penstock.core.ids import decode, encode
from penstock.db.store import Store
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest
from penstock.recovery.backfiller import Backfiller
from penstock.recovery.records import BackfillRequest, CancelRequest, FlowReplay
from tests.harness.interleaving import Act, Outcome, explore
from tests.interleaving.stage import Stage, claim_act, finish_act

pytestmark = pytest.mark.postgres

DAY = "2025-11-16"


def work(run: Any) -> None:
    """Never called: scenes end runs themselves."""


@pytest.fixture(scope="module")
def scene_stage(stage: Stage) -> Stage:
    """The stage, with a pipeline of one phase registered."""
    brief = Pipeline("brief", partition=text("day"), modes=game_day_modes())
    raw = brief.phase("raw")
    raw.processor("a")(work)
    raw.processor("b")(work)
    stage.client.register([brief])
    rows = stage.sql("SELECT processor FROM processors WHERE pool = %s", stage.pool)
    stage.processors = [row[0] for row in rows]
    return stage


def by(stage: Stage, use: Callable[[Client], Any]) -> Act:
    """Return a user's call."""

    def act(store: Store) -> Any:
        client = Client(store)
        client._names._cache = stage.client._names._cache
        return use(client)

    return act


def orchestrate(store: Store) -> object:
    """Run one step of an orchestrator."""
    return Orchestrator(store, lambda _: [], holder="o").run_once()


def flow_about_to_end(stage: Stage) -> None:
    """Open a flow whose runs have completed: the orchestrator's next step ends it."""
    stage.empty()
    wanted = FlowRequest(pipeline="brief", customer="acme", partition=DAY, mode="same_day")
    stage.client.flows.trigger(wanted)
    finish_act(list(claim_act(stage, stage.session(), start=True)(stage.store)))(stage.store)


def test_runs_that_end_while_they_are_cancelled_by_filter(stage: Stage) -> None:
    """The others are asked to stop, and those that ended are counted as such."""

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        ids = stage.submit(3)
        held = stage.claim(stage.session(), start=True)
        cancel = by(stage, lambda c: c.recovery.cancel(CancelRequest(customer="acme")))

        def check(outcomes: list[Outcome]) -> None:
            assert [one.error for one in outcomes] == [None, None]
            step = outcomes[0].value
            asked = {decode("run", one) for one in step.runs}
            live = stage.sql("SELECT run_id, cancel_requested_at IS NOT NULL FROM runs")
            assert sorted(live) == [(one, True) for one in ids[1:]]
            assert asked >= set(ids[1:])
            assert step.ended <= 1
            assert not step.ended or asked == set(ids[1:])
            assert step.left <= 1, "one may end between the count and the list"

        return [cancel, finish_act(held[:1])], check

    assert explore(stage.arena, scene, range(24)) > 5


def cancel_by_filter(client: Client) -> list[str]:
    """Cancel everything of the customer."""
    return client.recovery.cancel(CancelRequest(customer="acme")).flows


def trigger_again(client: Client) -> list[str]:
    """Open the next generation."""
    wanted = FlowRequest(pipeline="brief", customer="acme", partition=DAY, mode="same_day",
                         force=True)  # fmt: skip
    return client.flows.trigger(wanted).superseded


def replay_again(client: Client) -> list[str]:
    """Replay the flow."""
    wanted = FlowReplay(pipeline="brief", customer="acme", partition=DAY, mode="same_day",
                        force=True)  # fmt: skip
    return client.recovery.replay(wanted).superseded


@pytest.mark.parametrize("use", [cancel_by_filter, trigger_again, replay_again])
def test_a_flow_that_ends_while_it_is_closed(
    scene_stage: Stage, use: Callable[[Client], list[str]]
) -> None:
    """It is either closed or left as it ended, and only a closed one is reported."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        flow_about_to_end(stage)

        def check(outcomes: list[Outcome]) -> None:
            assert [one.error for one in outcomes] == [None, None]
            rows = stage.sql("SELECT flow_id FROM flows WHERE state = 'CANCELLED'")
            assert outcomes[0].value == [encode("flow", row[0]) for row in rows]

        return [by(stage, use), orchestrate], check

    assert explore(stage.arena, scene, range(24)) > 5


def test_a_flow_that_ends_while_its_backfill_is_cancelled(scene_stage: Stage) -> None:
    """The partition shows how its flow ended."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        stage.sql("DELETE FROM backfill_partitions")
        stage.sql("DELETE FROM backfills")
        made = stage.client.backfills.start(
            BackfillRequest(pipeline="brief", customer="acme", partitions=[DAY])
        ).backfill
        assert made is not None
        Backfiller(stage.store).run_once()
        session = stage.session()
        finish_act(list(claim_act(stage, session, start=True)(stage.store)))(stage.store)

        def check(outcomes: list[Outcome]) -> None:
            assert [one.error for one in outcomes] == [None, None]
            ((flow,),) = stage.sql("SELECT state FROM flows")
            assert stage.sql("SELECT state FROM backfill_partitions") == [(flow,)]

        return [by(stage, lambda c: c.backfills.cancel(made.backfill_id)), orchestrate], check

    assert explore(stage.arena, scene, range(24)) > 5
