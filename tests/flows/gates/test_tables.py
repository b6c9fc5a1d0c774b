"""Decision tables of gates: all rows, both matrices, alerts, waits and overrides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.flows.gates.evidence import Observation, assess
from penstock.flows.gates.gate import decide, what_if
from penstock.flows.gates.messages import warnings_beside
from penstock.flows.gates.verdict import AlertLevel, BreakerEffect, GateStatus, Upstream, Verdict
from penstock.pipelines.declare.needs import optional, same_day
from penstock.pipelines.modes import Leniency, with_leniency
from tests.kits.gates import NOW, absent, gate, history, odds, override, table
from tests.kits.modes import GAME_DAY

FAIL, WAIT = Verdict.FAIL, Verdict.WAIT
DEGRADED, PROCEED = Verdict.PROCEED_DEGRADED, Verdict.PROCEED
MODES = tuple(GAME_DAY)


class TestDecisionTable:
    """Verdicts by mode, completeness and quality before the maximum wait has passed."""

    @pytest.mark.parametrize(
        ("mode", "completeness", "quality", "verdict"),
        [
            ("overnight", 72, 0.95, WAIT),
            ("same_day", 72, 0.95, DEGRADED),
            ("tomorrow", 72, 0.95, PROCEED),
            ("backfill", 72, 0.95, FAIL),
            ("overnight", 91, 0.98, WAIT),
            ("same_day", 91, 0.98, DEGRADED),
            ("same_day", 45, 0.95, DEGRADED),
            ("same_day", 18, 0.90, FAIL),
            ("overnight", 100, 0.60, WAIT),
        ],
    )
    def test_rows(self, mode: str, completeness: float, quality: float, verdict: Verdict) -> None:
        assert decide(gate(mode, table(completeness, quality))).verdict is verdict

    @pytest.mark.parametrize("mode", MODES)
    def test_a_required_table_that_is_absent_fails_any_mode(self, mode: str) -> None:
        given = gate(mode, table(), absent("raw.schedule", fail_if_missing=True))
        decision = decide(given)
        assert (decision.verdict, decision.status) == (FAIL, GateStatus.MISSING_REQUIRED)
        assert decision.rule == 1
        assert "raw.schedule" in decision.reasons[0]

    @pytest.mark.parametrize(
        ("mode", "games", "verdict"),
        [
            ("overnight", 8, WAIT),
            ("same_day", 8, DEGRADED),
            ("tomorrow", 8, PROCEED),
            ("backfill", 8, FAIL),
            ("overnight", 10, WAIT),
            ("same_day", 10, DEGRADED),
            ("same_day", 5, DEGRADED),
            ("same_day", 2, FAIL),
        ],
    )
    def test_games_of_eleven(self, mode: str, games: int, verdict: Verdict) -> None:
        """The matrices count games; counted as upstream completions, the verdicts are the same."""
        assert decide(gate(mode, table(games * 100 / 11, 0.95))).verdict is verdict
        counted = gate(mode, upstream=Upstream(completed=games, expected=11), reported=(0.95,))
        assert decide(counted).verdict is verdict

    @pytest.mark.parametrize("mode", MODES)
    def test_complete_data_proceeds_in_every_mode(self, mode: str) -> None:
        decision = decide(gate(mode, table()))
        assert (decision.verdict, decision.status) == (PROCEED, GateStatus.READY)
        assert (decision.alert, decision.recheck_at, decision.warnings) == (None, None, ())
        assert decide(gate(mode)).verdict is PROCEED

    @pytest.mark.parametrize(
        ("mode", "completeness", "quality", "verdict"),
        [
            ("manual", 50, 0.80, DEGRADED),
            ("manual", 49, 1.0, FAIL),
            ("manual", 100, 0.80, PROCEED),
            ("same_day", 100, 0.89, DEGRADED),
            ("same_day", 20, 0.5, DEGRADED),
            ("same_day", 100, 0.49, FAIL),
            ("tomorrow", 70, 0.85, PROCEED),
            ("tomorrow", 30, 0.85, DEGRADED),
            ("tomorrow", 29, 0.85, WAIT),
            ("tomorrow", 100, 0.49, WAIT),
            ("overnight", 100, 0.95, PROCEED),
            ("overnight", 1, 0.2, WAIT),
            ("backfill", 100, 0.95, PROCEED),
            ("backfill", 100, 0.94, FAIL),
        ],
    )
    def test_edges(self, mode: str, completeness: float, quality: float, verdict: Verdict) -> None:
        assert decide(gate(mode, table(completeness, quality))).verdict is verdict


class TestMaxWait:
    """Verdicts after the maximum wait of a mode."""

    @pytest.mark.parametrize(
        ("mode", "completeness", "quality", "verdict"),
        [
            ("overnight", 50, 0.95, DEGRADED),
            ("overnight", 49, 0.95, FAIL),
            ("overnight", 100, 0.60, DEGRADED),
            ("overnight", 100, 0.49, FAIL),
            ("tomorrow", 29, 1.0, FAIL),
            ("tomorrow", 60, 0.49, FAIL),
        ],
    )
    def test_thresholds(
        self, mode: str, completeness: float, quality: float, verdict: Verdict
    ) -> None:
        longest = GAME_DAY[mode].max_wait_us
        assert longest is not None
        given = gate(mode, table(completeness, quality), waited_us=longest)
        decision = decide(given)
        assert decision.verdict is verdict
        assert decision.alert is not None
        assert decision.escalated is (verdict is DEGRADED)

    def test_absent_data_fails_after_the_maximum_wait(self) -> None:
        early = gate("same_day", absent(), waited_us=2 * HOUR - 1)
        assert decide(early).status is GateStatus.WAITING_SAME_DAY
        late = decide(gate("same_day", absent(), waited_us=2 * HOUR))
        assert (late.verdict, late.status) == (FAIL, GateStatus.MISSING_SAME_DAY)
        assert late.reasons[0].endswith("Waited 2h; the maximum is 2h.")

    @pytest.mark.parametrize(
        ("waited_us", "text"),
        [
            (0, "The maximum wait is 2h."),
            (51 * SECOND + 1, "Waited 51s of at most 2h."),
            (11 * MINUTE + 30 * SECOND, "Waited 11m of at most 2h."),
        ],
    )
    def test_the_time_waited(self, waited_us: int, text: str) -> None:
        """Seconds in the first minute, then minutes; nothing before the wait has begun."""
        decision = decide(gate("same_day", absent(), waited_us=waited_us))
        assert decision.reasons[0].endswith(f"(0/1000 rows). {text}")

    @pytest.mark.parametrize("mode", ["manual", "backfill"])
    def test_modes_without_a_max_wait_fail_at_once(self, mode: str) -> None:
        assert decide(gate(mode, absent())).verdict is FAIL
        short = decide(gate(mode, table(), history(3)))
        assert (short.verdict, short.intervention) == (FAIL, True)

    def test_recheck_times(self) -> None:
        """Re-checks follow the mode's interval; the last one is at the end of the maximum wait."""
        decision = decide(gate("overnight", table(72)))
        assert decision.recheck_at == NOW + 10 * MINUTE
        assert decision.waits_until == NOW + 6 * HOUR
        late = decide(gate("overnight", table(72), waited_us=6 * HOUR - MINUTE))
        assert (late.recheck_at, late.waits_until) == (NOW + MINUTE, NOW + MINUTE)
        assert decide(gate("same_day", absent())).recheck_at == NOW + 5 * MINUTE
        assert decide(gate("tomorrow", absent())).recheck_at == NOW + 30 * MINUTE

    def test_the_fallback_overrides_wait_but_never_rule_one(self) -> None:
        past = decide(gate("overnight", absent(), fallback=True))
        assert (past.verdict, past.alert, past.escalated) == (DEGRADED, AlertLevel.WARNING, True)
        assert past.missing == ("raw.box",)
        required = absent(fail_if_missing=True)
        assert decide(gate("overnight", required, fallback=True)).verdict is FAIL
        assert decide(gate("same_day", table(18, 0.9), fallback=True)).verdict is FAIL


