"""Explanations, causes, traces and suggested commands for tabulated facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, Micros, parse_iso
from penstock.flows.explain.commands import override, resume, trigger
from penstock.flows.explain.explain import explain, explain_missing_flow
from penstock.flows.explain.facts import (
    BreakerFact,
    DecisionFact,
    EvidenceFact,
    FlowFact,
    GateFact,
    InterventionFact,
    PauseFact,
    PhaseFact,
    ProcessorFact,
    RunFact,
    TriggerFact,
)
from penstock.flows.explain.processor_messages import (
    describe_error,
    describe_evidence,
    describe_last_failure,
    describe_processor,
    describe_queue_position,
    describe_run,
)
from penstock.flows.explain.times import LocalClock, format_list, format_span, format_times
from penstock.flows.explain.trace import trace
from penstock.flows.explain.why import Cause, Clears, walk, why_flow, why_run

NOW = parse_iso("2025-12-31T16:11:00Z")
"""11:11 in New York."""
WALL = LocalClock(NOW, "America/New_York")


ALL_PAUSED = PauseFact(scope="all", subject=None, since=NOW, by="ann", reason="works")


def ago(minutes: int) -> Micros:
    """Return the time `minutes` minutes before now."""
    return NOW - minutes * MINUTE


def run(**fields: Any) -> RunFact:
    """Return a run of processor `features` that waits for a worker."""
    given = {"run_id": "run_1", "phase": "precompute", "processor": "features", "attempt": 1,
             "state": "PENDING", "since": ago(9), "due_at": ago(9),
             "pending_reason": "ready"}  # fmt: skip
    return RunFact(**{**given, **fields})


def failed(error_type: str = "TRANSIENT_NETWORK", **fields: Any) -> RunFact:
    """Return a failed attempt."""
    return run(
        state="FAILED", pending_reason=None, ended_at=ago(5), error_type=error_type, **fields
    )


def decision(verdict: str = "PROCEED", **fields: Any) -> DecisionFact:
    """Return a decision."""
    given: dict[str, Any] = {
        "decision_id": "dec_1", "at": ago(9), "verdict": verdict, "status": "ready",
        "completeness": 100.0, "quality": 1.0, "reasons": ("Because.",),
    }  # fmt: skip
    return DecisionFact(**{**given, **fields})


def phase(name: str, state: str, **fields: Any) -> PhaseFact:
    """Return a phase with one processor."""
    given: dict[str, Any] = {"since": ago(9), "expected": ("features",)}
    return PhaseFact(name=name, state=state, **{**given, **fields})


def flow(*phases: PhaseFact, **fields: Any) -> FlowFact:
    """Return a flow with these phases."""
    given: dict[str, Any] = {
        "flow_id": "flow_1", "customer": "default", "pipeline": "nba", "partition": "2025-12-31",
        "mode": "same_day", "generation": 1, "state": "OPEN", "correlation_id": "7f3a",
        "trigger_source": "scheduler", "opened_by": "scheduler", "opened_at": ago(60),
        "timezone": "America/New_York",
    }  # fmt: skip
    return FlowFact(**{**given, **fields}, phases=phases)


class TestWords:
    """Formatting of times, durations and lists."""

    @pytest.mark.parametrize(
        ("moment", "text"),
        [
            (NOW, "11:11"),
            (NOW - DAY, "12-30 11:11"),
            (NOW + DAY, "2026-01-01 11:11"),
            (NOW - 12 * HOUR, "12-30 23:11"),
        ],
    )
    def test_times(self, moment: Micros, text: str) -> None:
        """Times are in the pipeline's zone; the date is shown only for other days."""
        assert WALL.at(moment) == text

    def test_coming(self) -> None:
        """A time that has passed is shown as "any moment"."""
        assert WALL.upcoming(NOW + MINUTE) == "11:12"
        assert WALL.upcoming(NOW) == "any moment"
        assert WALL.ago(ago(4)) == "4 min"

    @pytest.mark.parametrize(
        ("us", "text"),
        [(0, "0 s"), (45 * SECOND, "45 s"), (4 * MINUTE, "4 min"), (HOUR, "1 h"),
         (2 * HOUR + 5 * MINUTE, "2 h 5 min"), (3 * DAY, "3 d")],
    )  # fmt: skip
    def test_spans(self, us: Micros, text: str) -> None:
        """A duration is shown in its largest units."""
        assert format_span(us) == text

    def test_lists(self) -> None:
        """Short lists are complete, long ones are truncated with a count."""
        assert format_list(["a"]) == "a"
        assert format_list(["a", "b", "c"]) == "a, b and c"
        assert format_list(list("abcdefg")) == "a, b, c, d, e and 2 more"
        assert [format_times(n) for n in (1, 2, 3)] == ["once", "twice", "3 times"]


