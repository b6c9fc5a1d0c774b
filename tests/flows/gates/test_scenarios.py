"""Six scenarios of missing data: decision, acknowledgement, alert and text."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core import retry, stored_json
from penstock.core.clock import HOUR, MINUTE
from penstock.core.retry import ErrorType, NoRetry, Retry
from penstock.flows.gates.evidence import Observation, assess, date_ranges
from penstock.flows.gates.gate import decide
from penstock.flows.gates.verdict import Acknowledgement, AlertLevel, Decision, GateStatus, Verdict
from penstock.pipelines.cycles import cycle_of, deadlocked
from penstock.pipelines.declare.needs import historical, optional, same_day
from tests.kits.gates import NOW, absent, gate, history, odds, override, table

ACK, NACK = Acknowledgement.ACK, Acknowledgement.NACK
WAITS = {"a": {"x"}, "b": {"y"}, "c": {"z"}}


class TestSameDayNotReady:
    """Scenario 1: some of today's tables have not loaded yet, which is normal."""

    def test_first_event_waits_quietly_and_the_second_starts(self) -> None:
        early = decide(
            gate("same_day", table(name="raw.stats"), absent("raw.box"), absent("raw.pbp"))
        )
        assert (early.verdict, early.status) == (Verdict.WAIT, GateStatus.WAITING_SAME_DAY)
        assert (early.acknowledgement, early.alert, early.log_level) == (ACK, None, "INFO")
        assert early.failure_type == "same_day"
        assert early.missing == ("raw.box", "raw.pbp")
        assert early.reasons == (
            "Waiting for raw.box (0/1000 rows), raw.pbp (0/1000 rows). The maximum wait is 2h.",
        )
        assert early.recheck_at == NOW + 5 * MINUTE
        later = decide(gate("same_day", table(name="raw.stats"), table(), table(name="raw.pbp")))
        assert (later.verdict, later.acknowledgement) == (Verdict.PROCEED, ACK)


class TestHistoricalMissing:
    """Scenario 2: three of ten days; a backfill is needed."""

    def test_three_tries_then_an_intervention(self) -> None:
        seen = [
            decide(gate("same_day", table(), history(3), historical_tries=tries))
            for tries in range(5)
        ]
        assert [d.verdict for d in seen] == [Verdict.WAIT] * 3 + [Verdict.FAIL] * 2
        assert [d.acknowledgement for d in seen] == [NACK] * 3 + [ACK] * 2
        assert [d.intervention for d in seen] == [False] * 3 + [True] * 2
        levels = [None, None, AlertLevel.WARNING, AlertLevel.ERROR, AlertLevel.ERROR]
        assert [d.alert for d in seen] == levels
        assert {d.status for d in seen} == {GateStatus.MISSING_HISTORICAL}
        assert {d.failure_type for d in seen} == {"historical"}
        delays = [d.recheck_at - NOW for d in seen if d.recheck_at is not None]
        assert delays == [5 * MINUTE, 10 * MINUTE, 20 * MINUTE]

    def test_the_reason_names_the_days_and_the_fix(self) -> None:
        (reason,) = decide(gate("same_day", table(), history(3), historical_tries=3)).reasons
        assert reason == (
            "Too little history: analytics.summary (3/10 days, missing 2025-11-05 to 2025-11-11). "
            "Backfill the missing days or approve an override."
        )

    def test_an_override_lets_it_run_degraded(self) -> None:
        given = gate("same_day", table(), history(3), overrides=(override(),), historical_tries=9)
        decision = decide(given)
        assert (decision.verdict, decision.acknowledgement) == (Verdict.PROCEED_DEGRADED, ACK)
        assert not decision.intervention
        assert decision.overrides_used == ("ovr_1",)

    def test_a_custom_retry_policy_sets_the_delay(self) -> None:
        given = gate("same_day", history(0), retry_delay_us=MINUTE)
        assert decide(given).recheck_at == NOW + MINUTE


class TestOptionalMissing:
    """Scenario 3: an optional table is missing; the work starts degraded."""

    def test_degraded_with_a_warning(self) -> None:
        decision = decide(gate("same_day", table(), odds(present=False)))
        assert (decision.verdict, decision.status) == (
            Verdict.PROCEED_DEGRADED,
            GateStatus.READY_DEGRADED,
        )
        assert (decision.acknowledgement, decision.log_level) == (ACK, "WARNING")
        assert (decision.failure_type, decision.missing) == ("optional", ("raw.odds",))
        assert decision.warnings == ("raw.odds missing (optional)",)
        assert decision.alert is None

    def test_a_failed_probe_shows_its_error(self) -> None:
        need = optional("raw.odds")
        unprobed = assess(
            need, Observation(key=need.key, looked_at=NOW, error="timed out"), judged_at=NOW
        )
        decision = decide(gate("same_day", table(), unprobed))
        assert decision.warnings == ("raw.odds missing (optional): probe failed: timed out",)


