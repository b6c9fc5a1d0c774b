"""Explanations of flows for users, on both engines over the real orchestrator."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, historical, optional, same_day
from penstock.core.clock import HOUR, MINUTE, SECOND, parse_iso, to_datetime
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.flows.client.opening import TriggerResult
from penstock.flows.explain.records import FlowExplanation
from penstock.flows.gates.records import OverrideRequest
from penstock.flows.records import CompletionReport, FlowRequest
from penstock.runs import attempt_result
from penstock.runs.attempt_result import AttemptFailure
from penstock.runs.store.finish import run_end_many
from penstock.testing.clock import VirtualClock
from tests.kits.client_harness import Harness
from tests.kits.flows import DAY, Stage, work

START = parse_iso("2025-11-17T15:00:00Z")
"""10:00 in New York."""


def nba(**options: Any) -> Pipeline:
    """Five phases: raw, analytics behind a gate, precompute with stragglers, predict, publish."""
    made = Pipeline(
        "nba",
        partition="day",
        warehouse="w",
        timezone="America/New_York",
        modes=game_day_modes(overnight_until="precompute"),
        **options,
    )
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
    """A stage at ten in the morning, with all data present."""
    clock.advance_to(START)
    made = Stage(store, clock, nba())
    made.rows = {"raw.box": 10, "raw.odds": 3}
    made.days = {"an.days": 10}
    return made


def explained(stage: Stage, **which: Any) -> FlowExplanation:
    """Return the explanation of today's flow."""
    return stage.client.diagnostics.explain("nba", DAY, customer="acme", **which)


def lines(stage: Stage) -> dict[str, str]:
    """Return each phase's status line."""
    return {
        story.phase: " ".join(part for part in (story.word, story.count, story.headline) if part)
        for story in explained(stage).phases
    }


def sentences(stage: Stage, phase: str) -> list[str]:
    """Return the sentences about a phase beyond its status line."""
    (story,) = [s for s in explained(stage).phases if s.phase == phase]
    return list(story.sentences)


def offers(stage: Stage) -> list[str]:
    """Return the suggested commands, without the customer that all of them name."""
    found = [offer.command for offer in explained(stage).actions]
    return [text.replace(" --customer acme", "").replace("penstock ", "") for text in found]


def tree(
    stage: Stage, opened: TriggerResult, phase: str | None = None
) -> list[tuple[int, str, str]]:
    """Return (depth, kind, text) of the proof."""
    proof = stage.client.diagnostics.why_flow(encode("flow", opened.flow.flow_id), phase)
    return [(cause.depth, cause.kind, cause.text) for cause in proof.causes]


def fail(
    stage: Stage,
    name: str,
    error_type: str = "TRANSIENT_NETWORK",
    details: str = "connection reset",
) -> None:
    """Fail one attempt of a processor."""
    held = stage.claim(name)[name]
    failure = AttemptFailure(error_type=error_type, details=details)
    end = attempt_result.failed(held, failure, jitter=0.0)
    stage.write(lambda tx: run_end_many(tx, [end]))


def through(stage: Stage, *phases: str) -> None:
    """Complete all processors of these phases, five minutes each."""
    names = {"raw": ("box", "odds"), "analytics": ("players",), "precompute": ("features", "cache"),
             "predict": ("points",)}  # fmt: skip
    for phase in phases:
        stage.step()
        stage.clock.advance(5 * MINUTE)
        assert stage.complete(*names[phase]) == len(names[phase]), phase
    stage.step()


