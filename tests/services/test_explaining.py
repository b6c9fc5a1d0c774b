"""What people are told of flows, on both engines over the real orchestrator."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, historical, optional, same_day
from penstock.client.explaining import Explained
from penstock.client.flow_requests import CompletionReport, FlowRequest
from penstock.client.flows import Opened
from penstock.client.people import Approval
from penstock.core import settle
from penstock.core.clock import HOUR, MINUTE, parse_iso
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.core.settle import Failure
from penstock.core.why import Clears, flattened
from penstock.store.api import Store
from penstock.store.ending import run_end_many
from penstock.testing.clock import VirtualClock
from tests.cascade_kit import DAY, Stage, work

START = parse_iso("2025-11-17T15:00:00Z")
"""10:00 in New York."""


def nba(**options: Any) -> Pipeline:
    """Five phases: raw, analytics behind a gate, precompute with stragglers, predict, publish."""
    made = Pipeline("nba", partition="day", warehouse="w", timezone="America/New_York", **options)
    raw = made.phase("raw")
    raw.processor("box")(work)
    raw.processor("odds")(work)
    analytics = made.phase("analytics", after=raw)
    needs = [same_day("raw.box"), historical("an.days", days=10, degraded_at=5),
             optional("raw.odds")]  # fmt: skip
    analytics.processor("players", needs=needs)(work)
    precompute = made.phase("precompute", after=analytics, stragglers="20m")
    precompute.processor("features")(work)
    precompute.processor("cache")(work)
    predict = made.phase("predict", after=precompute)
    predict.processor("points")(work)
    made.phase("publish", after=predict).external("site")
    return made


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """A stage at ten in the morning, with all data there."""
    clock.advance_to(START)
    made = Stage(store, clock, nba())
    made.rows = {"raw.box": 10, "raw.odds": 3}
    made.days = {"an.days": 10}
    return made


def told(stage: Stage, **which: Any) -> Explained:
    """The explanation of today's flow."""
    return stage.client.explaining.explain("nba", DAY, customer="acme", **which)


def lines(stage: Stage) -> dict[str, str]:
    """Each phase in its one line."""
    return {
        story.phase: " ".join(part for part in (story.word, story.count, story.headline) if part)
        for story in told(stage).explanation.phases
    }


def sentences(stage: Stage, phase: str) -> list[str]:
    """What is said of a phase beyond its line."""
    (story,) = [s for s in told(stage).explanation.phases if s.phase == phase]
    return list(story.sentences)


def offers(stage: Stage) -> list[str]:
    """The commands that are offered, without the customer that all of them name."""
    found = [offer.command for offer in told(stage).explanation.offers]
    return [text.replace(" --customer acme", "").replace("penstock ", "") for text in found]


def tree(stage: Stage, opened: Opened, phase: str | None = None) -> list[tuple[int, str, str]]:
    """(depth, kind, text) of the proof."""
    proof = stage.client.explaining.why_flow(opened.flow.flow_id, phase)
    return [(depth, cause.kind, cause.text) for depth, cause in flattened(proof.cause)]


def fail(stage: Stage, name: str, error_type: str = "TRANSIENT_NETWORK") -> None:
    """Let one attempt of a processor fail."""
    held = stage.claim(name)[name]
    failure = Failure(error_type=error_type, details="connection reset")
    end = settle.failed(held, failure, jitter=0.0)
    stage.write(lambda tx: run_end_many(tx, [end]))


def through(stage: Stage, *phases: str) -> None:
    """Complete everything of these phases, five minutes each."""
    names = {"raw": ("box", "odds"), "analytics": ("players",), "precompute": ("features", "cache"),
             "predict": ("points",)}  # fmt: skip
    for phase in phases:
        stage.step()
        stage.clock.advance(5 * MINUTE)
        assert stage.complete(*names[phase]) == len(names[phase]), phase
    stage.step()