class TestProcessors:
    """The state of a processor as text."""

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"status": "success", "at": ago(1)}, "features completed at 11:10"),
            ({"status": "partial", "at": ago(1)}, "features completed in part at 11:10"),
            ({}, "features has not reported"),
            ({"is_external": True}, "features has not reported; it runs outside Penstock"),
            ({"live": run()}, "features has been waiting for a worker since 11:02"),
            (
                {"live": run(is_external=True)},
                "features has been waiting for an external worker since 11:02",
            ),
            (
                {"live": run(attempt=3, pending_reason="later", due_at=NOW + MINUTE),
                 "failures": (failed(), failed())},
                "features failed twice (TRANSIENT_NETWORK), next try 11:12",
            ),
            (
                {"live": run(state="RUNNING", pending_reason=None, started_at=ago(2), attempt=2,
                             claimed_by="w1")},
                "features has been running since 11:09 on w1 (attempt 2)",
            ),
            (
                {"live": run(pending_reason="blocked", preceding_run_id="run_9", ordering_key="k")},
                "features waits for run_9 (ordering key k)",
            ),
            (
                {"live": run(pending_reason="paused", pauses=(ALL_PAUSED,))},
                "features cannot start: everything is paused by ann (works)",
            ),
            ({"live": run(pending_reason="paused")}, "features cannot start: it is paused"),
            (
                {"status": "failed", "at": ago(5),
                 "failures": (failed(), failed("VALIDATION_ERROR", error="no\nsuch column"))},
                "features failed permanently at 11:06 after 2 attempts "
                "(VALIDATION_ERROR: no such column)",
            ),
        ],
    )  # fmt: skip
    def test_table(self, fields: dict[str, Any], words: str) -> None:
        """Each state has its text."""
        assert describe_processor(ProcessorFact(name="features", **fields), WALL) == words

    def test_the_last_error(self) -> None:
        """A processor that is tried again names its last error, in sentences and causes."""
        again = run(attempt=2, pending_reason="later", due_at=NOW + MINUTE)
        broken = failed("UNKNOWN", error="the till is closed")
        features = ProcessorFact(name="features", live=again, failures=(broken,))
        words = "; the last error was UNKNOWN: the till is closed"
        assert describe_last_failure(features) == words
        assert describe_last_failure(replace(features, live=None)) == ""
        assert describe_last_failure(replace(features, failures=(failed(),))) == ""
        given = flow(phase("x", "IN_PROGRESS", started_at=ago(9), processors=(features,)))
        (shown,) = explain(given, NOW).phases
        assert f"features failed once (UNKNOWN), next try 11:12{words}." in shown.sentences
        assert any(words in cause.text for _, cause in walk(why_flow(given, NOW)))

    def test_long_errors_are_cut(self) -> None:
        """A long error is truncated to one line."""
        assert len(describe_error(failed(error="x" * 1000))) < 200

    def test_queue_position(self) -> None:
        """The number of runs ahead is shown."""
        assert [describe_queue_position(run(runs_ahead=n)) for n in (None, 0, 1, 5, 1000)] == [
            "", "it is next in the queue", "1 run is ahead of it", "5 runs are ahead of it",
            "1,000 or more runs are ahead of it",
        ]  # fmt: skip
        assert describe_run(run(pending_reason="later", due_at=NOW), WALL) == "due any moment"