class TestCircular:
    """Scenario 4: processors wait for each other, or all for a table that never arrives."""

    def test_a_cycle_fails_and_is_named(self) -> None:
        produces = {"a": {"y"}, "b": {"x"}, "c": {"w"}}
        assert deadlocked(WAITS, produces) == {"a", "b"}
        cycle = cycle_of("a", WAITS, produces)
        assert cycle == ("a", "b", "a")
        assert cycle_of("c", WAITS, produces) == ()
        decision = decide(gate("overnight", absent("x"), cycle=cycle))
        assert (decision.verdict, decision.status) == (Verdict.FAIL, GateStatus.CYCLE)
        assert (decision.acknowledgement, decision.rule) == (ACK, 1)
        assert decision.reasons[0].endswith("never start: a → b → a.")

    def test_a_processor_that_waits_for_a_cycle_is_stuck(self) -> None:
        waits = {"a": {"x"}, "b": {"y"}, "late": {"x"}}
        produces = {"a": {"y"}, "b": {"x"}}
        assert deadlocked(waits, produces) == {"a", "b", "late"}
        assert cycle_of("late", waits, produces) == ("b", "a", "b")

    @pytest.mark.parametrize(
        "produces",
        [
            {},
            {"a": {"y"}},
            {"a": {"y"}, "b": {"x"}, "other": {"x"}},
            {"a": {"p"}, "b": {"q"}, "c": {"r"}},
        ],
        ids=["raw data", "a chain", "another producer", "own tables"],
    )
    def test_no_cycle(self, produces: dict[str, set[str]]) -> None:
        assert deadlocked(WAITS, produces) == frozenset()

    def test_waiting_for_its_own_table(self) -> None:
        assert cycle_of("a", {"a": {"x"}}, {"a": {"x"}}) == ("a", "a")

    def test_a_table_that_never_arrives_is_not_a_cycle_but_fails(self) -> None:
        waiting = decide(gate("overnight", absent("x"), waited_us=150 * MINUTE))
        assert (waiting.verdict, waiting.alert) == (Verdict.WAIT, AlertLevel.WARNING)
        over = decide(gate("overnight", absent("x"), waited_us=6 * HOUR))
        assert (over.verdict, over.alert) == (Verdict.FAIL, AlertLevel.CRITICAL)


class TestValidation:
    """Scenario 5: the data is present but invalid."""

    def test_nulls_and_failed_checks_fail_the_gate(self) -> None:
        need = same_day("raw.box", not_null=["points"], checks={"negative minutes": "SELECT 1"})
        seen = Observation(
            key=need.key, looked_at=NOW, rows=200, expected=200, not_null_share=0.0,
            checks_total=1, checks_failed=("negative minutes",),
        )  # fmt: skip
        found = assess(need, seen, judged_at=NOW)
        assert found.issues == ("100 % of required cells empty", "check failed: negative minutes")
        decision = decide(gate("same_day", found))
        assert (decision.verdict, decision.alert) == (Verdict.FAIL, AlertLevel.ERROR)
        assert decision.reasons[0].startswith("The data quality is too low: quality 0.00 ")

    def test_an_error_during_processing_is_not_retried(self) -> None:
        """If the processor reports a validation error, the run becomes a dead letter."""
        wrong: dict[str, Any] = {"error_type": ErrorType.VALIDATION_ERROR, "attempt": 1}
        assert isinstance(retry.decide_retry(**wrong), NoRetry)
        assert isinstance(retry.decide_retry(**wrong, force_retry=True), Retry)


class TestPartialBackfill:
    """Scenario 6: some of the days are present."""

    @pytest.mark.parametrize(
        ("days", "verdict", "status"),
        [
            (10, Verdict.PROCEED, GateStatus.READY),
            (9, Verdict.PROCEED_DEGRADED, GateStatus.READY_DEGRADED),
            (5, Verdict.PROCEED_DEGRADED, GateStatus.READY_DEGRADED),
            (4, Verdict.WAIT, GateStatus.MISSING_HISTORICAL),
            (0, Verdict.WAIT, GateStatus.MISSING_HISTORICAL),
        ],
    )
    def test_days(self, days: int, verdict: Verdict, status: GateStatus) -> None:
        decision = decide(gate("same_day", table(), history(days)))
        assert (decision.verdict, decision.status) == (verdict, status)

    def test_warnings_at_five_days(self) -> None:
        decision = decide(gate("overnight", table(), history(5)))
        assert decision.acknowledgement is ACK
        assert decision.failure_type == "historical"
        assert decision.warnings == (
            "analytics.summary: 5/10 days, missing 2025-11-05 to 2025-11-09",
        )
        assert decision.alert is AlertLevel.INFO

    def test_min_days_are_enough(self) -> None:
        need = historical("t", days=10, min_days=8)
        seen = Observation(key=need.key, looked_at=NOW, days_present=8)
        decision = decide(gate("overnight", assess(need, seen, judged_at=NOW)))
        assert decision.verdict is Verdict.PROCEED


def test_consecutive_days_are_ranges() -> None:
    """Consecutive days form one range, also across months; other texts are unchanged."""
    days = ["2025-11-30", "2025-12-01", "2025-12-03", "2025-12-01"]
    assert date_ranges(days) == ["2025-11-30 to 2025-12-01", "2025-12-03"]
    assert date_ranges(["week 2", "week 1"]) == ["week 1", "week 2"]
    assert date_ranges([]) == []


def test_a_recorded_decision_round_trips() -> None:
    """Input and decision round-trip as JSON, and the input yields the same decision."""
    given = gate(
        "overnight", table(72.72727272727273, 0.951), history(5), odds(present=False),
        overrides=(override("raw.box"),), waited_us=HOUR,
    )  # fmt: skip
    restored = stored_json.loads(type(given), stored_json.dumps(given))
    assert restored == given
    assert stored_json.loads(Decision, stored_json.dumps(decide(given))) == decide(restored)
