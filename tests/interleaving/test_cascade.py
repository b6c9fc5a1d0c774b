"""Completions, orchestrators, openers and probes against each other, statement by statement."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from penstock import Pipeline, game_day_modes, same_day, text
from penstock.client import Client
from penstock.core.clock import HOUR
from penstock.core.ids import decode
from penstock.db.store import Store
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import CompletionReport, FlowRequest
from penstock.runs import attempt_result
from penstock.runs.admitter import Admitter
from penstock.runs.store.finish import run_end_many
from tests.harness.interleaving import Act, Outcome, exhaust, explore
from tests.interleaving.stage import Stage, claim_act, finish_act
from tests.interleaving.test_seeded_bugs import caught, patched
from tests.interleaving.test_services import tick
from tests.kits.configs import create_config
from tests.kits.effort import effort

pytestmark = pytest.mark.postgres

DAY = "2025-11-16"


def work(run: Any) -> None:
    """Never called: scenes end runs themselves."""


def declared() -> list[Pipeline]:
    """Two processors, then one; the same with a gate; and one with external processors."""
    plain = Pipeline("plain", partition=text("day"), modes=game_day_modes())
    raw = plain.phase("raw")
    raw.processor("a")(work)
    raw.processor("b")(work)
    plain.phase("next", after=raw).processor("c")(work)
    gated = Pipeline("gated", partition=text("day"), warehouse="w", modes=game_day_modes())
    first = gated.phase("raw")
    first.processor("a")(work)
    gated.phase("next", after=first).processor("c", needs=[same_day("t")])(work)
    external = Pipeline("external", partition=text("day"), modes=game_day_modes())
    far = external.phase("raw")
    far.external("x")
    far.external("y")
    external.phase("next", after=far).processor("c")(work)
    short = Pipeline("short", partition=text("day"), modes=game_day_modes())
    begin = short.phase("raw")
    begin.processor("a")(work)
    short.phase("next", after=begin, on="each").processor("c")(work)
    return [plain, gated, external, short]


@pytest.fixture(scope="module")
def scene_stage(stage: Stage) -> Stage:
    """The stage, with the pipelines of these scenes registered."""
    stage.client.register(declared())
    rows = stage.sql("SELECT processor FROM processors WHERE pool = %s", stage.pool)
    stage.processors = [row[0] for row in rows]
    return stage


def probe(request: ProbeRequest) -> list[Observation]:
    """Observe that all data is present."""
    return [Observation(key=d.key, looked_at=0, rows=1) for d in request.dependencies]


def orchestrate(name: str) -> Act:
    """Return one step of an orchestrator."""
    return lambda store: Orchestrator(store, probe, holder=name).run_once()


def report(stage: Stage, processor: str) -> Act:
    """Return an external report."""

    def act(store: Store) -> object:
        client = Client(store)
        client._names._cache = stage.client._names._cache
        return client.flows.complete(
            CompletionReport(
                pipeline="external",
                processor=processor,
                partition=DAY,
                customer="acme",
                mode="same_day",
                execution_id=processor,
            )
        )

    return act


def opened(stage: Stage, pipeline: str) -> list[Any]:
    """Open a flow whose entry runs are claimed, one claim each."""
    stage.empty()
    wanted = FlowRequest(pipeline=pipeline, customer="acme", partition=DAY, mode="same_day")
    stage.client.flows.trigger(wanted)
    session = stage.session()
    return list(claim_act(stage, session, start=True)(stage.store))


def settled(stage: Stage, entry: int, following: int = 1) -> None:
    """Check that each phase has one trigger with its runs once, and no flow events are left."""
    orchestrate("last")(stage.store)
    found = stage.sql("SELECT phase, runs FROM triggers ORDER BY phase")
    assert found == [("next", following), ("raw", entry)]
    runs = stage.sql("SELECT count(*) FROM runs WHERE trigger_source = 'orchestrator'")
    assert runs == [(following,)]
    assert stage.sql("SELECT count(*) FROM nudges") == [(0,)]


def test_two_last_completers_do_not_miss_each_other(scene_stage: Stage) -> None:
    """Whichever ends last, the next phase starts once, whatever the orchestrators do."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        first, second = opened(stage, "plain")
        acts = [finish_act([first]), finish_act([second]), orchestrate("o1"), orchestrate("o2")]
        return acts, lambda _outcomes: settled(stage, 2)

    assert explore(stage.arena, scene, range(effort(24, 60))) > effort(8, 20)