class TestPhases:
    """The headline of a phase."""

    @pytest.mark.parametrize(
        ("given", "line"),
        [
            (phase("x", "COMPLETE", ended_at=ago(1)), "complete|11:10"),
            (phase("x", "PENDING"), "not triggered|its gate has not been evaluated yet"),
            (phase("x", "SKIPPED", expected=()), "skipped|same_day does not run it"),
            (phase("x", "SKIPPED"), "skipped|not part of this flow"),
            (phase("x", "WAITING"), "waiting|since 11:02 for more data"),
            (
                phase("x", "BLOCKED", breaker=BreakerFact(failures=5, next_probe_at=NOW + HOUR,
                                                          is_open=True)),
                "blocked|since 11:02: breaker open after 5 failures, tries again 12:11",
            ),
            (phase("x", "BLOCKED"), "blocked|since 11:02: its gate failed"),
            (
                phase("x", "DEGRADED", ended_at=ago(1), missing=("raw.odds",)),
                "degraded|11:10  without raw.odds since an earlier phase",
            ),
            (
                phase("x", "DEGRADED", ended_at=ago(1),
                      processors=(ProcessorFact(name="features", status="partial", at=ago(1)),)),
                "degraded|11:10  features completed in part",
            ),
            (
                phase("x", "IN_PROGRESS", started_at=ago(9), stragglers_us=20 * MINUTE,
                      processors=(ProcessorFact(name="features", live=run()),)),
                "running|since 11:02, stragglers until 11:22: "
                "features has been waiting for a worker since 11:02",
            ),
            (
                phase("x", "IN_PROGRESS", started_at=ago(9),
                      gate=GateFact(processor="", state="IN_PROGRESS", since=ago(9),
                                    trigger=TriggerFact(at=ago(9), verdict="PROCEED",
                                                        source="o", is_observed=True))),
                "observed|would have started at 11:02; nothing was started",
            ),
            (
                phase("x", "IN_PROGRESS", started_at=ago(9), is_each=True,
                      processors=(ProcessorFact(name="features"),),
                      gates=(GateFact(processor="features", state="WAITING", since=ago(9)),)),
                "running|since 11:02: features waiting at its gate",
            ),
        ],
    )  # fmt: skip
    def test_table(self, given: PhaseFact, line: str) -> None:
        """Each state has its word and headline."""
        (story,) = explain(flow(given), NOW).phases
        assert f"{story.word}|{story.headline}" == line

    def test_skipped_by_the_flow(self) -> None:
        """The headline of a skipped phase names the reason."""
        skipped = phase("x", "SKIPPED")
        for fields, words in (
            ({"state": "FAILED", "ended_at": NOW}, "the flow failed before it"),
            ({"state": "CANCELLED", "ended_at": NOW}, "the flow was cancelled before it"),
            ({"start_phase": "y"}, "this generation starts at y"),
        ):
            assert explain(flow(skipped, **fields), NOW).phases[0].headline == words

    @pytest.mark.parametrize("state", ["COMPLETE", "DEGRADED"])
    def test_failed_attempts_are_counted(self, state: str) -> None:
        """A phase that ended says how many attempts its processors needed besides the last."""

        def done(name: str, *failures: RunFact) -> ProcessorFact:
            return ProcessorFact(name=name, status="success", at=ago(1), failures=failures)

        def headline(*processors: ProcessorFact) -> str:
            given = phase("x", state, ended_at=ago(1), missing=("raw",), processors=processors)
            return explain(flow(given), NOW).phases[0].headline

        plain = headline(done("a"))
        assert "after" not in plain
        once = headline(done("a"), done("b", failed()))
        assert once == f"{plain}  (after 1 failed attempt of b)"
        more = headline(done("a", failed(), failed()), done("b", failed()))
        assert more == f"{plain}  (after 3 failed attempts of a and b)"


class TestEvidence:
    """The evidence of a gate as text."""

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"rows": 200, "expected": 200}, "t 200/200 rows"),
            ({"rows": 195, "expected": 200, "issues": ("195/200 rows (97.5 %)",)},
             "t 195/200 rows (97.5 %)"),
            ({"kind": "optional", "rows": 0, "expected": 1, "issues": ("0/1 rows (0 %)",)},
             "t (optional) 0/1 rows (0 %)"),
            ({"kind": "historical", "days_present": 10, "days_needed": 10},
             "t (historical) 10 of 10 days"),
            ({"error": "timeout"}, "t could not be probed (timeout)"),
        ],
    )  # fmt: skip
    def test_table(self, fields: dict[str, Any], words: str) -> None:
        """Complete, with issues, optional, historical, and with a probe error."""
        given = {"table": "t", "kind": "same_day", "status": "COMPLETE", **fields}
        assert describe_evidence(EvidenceFact(**given)) == words