class TestAlerts:
    """Alert levels."""

    @pytest.mark.parametrize(
        ("mode", "completeness", "quality", "waited", "level"),
        [
            ("same_day", 19, 1.0, 0, AlertLevel.CRITICAL),
            ("same_day", 100, 0.4, 0, AlertLevel.ERROR),
            ("same_day", 50, 0.9, 0, None),
            ("same_day", 49, 0.9, 0, AlertLevel.INFO),
            ("same_day", 49, 0.79, 0, AlertLevel.WARNING),
            ("tomorrow", 40, 0.6, 0, None),
            ("tomorrow", 10, 0.9, 12 * HOUR, AlertLevel.CRITICAL),
            ("tomorrow", 10, 0.9, 11 * HOUR, None),
            ("overnight", 72, 0.9, HOUR, None),
            ("overnight", 72, 0.9, HOUR + 1, AlertLevel.INFO),
            ("overnight", 72, 0.9, 2 * HOUR + 1, AlertLevel.WARNING),
            ("overnight", 72, 0.9, 6 * HOUR, AlertLevel.INFO),
            ("overnight", 72, 0.7, 6 * HOUR, AlertLevel.WARNING),
            ("overnight", 30, 0.9, 6 * HOUR, AlertLevel.ERROR),
            ("manual", 10, 0.9, 0, None),
            ("backfill", 10, 0.9, 0, None),
        ],
    )
    def test_levels(
        self, mode: str, completeness: float, quality: float, waited: int, level: AlertLevel | None
    ) -> None:
        assert decide(gate(mode, table(completeness, quality), waited_us=waited)).alert is level

    def test_overnight_alerts_on_every_degraded_start(self) -> None:
        decision = decide(gate("overnight", table(), odds(present=False)))
        assert (decision.verdict, decision.alert) == (DEGRADED, AlertLevel.INFO)
        assert decision.log_level == "WARNING"

    def test_levels_are_ordered_and_have_two_names(self) -> None:
        assert [level.rank for level in AlertLevel] == [0, 1, 2, 3]
        assert AlertLevel["MEDIUM"] is AlertLevel.WARNING
        assert AlertLevel["HIGH"] is AlertLevel.ERROR