class TestExplain:
    """Each situation in its words."""

    def test_nothing_was_triggered(self, stage: Stage) -> None:
        """Without a flow the answer says so, and what starts one."""
        stage.open(partition="2025-01-01")
        found = told(stage)
        assert found.flow is None
        assert found.explanation.summary.startswith("There is no flow")
        assert offers(stage) == [f"trigger nba {DAY} --dry-run", f"trigger nba {DAY}"]

    def test_the_tone(self, stage: Stage) -> None:
        """A degraded phase, a retrying processor, stragglers, phases that are not triggered."""
        stage.rows["raw.odds"] = 0
        opened = stage.open(correlation_id="7f3a")
        through(stage, "raw", "analytics")
        fail(stage, "features")
        stage.clock.advance(MINUTE)
        assert told(stage).explanation.title == (
            f"acme · nba · {DAY} · same_day · generation 1 · correlation 7f3a"
        )
        assert lines(stage) == {
            "raw": "complete 2/2 10:05",
            "analytics": "degraded 1/1 10:10  raw.odds missing (optional)",
            "precompute": "running 0/2 since 10:10, stragglers until 10:30: features failed once "
            "(TRANSIENT_NETWORK), next try 10:15",
            "predict": "not triggered precompute is not complete",
            "publish": "not triggered predict is not complete",
        }
        assert sentences(stage, "analytics") == [
            "The gate said PROCEED_DEGRADED at 10:05: Enough is there, but not everything: "
            "completeness 100 % of 100 %, quality 1.00 of 0.90.",
            "Seen: raw.box 10/1 rows; an.days (historical) 10 of 10 days; "
            "raw.odds (optional) 0/1 rows (0 %).",
        ]
        assert f"trigger nba {DAY} predict --mode same_day" in offers(stage)
        assert f"why {encode('flow', opened.flow.flow_id)}" in offers(stage)

    def test_complete(self, stage: Stage) -> None:
        """A flow that went well needs nothing."""
        stage.open()
        through(stage, "raw", "analytics", "precompute", "predict")
        report = CompletionReport(pipeline="nba", processor="site", partition=DAY, customer="acme",
                                  mode="same_day")  # fmt: skip
        stage.client.flows.complete(report)
        stage.step()
        found = told(stage)
        assert {story.word for story in found.explanation.phases} == {"complete"}
        assert "complete at 10:20" in found.explanation.summary
        assert found.explanation.offers == ()

    def test_waiting_for_todays_data(self, stage: Stage) -> None:
        """What is awaited, since when, when it looks again, until when, and the ways out."""
        stage.rows["raw.box"] = 0
        stage.open(mode="overnight")
        through(stage, "raw")
        stage.clock.advance(11 * MINUTE)
        stage.step()
        assert lines(stage)["analytics"] == "waiting since 10:05 for raw.box, until 16:05"
        assert sentences(stage, "analytics") == [
            "The gate said WAIT at 10:16: Waiting for raw.box (0/1 rows (0 %)). "
            "Waited 11m of at most 6h.",
            "Seen: raw.box 0/1 rows (0 %); an.days (historical) 10 of 10 days; "
            "raw.odds (optional) 3/1 rows.",
            "It looks again at 10:26, or when something arrives upstream; "
            "it stops waiting at 16:05.",
        ]
        assert offers(stage)[:2] == [
            f"override grant nba {DAY} --phase analytics --dependency raw.box --expires 4h "
            "--reason WHY",
            f"gate check nba {DAY} analytics --mode overnight",
        ]

    def test_missing_history_needs_a_person(self, stage: Stage) -> None:
        """The item is named with the command that resolves it."""
        stage.days["an.days"] = 2
        stage.open(mode="backfill")
        through(stage, "raw")
        (item,) = stage.client.interventions.page(customer="acme")
        name = encode("int", item.intervention_id)
        assert lines(stage)["analytics"] == (
            "blocked since 10:05: its gate failed, an.days missing; needs a person"
        )
        said = sentences(stage, "analytics")
        assert said[0].startswith("The gate said FAIL at 10:05: History is short: an.days")
        assert name in said[-1]
        assert f"interventions resolve {name} --resolution WHAT" in offers(stage)

    def test_a_failed_gate(self, stage: Stage) -> None:
        """A gate that said FAIL says who may ask it again."""
        stage.rows["raw.box"] = 0
        stage.open(mode="manual")
        through(stage, "raw")
        assert lines(stage)["analytics"] == "blocked since 10:05: its gate failed, raw.box missing"
        assert sentences(stage, "analytics")[-1] == (
            "It is asked again when data arrives upstream, or when a person asks."
        )

    def test_an_approval(self, stage: Stage) -> None:
        """Who approved what until when is said, and what started under it is degraded."""
        stage.rows["raw.box"] = 0
        stage.open(mode="overnight")
        through(stage, "raw")
        approval = Approval(pipeline="nba", partition=DAY, customer="acme", dependency="raw.box",
                            reason="known outage", expires_at=stage.clock.now() + HOUR)  # fmt: skip
        stage.client.overrides.grant(approval, actor="ann")
        assert (
            "ann approved going on without raw.box until 11:05: known outage."
            in told(stage).explanation.summary
        )
        stage.step()
        assert lines(stage)["analytics"].startswith("running 0/1 since 10:05")
        assert "approved by ann (known outage)" in sentences(stage, "analytics")[0]

    def test_an_open_breaker(self, stage: Stage) -> None:
        """After five failures the phase is not asked, and it is said until when."""
        stage.rows["raw.box"] = 0
        stage.open(mode="manual")
        through(stage, "raw")
        for _ in range(5):
            stage.client.overrides.revoke(
                stage.client.overrides.grant(
                    Approval(pipeline="nba", partition=DAY, customer="acme", reason="again",
                             dependency="none", expires_at=stage.clock.now() + HOUR)
                ).override_id
            )  # fmt: skip
            stage.step()
        stage.client.overrides.grant(
            Approval(pipeline="nba", partition=DAY, customer="acme", reason="again",
                     dependency="none", expires_at=stage.clock.now() + HOUR)
        )  # fmt: skip
        stage.step()
        line = lines(stage)["analytics"]
        assert line == "blocked since 10:05: breaker open after 5 failures, tries again 11:05"

    def test_a_dead_processor(self, stage: Stage) -> None:
        """A phase that cannot complete names who failed for good and how to run it again."""
        opened = stage.open()
        stage.clock.advance(5 * MINUTE)
        fail(stage, "box", "VALIDATION_ERROR")
        stage.complete("odds")
        stage.step()
        assert lines(stage)["raw"] == "failed 1/2 10:05 without box"
        assert sentences(stage, "raw")[-1] == (
            "box failed for good at 10:05 (VALIDATION_ERROR: connection reset)."
        )
        retry = f"runs retry {encode('run', opened.run_ids[0])}"
        assert offers(stage)[0] == retry
        stage.client.runs.retry(opened.run_ids[0])
        stage.complete("box")
        stage.step()
        assert lines(stage)["raw"] == "complete 2/2 10:05"

    def test_stragglers(self, stage: Stage) -> None:
        """At the deadline the next phase goes on without who is missing, and says so."""
        stage.open()
        through(stage, "raw", "analytics")
        stage.complete("cache")
        stage.clock.advance(20 * MINUTE)
        stage.step()
        assert lines(stage)["precompute"] == "degraded 1/2 10:30  without features"

    def test_observing(self, store: Store, clock: VirtualClock) -> None:
        """What an observing cascade would have started is not called running."""
        clock.advance_to(START)
        stage = Stage(store, clock, nba(cascade="observe"))
        stage.rows, stage.days = {"raw.box": 1, "raw.odds": 1}, {"an.days": 10}
        opened = stage.open()
        through(stage, "raw")
        assert lines(stage)["analytics"] == (
            "observed 0/1 would have started at 10:05; nothing was started"
        )
        assert "The pipeline observes" in told(stage).explanation.summary
        assert tree(stage, opened, "analytics")[-1][1] == "observe"

    def test_generations(self, stage: Stage) -> None:
        """An older generation says which is newer; phases that were taken over say so."""
        stage.open()
        through(stage, "raw", "analytics")
        stage.open(phases=["analytics"])
        stage.step()
        stage.clock.advance(MINUTE)
        first = told(stage, generation=1)
        assert "Generation 2 is newer." in first.explanation.summary
        assert first.flow is not None
        offered = [offer.command for offer in first.explanation.offers]
        assert f"penstock flows cancel {first.flow.flow_id}" in offered
        second = told(stage, mode="same_day", generation=2).explanation
        assert second.phases[0].headline.endswith("taken over from the generation before")
        with pytest.raises(NotFound):
            told(stage, generation=3)

    def test_the_newest_is_told_and_older_open_ones_are_named(self, stage: Stage) -> None:
        """A newer generation that ended is what is told; the older that still waits is named."""
        stage.rows["raw.box"] = 0
        older = stage.open(mode="tomorrow")
        through(stage, "raw")
        stage.clock.advance(MINUTE)
        stage.rows["raw.box"] = 10
        stage.open(mode="manual", phases=["analytics"], no_downstream=True)
        through(stage, "analytics")
        explained = told(stage)
        assert explained.flow is not None
        assert (explained.flow.mode, explained.flow.state) == ("manual", "COMPLETE")
        (named,) = explained.flow.still_open
        assert (named.mode, named.generation, named.phase) == ("tomorrow", 1, "analytics")
        assert named.state == "WAITING"
        assert "still open: tomorrow generation 1" in explained.explanation.summary
        offered = [offer.command for offer in explained.explanation.offers]
        assert f"penstock explain {named.flow_id}" in offered
        first = told(stage, mode="tomorrow", generation=1).flow
        assert first is not None
        assert first.flow_id == named.flow_id
        assert not first.still_open
        assert stage.state(older) == "OPEN"

    def test_unknown_names(self, stage: Stage) -> None:
        """An unknown pipeline is refused with a near one; an unknown customer is not there."""
        with pytest.raises(InvalidInput, match="nba"):
            stage.client.explaining.explain("nbaa", DAY)
        with pytest.raises(NotFound):
            stage.client.explaining.explain("nba", DAY, customer="nobody")
        assert stage.client.explaining.explain("nba", DAY).flow is None