class TestOffers:
    """Suggested commands fit the state of the flow."""

    def test_backfills_of_missing_days_are_suggested(self) -> None:
        """Backfills of the missing days are suggested."""
        evidence = EvidenceFact(table="an.days", kind="historical", status="MISSING",
                            days_missing=("2025-12-01", "2025-12-02", "2025-12-05"))  # fmt: skip
        held = GateFact(
            processor="",
            state="BLOCKED",
            since=ago(9),
            decision=decision(
                "FAIL", status="missing_historical", missing=("an.days",), evidence=(evidence,)
            ),
        )
        item = InterventionFact(intervention_id="int_1", phase="x", processor="", tries=3,
                                missing=("an.days",), reason="r", opened_at=ago(3))  # fmt: skip
        explanation = explain(flow(phase("x", "BLOCKED", gate=held, intervention=item)), NOW)
        found = [offer.command for offer in explanation.offers]
        assert found == [
            "penstock trigger nba 2025-12-01 --mode backfill",
            "penstock trigger nba 2025-12-05 --mode backfill",
            "penstock override grant nba 2025-12-31 --phase x --dependency an.days --expires 4h "
            "--reason WHY",
            "penstock gate check nba 2025-12-31 x --mode same_day",
            "penstock interventions resolve int_1 --resolution WHAT",
            "penstock trigger nba 2025-12-31 x --mode same_day",
            "penstock why flow_1",
        ]
        assert explanation.phases[0].sentences[-1] == (
            "Manual intervention is required (int_1, opened at 11:08 after 3 tries): "
            "an.days missing."
        )

    def test_no_override_for_required_data(self) -> None:
        """No override is suggested if it would not apply."""
        evidence = EvidenceFact(table="t", kind="same_day", status="MISSING")
        held = GateFact(processor="", state="BLOCKED", since=ago(9), decision=decision(
            "FAIL", status="missing_required", missing=("t",), evidence=(evidence,)))  # fmt: skip
        explanation = explain(flow(phase("x", "BLOCKED", gate=held)), NOW)
        assert not [offer for offer in explanation.offers if "override" in offer.command]

    def test_names_are_quoted(self) -> None:
        """Names are quoted, so that a partition cannot inject a command."""
        evil = flow(partition="x; rm -rf ~", customer="a b")
        assert override(evil, "p", "t").command.startswith(
            "penstock override grant nba 'x; rm -rf ~' --phase p --dependency t --customer 'a b'"
        )
        assert trigger("nba", "p", "default", does="").command == "penstock trigger nba p"
        everything = PauseFact(scope="all", subject=None, since=0, by="a")
        assert resume(everything).command == "penstock resume all"

    def test_nothing_to_do(self) -> None:
        """No commands are suggested for a flow without problems."""
        assert explain(flow(phase("x", "PENDING")), NOW).offers == ()
        ended = flow(phase("x", "COMPLETE"), state="COMPLETE", ended_at=NOW)
        assert explain(ended, NOW).offers == ()
        assert len(explain_missing_flow("nba", "p", "default", "manual").offers) == 2