class TestMeans:
    """Overall completeness and quality."""

    def test_a_full_table_does_not_hide_a_missing_one(self) -> None:
        given = gate("same_day", table(400, 1.0, "a"), table(50, 1.0, "b"))
        assert decide(given).completeness == 75.0

    def test_weights_and_zero_weight(self) -> None:
        given = gate("same_day", table(100, 1.0, "a", weight=3.0), table(60, 0.6, "b"))
        decision = decide(given)
        assert (decision.completeness, round(decision.quality, 9)) == (90.0, 0.9)
        nothing = decide(gate("overnight", table(10, 0.1, weight=0.0)))
        assert (nothing.completeness, nothing.quality) == (100.0, 1.0)

    def test_upstream_processors_are_one_more_check_without_quality(self) -> None:
        upstream = Upstream(completed=1, expected=2, outstanding=("shots",))
        decision = decide(gate("same_day", table(100, 0.9), upstream=upstream))
        assert (decision.completeness, decision.quality) == (75.0, 0.9)
        assert decision.warnings == ("1/2 upstream processors, without shots",)

    def test_without_tables_the_reported_scores_count(self) -> None:
        assert decide(gate("same_day", reported=(0.5, 0.7))).quality == pytest.approx(0.6)
        assert decide(gate("same_day", table(100, 0.95), reported=(0.1,))).quality == 0.95

    def test_history_and_optional_data_stay_out_of_the_means(self) -> None:
        decision = decide(gate("overnight", table(), history(7), odds(present=False)))
        assert (decision.completeness, decision.quality) == (100.0, 1.0)

    def test_rounding_errors_do_not_miss_a_threshold(self) -> None:
        tables = [table(100, 0.95, f"t{n}", weight=0.1 + n / 7) for n in range(20)]
        assert decide(gate("overnight", *tables)).verdict is PROCEED


class TestLeniency:
    """A pipeline may be stricter or more lenient than its mode."""

    def test_strict_and_lenient(self) -> None:
        modes = dict(GAME_DAY)
        strict = with_leniency(modes["same_day"], Leniency.STRICT, modes)
        assert (strict.name, strict.window, strict.waits) == ("same_day", (600, 900), True)
        given = gate("same_day", table(72, 0.95))
        assert decide(replace(given, mode=strict)).verdict is WAIT
        lenient = with_leniency(modes["overnight"], Leniency.LENIENT, modes)
        assert lenient.until == "precompute"
        assert decide(replace(gate("overnight", table(72)), mode=lenient)).verdict is DEGRADED
        assert with_leniency(modes["manual"], Leniency.AUTO, modes) is modes["manual"]

    def test_what_if(self) -> None:
        given = gate("overnight", table(91, 0.98))
        assert what_if(given, {"proceed_at": 90}).verdict is PROCEED
        assert what_if(given, {"degraded_at": 50}).verdict is DEGRADED
        assert what_if(given, {}) == decide(given)
        lenient_result = what_if(gate("manual", absent()), {"max_wait": "1h"})
        assert lenient_result.status is GateStatus.WAITING_SAME_DAY