class TestWhy:
    """Proofs, with the earliest time."""

    def test_a_retry_holds_everything_up(self, stage: Stage) -> None:
        """From the last phase down to the attempt that is due, which bounds the whole tree."""
        opened = stage.open()
        through(stage, "raw", "analytics")
        fail(stage, "features")
        stage.complete("cache")
        stage.step()
        kinds = [kind for _, kind, _ in tree(stage, opened)]
        assert kinds == ["flow", "phase", "phase", "phase", "processor", "run", "retry"]
        proof = stage.client.explaining.why_flow(opened.flow.flow_id)
        assert proof.cause.earliest_at == stage.clock.now() + 5 * MINUTE
        assert proof.cause.clears is Clears.TIME

    def test_a_gate_waits(self, stage: Stage) -> None:
        """The gate, then the table it waits for, with the command that goes on without it."""
        stage.rows["raw.box"] = 0
        opened = stage.open(mode="overnight")
        through(stage, "raw")
        found = tree(stage, opened, "analytics")
        assert [(depth, kind) for depth, kind, _ in found] == [
            (0, "phase"), (1, "gate"), (2, "dependency"),
        ]  # fmt: skip
        assert found[2][2] == "raw.box 0/1 rows (0 %)"
        proof = stage.client.explaining.why_flow(opened.flow.flow_id, "analytics")
        assert proof.cause.earliest_at == stage.clock.now() + 10 * MINUTE
        with pytest.raises(InvalidInput, match="analytics"):
            stage.client.explaining.why_flow(opened.flow.flow_id, "nowhere")

    def test_a_pause(self, stage: Stage) -> None:
        """Who paused what, and the command that lifts it."""
        stage.client.store.write(lambda tx: stage.client._names.customers(tx, ["acme"]))
        stage.client.pauses.pause("pipeline", "nba", reason="works", actor="ann")
        opened = stage.open()
        proof = stage.client.explaining.why_run(opened.run_ids[0])
        (pause,) = [c for _, c in flattened(proof.cause) if c.kind == "pause"]
        assert pause.text == "the pipeline is paused by ann (works)"
        assert pause.offer is not None
        assert pause.offer.command == "penstock resume pipeline nba"
        assert proof.cause.clears is Clears.PERSON

    def test_workers_and_turns(self, stage: Stage) -> None:
        """A ready run waits for a worker; how many are before it is said."""
        opened = stage.open()
        stage.admitter.run_once()
        last = stage.client.explaining.why_run(opened.run_ids[1]).cause
        assert [c.text for _, c in flattened(last)][1:] == [
            "there is no live worker in pool default"
        ]
        bound = stage.client.scoped("acme").explaining.why_run(opened.run_ids[1]).cause
        assert [c.text for _, c in flattened(bound)][1:] == [
            "no worker in pool default has claimed it yet"
        ]

    def test_what_is_over(self, stage: Stage) -> None:
        """Nothing is pending where nothing can come."""
        opened = stage.open()
        stage.client.flows.cancel(opened.flow.flow_id)
        assert tree(stage, opened) == [
            (0, "flow", f"nba {DAY} (same_day, generation 1) ended CANCELLED at 10:00: "
             "nothing is pending"),
        ]  # fmt: skip
        run = stage.client.explaining.why_run(opened.run_ids[0]).cause
        assert run.clears is Clears.NEVER
        with pytest.raises(NotFound):
            stage.client.explaining.why_run(10**6)