class TestWhy:
    """Trees of causes, and the earliest time at which they clear."""

    def test_causes_of_a_run(self) -> None:
        """Every reason for which a run may wait has its cause."""
        pause = PauseFact(scope="config", subject="cfg_1", since=ago(2), by="ann")
        table: list[tuple[RunFact, list[str], Clears]] = [
            (run(pending_reason="later", due_at=NOW + MINUTE), ["schedule"], Clears.TIME),
            (run(pending_reason="later", attempt=2, due_at=NOW + MINUTE), ["retry"], Clears.TIME),
            (run(pending_reason="paused", pauses=(pause,)), ["pause"], Clears.PERSON),
            (
                run(pending_reason="blocked", preceding_run_id="run_9"),
                ["ordering_key"],
                Clears.EVENT,
            ),
            (run(workers=0), ["worker"], Clears.PERSON),
            (run(workers=2, runs_ahead=5), ["worker", "fairness"], Clears.EVENT),
            (
                run(state="RUNNING", pending_reason=None, started_at=ago(1)),
                ["execution"],
                Clears.EVENT,
            ),
            (failed(), [], Clears.NEVER),
        ]
        for given, kinds, clears in table:
            cause = why_run(given, WALL)
            assert [child.kind for child in cause.children] == kinds, given
            assert cause.clears is clears, given

    def test_the_earliest_is_the_latest_of_the_causes(self) -> None:
        """A phase clears when all its processors have, or at its straggler deadline."""
        first = ProcessorFact(name="a", live=run(pending_reason="later", due_at=NOW + 5 * MINUTE))
        second = ProcessorFact(name="b", live=run(pending_reason="later", due_at=NOW + 9 * MINUTE))
        under = phase("x", "IN_PROGRESS", started_at=ago(9), processors=(first, second))
        assert why_flow(flow(under), NOW).earliest_at == NOW + 9 * MINUTE
        soon = replace(under, stragglers_us=10 * MINUTE)
        assert why_flow(flow(soon), NOW).earliest_at == NOW + MINUTE

    def test_a_shared_cause_is_shown_once(self) -> None:
        """Of two phases that wait for the same one, the second refers to the first."""
        held = phase("raw", "IN_PROGRESS", started_at=ago(9),
                     processors=(ProcessorFact(name="features", live=run()),))  # fmt: skip
        left = phase("left", "PENDING", after=("raw",))
        right = phase("right", "PENDING", after=("raw",))
        texts = [c.text for _, c in walk(why_flow(flow(held, left, right), NOW))]
        assert texts[-1] == "raw (see above)"
        assert sum("running" in text for text in texts) == 1

    def test_waiting_for_the_orchestrator(self) -> None:
        """A phase whose gate may be evaluated waits for an orchestrator."""
        cause = why_flow(flow(phase("x", "PENDING")), NOW)
        found = [c for _, c in walk(cause)]
        assert found[-1].kind == "orchestrator"
        assert isinstance(cause, Cause)


class TestTrace:
    """The order of steps, and what did not happen."""

    def test_order_and_absence(self) -> None:
        """Steps are ordered by time; an open breaker explains why a phase did not start."""
        ended = phase("raw", "COMPLETE", started_at=ago(20), ended_at=ago(10),
                      gate=GateFact(processor="", state="COMPLETE", since=ago(10),
                                    trigger=TriggerFact(at=ago(20), verdict="PROCEED",
                                                        source="scheduler")),
                      processors=(ProcessorFact(name="features", status="success",
                                                at=ago(10)),))  # fmt: skip
        held = phase(
            "next",
            "BLOCKED",
            after=("raw",),
            breaker=BreakerFact(failures=5, next_probe_at=NOW + HOUR, is_open=True),
        )
        done = run(state="COMPLETED", pending_reason=None, started_at=ago(15), ended_at=ago(12))
        found = trace([flow(ended, held)], [done], NOW)
        assert [step.kind for step in found.steps] == [
            "flow", "gate", "execution", "report", "phase",
        ]  # fmt: skip
        assert [absence.text for absence in found.absences] == [
            "next: not triggered: since 11:02: breaker open after 5 failures, tries again 12:11"
        ]

    @pytest.mark.parametrize(
        ("states", "reached", "summary"),
        [
            (
                {"raw": "COMPLETE", "next": "SKIPPED", "last": "SKIPPED"},
                False,
                "nba 2025-12-31 got as far as raw: next skipped, last skipped.",
            ),
            (
                {"raw": "SKIPPED", "next": "SKIPPED", "last": "COMPLETE"},
                True,
                "nba 2025-12-31 reached last, the last phase. Not run: raw and next.",
            ),
            (
                {"raw": "COMPLETE", "next": "COMPLETE", "other": "SKIPPED"},
                True,
                "nba 2025-12-31 reached next, the last phase.",
            ),
        ],
    )
    def test_phases_that_a_flow_left_out(
        self, states: dict[str, str], reached: bool, summary: str
    ) -> None:
        """Phases that the flow left out are named; those that its mode does not run are not."""
        before: tuple[str, ...] = ()
        phases = []
        for name, state in states.items():
            expected = () if name == "other" else ("features",)
            phases.append(phase(name, state, after=before, expected=expected))
            before = (name,)
        found = trace([flow(*phases, state="COMPLETE", ended_at=ago(1))], [], NOW)
        assert (found.reached_last, found.summary) == (reached, summary)