@pytest.mark.seeded
def test_triggers_without_lock_and_key(scene_stage: Stage) -> None:
    """Without a lock on the flow and with a replaceable trigger row, the bug is detected."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        for held in opened(stage, "plain"):
            finish_act([held])(stage.store)
        used: list[Orchestrator] = []

        def act(store: Store, name: str) -> None:
            used.append(Orchestrator(store, probe, holder=name, batch=1))
            used[-1].run_once()

        def check(outcomes: list[Outcome]) -> None:
            assert [one.error for one in outcomes] == [None, None]
            assert not any(one._batches.has_aside for one in used), "runs were created twice"
            settled(stage, 2)

        return [partial(act, name=name) for name in ("o1", "o2")], check

    explore(stage.arena, scene, range(10))
    replaceable = ("DO NOTHING", "DO UPDATE SET at = excluded.at")
    with (
        patched("flow_lock_many", ("FOR NO KEY UPDATE OF w", "")),
        patched("trigger_put_many", replaceable),
    ):
        assert caught(stage, scene) >= 1


def test_both_at_once_with_one_orchestrator(scene_stage: Stage) -> None:
    """Every order of two ends and a step, within the budget."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        first, second = opened(stage, "plain")
        acts = [finish_act([first]), orchestrate("o1"), finish_act([second])]
        return acts, lambda _outcomes: settled(stage, 2)

    assert exhaust(stage.arena, scene, effort(30, 80)) > effort(8, 20)


def test_probes_of_two_orchestrators(scene_stage: Stage) -> None:
    """A gate with probes is decided once, however the probes of two orchestrators interleave."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        (held,) = opened(stage, "gated")
        finish_act([held])(stage.store)

        def check(_outcomes: list[Outcome]) -> None:
            settled(stage, 1)
            found = stage.sql("SELECT count(*) FROM decisions WHERE phase = 'next'")
            assert found == [(1,)]
            assert stage.sql("SELECT count(*) FROM leases WHERE kind = 'look'") == [(0,)]

        return [orchestrate("o1"), orchestrate("o2")], check

    assert explore(stage.arena, scene, range(effort(16, 40))) > effort(4, 10)


def test_reports_that_open_a_flow(scene_stage: Stage) -> None:
    """Two first reports, one of them repeated, open one flow with one trigger per phase."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        stage.client.flows.trigger(FlowRequest(pipeline="plain", customer="acme", partition="x"))
        stage.sql("DELETE FROM flows")
        stage.sql("DELETE FROM triggers")
        acts = [report(stage, "x"), report(stage, "y"), report(stage, "x"), orchestrate("o1")]

        def check(_outcomes: list[Outcome]) -> None:
            assert stage.sql("SELECT generation FROM flows") == [(1,)]
            settled(stage, 0)

        return acts, check

    assert explore(stage.arena, scene, range(effort(16, 40))) > effort(4, 10)


def test_the_next_queued_flow_starts(scene_stage: Stage) -> None:
    """A flow opened while the previous one of its config ends starts, in either order."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        given = {"pipeline_template": "short", "schedule_cron": "0 * * * *", "overlap": "queue"}
        create_config(stage.client, "acme", given)
        stage.clock.advance(HOUR)
        tick(stage.store)
        session = stage.session()
        for _ in range(2):
            finish_act(list(claim_act(stage, session, start=True)(stage.store)))(stage.store)
            if stage.sql("SELECT count(*) FROM triggers") == [(1,)]:
                orchestrate("first")(stage.store)
        stage.clock.advance(HOUR)

        def check(_outcomes: list[Outcome]) -> None:
            orchestrate("last")(stage.store)
            states = stage.sql("SELECT state FROM flows ORDER BY flow_id")
            assert states == [("COMPLETE",), ("OPEN",)]
            begun = stage.sql("SELECT state FROM flow_phases WHERE phase = 'raw' ORDER BY flow_id")
            assert begun == [("COMPLETE",), ("IN_PROGRESS",)], "the second flow never began"

        return [tick, orchestrate("o1")], check

    assert explore(stage.arena, scene, range(effort(24, 60))) > effort(6, 15)


def test_a_superseded_run_is_not_retried(scene_stage: Stage) -> None:
    """A run fails while its flow is superseded: no retry of it can be claimed afterwards."""
    stage = scene_stage
    wanted = FlowRequest(pipeline="short", customer="acme", partition=DAY)

    def again(store: Store) -> object:
        client = Client(store)
        client._names._cache = stage.client._names._cache
        return client.flows.trigger(msgspec.structs.replace(wanted, force=True))

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        first = stage.client.flows.trigger(wanted).flow
        (held,) = claim_act(stage, stage.session(), start=True)(stage.store)
        end = attempt_result.stale(held, jitter=0.0)

        def fail(store: Store) -> object:
            return store.write(lambda tx: run_end_many(tx, [end]))

        def admit(store: Store) -> object:
            return Admitter(store).run_once()

        def check(_outcomes: list[Outcome]) -> None:
            mine = "SELECT state, cancel_requested_by FROM runs WHERE flow_id = %s"
            live = stage.sql(mine, decode("flow", first.flow_id))
            assert all(state != "PENDING" and by is not None for state, by in live), live

        claim = claim_act(stage, stage.session(), start=True)
        return [fail, again, lambda store: (admit(store), claim(store))], check

    assert explore(stage.arena, scene, range(effort(24, 60))) > effort(6, 15)