class TestExplain:
    """The explanation of each situation."""

    def test_nothing_was_triggered(self, stage: Stage) -> None:
        """Without a flow the explanation says so, and how to start one."""
        stage.open(partition="2025-01-01")
        found = explained(stage)
        assert found.flow is None
        assert found.summary.startswith("There is no flow")
        assert offers(stage) == [f"trigger nba {DAY} --dry-run", f"trigger nba {DAY}"]

    def test_mixed_states(self, stage: Stage) -> None:
        """A degraded phase, a retrying processor, stragglers and untriggered phases."""
        stage.rows["raw.odds"] = 0
        opened = stage.open(correlation_id="7f3a")
        through(stage, "raw", "analytics")
        fail(stage, "features")
        stage.clock.advance(MINUTE)
        assert explained(stage).title == (
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
            "The gate decided PROCEED_DEGRADED at 10:05: Enough data, but not all of it: "
            "raw.odds missing (optional).",
            "Evidence: raw.box 10/1 rows; an.days (historical) 10 of 10 days; "
            "raw.odds (optional) 0/1 rows (0 %).",
        ]
        assert not [one for one in offers(stage) if one.startswith("trigger")]
        assert f"why {encode('flow', opened.flow.flow_id)}" in offers(stage)

    def test_complete(self, stage: Stage) -> None:
        """A flow that completed needs nothing."""
        stage.open()
        through(stage, "raw", "analytics", "precompute", "predict")
        report = CompletionReport(pipeline="nba", processor="site", partition=DAY, customer="acme",
                                  mode="same_day")  # fmt: skip
        stage.client.flows.complete(report)
        stage.step()
        found = explained(stage)
        assert {story.word for story in found.phases} == {"complete"}
        assert "complete at 10:20" in found.summary
        assert found.actions == []

    def test_waiting_for_todays_data(self, stage: Stage) -> None:
        """What is awaited, since when, the next recheck, the limit, and the suggestions."""
        stage.rows["raw.box"] = 0
        stage.open(mode="overnight")
        through(stage, "raw")
        stage.clock.advance(11 * MINUTE)
        stage.step()
        assert lines(stage)["analytics"] == "waiting since 10:05 for raw.box, until 16:05"
        assert sentences(stage, "analytics") == [
            "The gate decided WAIT at 10:16: Waiting for raw.box (0/1 rows (0 %)). "
            "Waited 11m of at most 6h.",
            "Evidence: raw.box 0/1 rows (0 %); an.days (historical) 10 of 10 days; "
            "raw.odds (optional) 3/1 rows.",
            "It is evaluated again at 10:26, or when upstream data arrives; "
            "it stops waiting at 16:05.",
        ]
        assert offers(stage)[:2] == [
            f"override grant nba {DAY} --phase analytics --dependency raw.box --expires 4h "
            "--reason WHY",
            f"gate check nba {DAY} analytics --mode overnight",
        ]

    def test_missing_history_needs_a_person(self, stage: Stage) -> None:
        """The intervention is named with the command that resolves it."""
        stage.days["an.days"] = 2
        stage.open(mode="backfill")
        through(stage, "raw")
        (item,) = stage.client.interventions.list(customer="acme").items
        name = item.intervention_id
        assert lines(stage)["analytics"] == (
            "blocked since 10:05: its gate failed, an.days missing; needs a person"
        )
        found = sentences(stage, "analytics")
        assert found[0].startswith("The gate decided FAIL at 10:05: Too little history: an.days")
        assert name in found[-1]
        assert f"interventions resolve {name} --resolution WHAT" in offers(stage)

    def test_a_failed_gate(self, stage: Stage) -> None:
        """A gate that failed says how it can be evaluated again."""
        stage.rows["raw.box"] = 0
        stage.open(mode="manual")
        through(stage, "raw")
        assert lines(stage)["analytics"] == "blocked since 10:05: its gate failed, raw.box missing"
        assert sentences(stage, "analytics")[-1] == (
            "It is evaluated again when upstream data arrives, or on request."
        )

    def test_an_approval(self, stage: Stage) -> None:
        """The approver, the table and the expiry are shown; the phase then runs degraded."""
        stage.rows["raw.box"] = 0
        stage.open(mode="overnight")
        through(stage, "raw")
        approval = OverrideRequest(
            pipeline="nba",
            partition=DAY,
            customer="acme",
            dependency="raw.box",
            reason="known outage",
            expires_at=to_datetime(stage.clock.now() + HOUR),
        )
        stage.client.as_actor("ann").overrides.grant(approval)
        assert (
            "ann approved proceeding without raw.box until 11:05: known outage."
            in explained(stage).summary
        )
        stage.step()
        assert lines(stage)["analytics"].startswith("running 0/1 since 10:05")
        assert "approved by ann (known outage)" in sentences(stage, "analytics")[0]

    def test_an_open_breaker(self, stage: Stage) -> None:
        """After five failures the breaker is open, and the explanation says until when."""
        stage.rows["raw.box"] = 0
        stage.open(mode="manual")
        through(stage, "raw")
        for _ in range(5):
            stage.client.overrides.revoke(
                stage.client.overrides.grant(
                    OverrideRequest(pipeline="nba", partition=DAY, customer="acme", reason="again",
                            dependency="raw.odds", expires_at=to_datetime(stage.clock.now() + HOUR))
                ).override_id
            )  # fmt: skip
            stage.step()
        stage.client.overrides.grant(
            OverrideRequest(pipeline="nba", partition=DAY, customer="acme", reason="again",
                     dependency="raw.odds", expires_at=to_datetime(stage.clock.now() + HOUR))
        )  # fmt: skip
        stage.step()
        line = lines(stage)["analytics"]
        assert line == "blocked since 10:05: breaker open after 5 failures, tries again 11:05"

    def test_the_class_of_an_exception(self, stage: Stage) -> None:
        """The message of some exceptions says little without their class: that of a KeyError."""
        opened = stage.open()
        details = '{"type": "builtins.KeyError", "message": "\'price\'", "traceback": "…"}'
        fail(stage, "box", "VALIDATION_ERROR", details)
        stage.complete("odds")
        stage.step()
        assert "(VALIDATION_ERROR: KeyError: 'price')" in sentences(stage, "raw")[-1]
        assert offers(stage)[1] == f"runs show {encode('run', opened.run_ids[0])}"

    def test_a_dead_processor(self, stage: Stage) -> None:
        """A phase that cannot complete names the failed processor and how to retry it."""
        opened = stage.open()
        stage.clock.advance(5 * MINUTE)
        fail(stage, "box", "VALIDATION_ERROR")
        stage.complete("odds")
        stage.step()
        assert lines(stage)["raw"] == "failed 1/2 10:05 without box"
        assert sentences(stage, "raw")[-1] == (
            "box failed permanently at 10:05 (VALIDATION_ERROR: connection reset)."
        )
        retry = f"runs retry {encode('run', opened.run_ids[0])}"
        assert offers(stage)[0] == retry
        stage.client.runs.retry(encode("run", opened.run_ids[0]))
        stage.complete("box")
        stage.step()
        assert lines(stage)["raw"] == "complete 2/2 10:05  (after 1 failed attempt of box)"

    def test_stragglers(self, stage: Stage) -> None:
        """At the straggler deadline the phase is degraded, and names what is missing."""
        stage.open()
        through(stage, "raw", "analytics")
        stage.complete("cache")
        stage.clock.advance(20 * MINUTE)
        stage.step()
        assert lines(stage)["precompute"] == "degraded 1/2 10:30  without features"

    def test_observing(self, store: Store, clock: VirtualClock) -> None:
        """Phases that an observing cascade would have started are not shown as running."""
        clock.advance_to(START)
        stage = Stage(store, clock, nba(cascade="observe"))
        stage.rows, stage.days = {"raw.box": 1, "raw.odds": 1}, {"an.days": 10}
        opened = stage.open()
        through(stage, "raw")
        assert lines(stage)["analytics"] == (
            "observed 0/1 would have started at 10:05; nothing was started"
        )
        assert "The pipeline is in observe mode" in explained(stage).summary
        assert tree(stage, opened, "analytics")[-1][1] == "observe"

    def test_generations(self, stage: Stage) -> None:
        """An older generation names the newer one; inherited phases are marked."""
        stage.open()
        through(stage, "raw", "analytics")
        stage.open(phases=["analytics"], keep_older=True)
        stage.step()
        stage.clock.advance(MINUTE)
        first = explained(stage, generation=1)
        assert "Generation 2 is newer." in first.summary
        assert first.flow is not None
        offered = [offer.command for offer in first.actions]
        assert f"penstock flows cancel {first.flow.flow_id}" in offered
        second = explained(stage, mode="same_day", generation=2)
        assert second.phases[0].headline.endswith("inherited from the previous generation")
        with pytest.raises(NotFound):
            explained(stage, generation=3)

    def test_the_newest_is_explained_and_older_open_ones_are_named(self, stage: Stage) -> None:
        """The newest generation is explained, even if ended; an older open one is named."""
        stage.rows["raw.box"] = 0
        older = stage.open(mode="tomorrow")
        through(stage, "raw")
        stage.clock.advance(MINUTE)
        stage.rows["raw.box"] = 10
        stage.open(mode="manual", phases=["analytics"], no_downstream=True)
        through(stage, "analytics")
        result = explained(stage)
        assert result.flow is not None
        assert (result.flow.mode, result.flow.state) == ("manual", "COMPLETE")
        (named,) = result.still_open
        assert (named.mode, named.generation, named.phase) == ("tomorrow", 1, "analytics")
        assert named.state == "WAITING"
        assert "still open: tomorrow generation 1" in result.summary
        offered = [offer.command for offer in result.actions]
        assert f"penstock explain {named.flow_id}" in offered
        first = explained(stage, mode="tomorrow", generation=1)
        assert first.flow is not None
        assert first.flow.flow_id == named.flow_id
        assert not first.still_open
        assert (result.open_flow, first.open_flow) == (named, first.flow)
        assert stage.state(older) == "OPEN"

    def test_unknown_names(self, stage: Stage) -> None:
        """An unknown pipeline is refused with a suggestion; an unknown customer is not found."""
        with pytest.raises(InvalidInput, match="nba"):
            stage.client.diagnostics.explain("nbaa", DAY)
        with pytest.raises(NotFound):
            stage.client.diagnostics.explain("nba", DAY, customer="unknown")
        assert stage.client.diagnostics.explain("nba", DAY).flow is None