class TestTrace:
    """The path of a cause."""

    def test_the_whole_path(self, stage: Stage) -> None:
        """What happened in order, across phases, and what never did."""
        stage.rows["raw.box"] = 0
        opened = stage.open(mode="overnight", correlation_id="cause")
        through(stage, "raw")
        found = stage.client.explaining.trace("cause")
        steps = [step.text for step in found.traced.steps]
        assert steps[0] == f"nba {DAY} (overnight, generation 1) opened by tester (manual)"
        assert "raw triggered: PROCEED (manual)" in steps
        assert "box COMPLETED in 0 s" in steps
        assert "raw complete 2/2" in steps
        never = {absence.phase: absence.text for absence in found.traced.absences}
        assert never["analytics"] == (
            "analytics: not triggered: gate WAIT since 10:05 for raw.box, until 16:05"
        )
        assert never["precompute"] == "precompute: not triggered: analytics is not complete"
        assert never["predict"] == "predict: skipped: overnight does not run it"
        by_flow = stage.client.explaining.trace(encode("flow", opened.flow.flow_id))
        by_run = stage.client.explaining.trace(encode("run", opened.run_ids[0]))
        assert by_flow.correlation_id == by_run.correlation_id == "cause"
        assert by_flow.traced.steps == found.traced.steps
        for unknown in ("nothing", "flow_00000000", "run_00000000"):
            with pytest.raises(NotFound):
                stage.client.explaining.trace(unknown)


class TestPreview:
    """What a trigger would do."""

    def test_new_there_and_forced(self, stage: Stage) -> None:
        """A new flow, one that is there, and part of one."""
        wanted = FlowRequest(pipeline="nba", customer="acme", partition=DAY, mode="overnight")
        look = stage.client.previews.trigger
        fresh = look(wanted)
        assert (fresh.is_new, fresh.generation, fresh.flow_id) == (True, 1, None)
        assert [(one.phase, one.fate) for one in fresh.phases] == [
            ("raw", "first"), ("analytics", "follows"), ("precompute", "follows"),
            ("predict", "skipped"), ("publish", "skipped"),
        ]  # fmt: skip
        opened = stage.client.flows.trigger(wanted)
        through(stage, "raw")
        there = look(wanted)
        assert (there.is_new, there.flow_id) == (False, opened.flow.flow_id)
        assert "nothing would be started" in there.text
        part = look(FlowRequest(pipeline="nba", customer="acme", partition=DAY, mode="overnight",
                                phases=("precompute",)))  # fmt: skip
        assert (part.is_new, part.generation) == (True, 2)
        assert {one.phase: one.fate for one in part.phases}["raw"] == "inherited"
        assert stage.sql("SELECT count(*) FROM flows") == [(1,)]