class TestEffect:
    """The effect of a decision on the breaker."""

    def test_only_a_failure_of_a_settled_set_counts(self) -> None:
        assert decide(gate("backfill", table(10))).effect is BreakerEffect.FAILURE
        early = gate("backfill", table(10), set_complete=False)
        assert decide(early).effect is BreakerEffect.NEUTRAL
        passed = gate("backfill", table(10), set_complete=False, stragglers_passed=True)
        assert decide(passed).effect is BreakerEffect.FAILURE
        assert decide(gate("overnight", absent())).effect is BreakerEffect.NEUTRAL
        assert decide(gate("overnight", table())).effect is BreakerEffect.SUCCESS


class TestOverrides:
    """Overrides: their scope, and the degraded start they cause."""

    def test_absent_same_day_data(self) -> None:
        given = gate("overnight", table(100, 1.0, "a"), absent("b"), overrides=(override("b"),))
        decision = decide(given)
        assert (decision.verdict, decision.completeness) == (DEGRADED, 100.0)
        assert decision.overrides_used == ("ovr_1",)
        assert decision.reasons[0] == (
            "Enough data, but not all of it: override in force for b (0/1000 rows)."
        )
        assert decision.reasons[1].startswith("Proceeding without b: approved by ann@example.com")

    def test_partial_data_is_named_with_its_counts(self) -> None:
        """Also where the thresholds are not met; what is overridden is not called the weakest."""
        counts = table(25, 1.0, "counts", issues=("1/4 rows (25 %)",))
        decision = decide(gate("manual", counts, overrides=(override("counts"),)))
        assert decision.reasons[0] == (
            "Enough data, but not all of it: override in force for counts (1/4 rows (25 %))."
        )
        partial, approved = table(60, 1.0, "b"), (override("counts"),)
        beside = decide(gate("manual", counts, partial, overrides=approved))
        assert beside.reasons[0] == (
            "Enough data for a degraded start: completeness 60 % (needs 100 %), quality 1.00 "
            "(needs 0.80); weakest is b (600/1000 rows); "
            "override in force for counts (1/4 rows (25 %))."
        )

    def test_a_failed_probe_is_named_once(self) -> None:
        need = same_day("counts")
        error = "warehouse: no address. Set PENSTOCK_WAREHOUSES, or warehouses in penstock.toml."
        seen = Observation(key=need.key, looked_at=NOW, error=error)
        found = assess(need, seen, judged_at=NOW)
        decision = decide(gate("manual", found, overrides=(override("counts"),)))
        assert decision.reasons[0] == (
            "Enough data, but not all of it: override in force for counts "
            f"(probe failed: {error[:-1]})."
        )
        assert warnings_beside(decision.reasons[0], decision.warnings) == []
        assert warnings_beside("Enough data.", decision.warnings) == list(decision.warnings)
        extra = assess(optional("weather"), replace(seen, key="extra"), judged_at=NOW)
        both = decide(gate("manual", found, extra, overrides=(override("counts"),)))
        assert both.reasons[0].endswith("penstock.toml); weather missing (optional).")
        assert warnings_beside(both.reasons[0], both.warnings) == []

    def test_short_history(self) -> None:
        given = gate("overnight", table(), history(3), overrides=(override(),))
        assert decide(given).verdict is DEGRADED
        keyed = override("historical:analytics.summary")
        assert (
            decide(gate("overnight", table(), history(3), overrides=(keyed,))).verdict is DEGRADED
        )

    def test_partial_data_only_where_it_is_needed(self) -> None:
        approval = override("raw.box")
        assert decide(gate("overnight", table(72), overrides=(approval,))).verdict is DEGRADED
        enough = decide(gate("tomorrow", table(72), overrides=(approval,)))
        assert (enough.verdict, enough.overrides_used) == (PROCEED, ())

    def test_never_for_required_data(self) -> None:
        given = gate("overnight", absent(fail_if_missing=True), overrides=(override(),))
        assert decide(given).verdict is FAIL

    def test_neither_expired_nor_for_another_table(self) -> None:
        for irrelevant in (
            override(expires_at=NOW),
            override("else"),
            override(approved_at=NOW + 1),
        ):
            decision = decide(gate("overnight", absent(), overrides=(irrelevant,)))
            assert decision.status is GateStatus.WAITING_SAME_DAY
            assert decision.overrides_used == ()

    def test_every_processor_that_needs_it_must_be_covered(self) -> None:
        missing = absent("a", needed_by=("one", "two"))
        one = override("a", id="1", processor="one")
        two = override("a", id="2", processor="two")
        assert decide(gate("overnight", missing, overrides=(one,))).verdict is WAIT
        both = decide(gate("overnight", missing, overrides=(two, one)))
        assert (both.verdict, both.overrides_used) == (DEGRADED, ("1", "2"))