class TestBlame:
    """The pause and the producer that an explanation names."""

    def test_a_pause(self, stage: Stage) -> None:
        """The headline names the pause that holds the runs, unless the caller may not see it."""
        stage.client.store.write(lambda tx: stage.client._names.ensure_customer_keys(tx, ["acme"]))
        stage.client.as_actor("ann").pauses.pause("pipeline", "nba", reason="works")
        opened = stage.open()
        held = "running 0/2 since 10:00: 2 runs are held by a pause"
        assert lines(stage)["raw"] == f"{held}: the pipeline is paused by ann (works)"
        assert offers(stage) == ["resume pipeline nba"]
        scoped = stage.client.scoped("acme").diagnostics
        (raw, *_) = scoped.explain("nba", DAY, customer="acme").phases
        assert raw.headline.endswith("2 runs are held by a pause")
        causes = scoped.why_run(encode("run", opened.run_ids[0])).causes
        assert [(one.kind, one.text) for one in causes[1:]] == [("pause", "a pause holds it")]

    def test_the_producer_without_records_is_named_first(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """A gate waits for rows of a table; the producer that delivered none is suggested."""
        clock.advance_to(START)
        made = Pipeline("nba", partition="day", warehouse="w", timezone="America/New_York",
                        modes=game_day_modes())  # fmt: skip
        raw = made.phase("raw")
        for name in ("basel", "wien"):
            raw.processor(name, produces="raw.box")(work)
        needs = [same_day("raw.box", expect=8)]
        made.phase("sum", after=raw).processor("total", needs=needs)(work)
        stage = Stage(store, clock, made)
        stage.rows = {"raw.box": 6}
        stage.open(mode="overnight")
        stage.complete("basel", records=6)
        stage.complete("wien", records=0)
        stage.step()
        (story,) = [one for one in explained(stage).phases if one.phase == "sum"]
        assert story.sentences[-2:] == [
            "raw.box is produced by raw/wien, which completed with 0 records at 10:00.",
            "raw.box is produced by raw/basel, which completed with 6 records at 10:00.",
        ]
        first = explained(stage).actions[0]
        assert first.does == "run wien, which produces raw.box, again in a new generation"


class TestWhy:
    """Proofs, with the earliest possible time."""

    def test_a_retry_delays_all_phases(self, stage: Stage) -> None:
        """From the last phase down to the due attempt, which bounds the whole tree."""
        opened = stage.open()
        through(stage, "raw", "analytics")
        fail(stage, "features")
        stage.complete("cache")
        stage.step()
        kinds = [kind for _, kind, _ in tree(stage, opened)]
        assert kinds == ["flow", "phase", "phase", "phase", "processor", "run", "retry"]
        proof = stage.client.diagnostics.why_flow(encode("flow", opened.flow.flow_id))
        assert proof.earliest_at == to_datetime(stage.clock.now() + 5 * MINUTE)
        assert (proof.causes[0].earliest_at, proof.causes[0].clears) == (proof.earliest_at, "time")

    def test_a_gate_waits(self, stage: Stage) -> None:
        """The gate, then the table it waits for, with the command to proceed without it."""
        stage.rows["raw.box"] = 0
        opened = stage.open(mode="overnight")
        through(stage, "raw")
        found = tree(stage, opened, "analytics")
        assert [(depth, kind) for depth, kind, _ in found] == [
            (0, "phase"), (1, "gate"), (2, "dependency"),
        ]  # fmt: skip
        assert found[2][2] == "raw.box 0/1 rows (0 %)"
        proof = stage.client.diagnostics.why_flow(encode("flow", opened.flow.flow_id), "analytics")
        assert proof.earliest_at == to_datetime(stage.clock.now() + 10 * MINUTE)
        with pytest.raises(InvalidInput, match="analytics"):
            stage.client.diagnostics.why_flow(encode("flow", opened.flow.flow_id), "nowhere")

    def test_a_pause(self, stage: Stage) -> None:
        """The actor and scope of the pause, and the command that ends it."""
        stage.client.store.write(lambda tx: stage.client._names.ensure_customer_keys(tx, ["acme"]))
        stage.client.as_actor("ann").pauses.pause("pipeline", "nba", reason="works")
        opened = stage.open()
        proof = stage.client.diagnostics.why_run(encode("run", opened.run_ids[0]))
        (pause,) = [c for c in proof.causes if c.kind == "pause"]
        assert pause.text == "the pipeline is paused by ann (works)"
        assert pause.action is not None
        assert pause.action.command == "penstock resume pipeline nba"
        assert proof.causes[0].clears == "person"

    def test_workers(self, stage: Stage) -> None:
        """A ready run waits for a worker; a bound caller learns nothing about workers."""
        opened = stage.open()
        stage.admitter.run_once()
        last = stage.client.diagnostics.why_run(encode("run", opened.run_ids[1])).causes
        assert [c.text for c in last][1:] == ["there is no live worker in pool default"]
        scoped = stage.client.scoped("acme")
        bound = scoped.diagnostics.why_run(encode("run", opened.run_ids[1])).causes
        assert [c.text for c in bound][1:] == ["no worker in pool default has claimed it yet"]

    def test_incapable_workers(self, stage: Stage) -> None:
        """Live workers with capacity that do not claim a run lack its pipeline; busy ones do not.

        A bound caller learns nothing about workers.
        """
        harness = Harness(stage.store, stage.clock)
        opened = stage.open()
        stage.admitter.run_once()
        harness.session()
        harness.sql("UPDATE sessions SET pool = (SELECT pool FROM pools WHERE name = 'default')")
        run_id, flow_id = encode("run", opened.run_ids[1]), encode("flow", opened.flow.flow_id)
        views = stage.client.diagnostics
        lacks = "the live worker in pool default does not seem to execute pipeline nba"
        stage.clock.advance(15 * SECOND)
        assert views.why_run(run_id).causes[1].text.endswith("has claimed it yet (1 live)")
        stage.clock.advance(SECOND)
        harness.sql("UPDATE sessions SET beat_at = beat_at + 16000000")
        found = views.why_run(run_id).causes[1:]
        assert [c.text for c in found] == [f"{lacks}: there is capacity, but it is not claimed"]
        assert found[0].action is not None
        assert found[0].action.command == "penstock worker --pipelines FILE"
        story = views.explain_flow(flow_id)
        assert any(f"; {lacks}." in line for one in story.phases for line in one.sentences)
        assert "penstock worker --pipelines FILE" in {one.command for one in story.actions}
        bound = stage.client.scoped("acme").diagnostics.why_run(run_id).causes
        assert [c.text for c in bound][1:] == ["no worker in pool default has claimed it yet"]
        harness.sql("UPDATE sessions SET slots = 0")
        assert views.why_run(run_id).causes[1].text.endswith("has claimed it yet (1 live)")

    def test_ended_flows(self, stage: Stage) -> None:
        """An ended flow has nothing pending."""
        opened = stage.open()
        stage.client.flows.cancel(encode("flow", opened.flow.flow_id))
        assert tree(stage, opened) == [
            (0, "flow", f"nba {DAY} (same_day, generation 1) ended CANCELLED at 10:00: "
             "nothing is pending"),
        ]  # fmt: skip
        run = stage.client.diagnostics.why_run(encode("run", opened.run_ids[0]))
        assert run.causes[0].clears == "never"
        with pytest.raises(NotFound):
            stage.client.diagnostics.why_run(encode("run", 10**6))


class TestTrace:
    """Traces by correlation id."""

    def test_steps_and_absences(self, stage: Stage) -> None:
        """All steps in order, across phases, and the phases that were not triggered."""
        stage.rows["raw.box"] = 0
        opened = stage.open(mode="overnight", correlation_id="cause")
        through(stage, "raw")
        found = stage.client.diagnostics.trace("cause")
        steps = [step.text for step in found.steps]
        assert steps[0] == f"nba {DAY} (overnight, generation 1) opened by tester (manual)"
        assert "raw triggered: PROCEED (manual)" in steps
        assert "box COMPLETED in 0 s" in steps
        assert "raw complete 2/2" in steps
        never = {absence.phase: absence.text for absence in found.missing}
        assert never["analytics"] == (
            "analytics: not triggered: gate WAIT since 10:05 for raw.box, until 16:05"
        )
        assert never["precompute"] == "precompute: not triggered: analytics is not complete"
        assert never["predict"] == "predict: skipped: overnight does not run it"
        by_flow = stage.client.diagnostics.trace(encode("flow", opened.flow.flow_id))
        by_run = stage.client.diagnostics.trace(encode("run", opened.run_ids[0]))
        assert by_flow.correlation_id == by_run.correlation_id == "cause"
        assert by_flow.steps == found.steps
        for unknown in ("nothing", "flow_00000000", "run_00000000"):
            with pytest.raises(NotFound):
                stage.client.diagnostics.trace(unknown)


class TestPreview:
    """Previews of a trigger."""

    def test_new_existing_and_partial(self, stage: Stage) -> None:
        """A new flow, an existing one, and a part of one."""
        wanted = FlowRequest(pipeline="nba", customer="acme", partition=DAY, mode="overnight")
        preview = stage.client.previews.trigger
        fresh = preview(wanted)
        assert (fresh.is_new, fresh.generation, fresh.flow_id) == (True, 1, None)
        assert [(one.phase, one.fate) for one in fresh.phases] == [
            ("raw", "first"), ("analytics", "follows"), ("precompute", "follows"),
            ("predict", "skipped"), ("publish", "skipped"),
        ]  # fmt: skip
        opened = stage.client.flows.trigger(wanted)
        through(stage, "raw")
        there = preview(wanted)
        assert (there.is_new, there.flow_id) == (False, opened.flow.flow_id)
        assert "nothing would be started" in there.text
        part = preview(FlowRequest(pipeline="nba", customer="acme", partition=DAY,
                                   mode="overnight", phases=["precompute"]))  # fmt: skip
        assert (part.is_new, part.generation) == (True, 2)
        assert {one.phase: one.fate for one in part.phases}["raw"] == "inherited"
        assert stage.sql("SELECT count(*) FROM flows") == [(1,)]


def test_a_failed_probe_under_an_override(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """The explanation and the log state the override and, once, why the probe failed."""
    del stage.rows["raw.box"]
    stage.open()
    stage.client.overrides.grant(
        OverrideRequest(pipeline="nba", partition=DAY, customer="acme", dependency="raw.box",
                        reason="counted by hand", expires="4h")
    )  # fmt: skip
    through(stage, "raw", "analytics")
    assert lines(stage)["analytics"] == "degraded 1/1 10:10  raw.box could not be probed"
    decided, evidence = sentences(stage, "analytics")
    assert decided.startswith(
        "The gate decided PROCEED_DEGRADED at 10:05: Enough data, but not all of it: "
        "override in force for raw.box (probe failed: no such table). "
    )
    assert evidence.startswith("Evidence: raw.box could not be probed; an.days ")
    (logged,) = [one for one in caplog.messages if "PROCEED_DEGRADED" in one]
    assert logged.endswith("override in force for raw.box (probe failed: no such table).")
