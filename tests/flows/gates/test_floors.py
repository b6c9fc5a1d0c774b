"""Floors: no average hides a hole, and decisions recorded before them are replayed as they were."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.core.clock import HOUR
from penstock.core.stored_json import dumps, loads
from penstock.flows.gates.gate import decide, what_if
from penstock.flows.gates.verdict import AlertLevel, Decision, GateInput, GateStatus, Verdict
from tests.kits.gates import gate, override, table

FULL = tuple(table(100, 1.0, f"raw.t{n}") for n in range(3))
HOLE = table(1.0, 1.0, "raw.orders")

RECORDED_INPUT = {
    "assessments": [
        *(
            {"completeness": 100, "expected": 1000, "key": f"same_day:raw.t{n}", "quality": 1.0,
             "kind": "same_day", "rows": 1000, "status": "COMPLETE", "table": f"raw.t{n}"}
            for n in range(3)
        ),
        {"completeness": 1.0, "expected": 1000, "issues": ["10/1000 rows"], "quality": 1.0,
         "key": "same_day:raw.orders", "kind": "same_day", "rows": 10, "status": "MISSING",
         "table": "raw.orders"},
    ],
    "mode": {"degraded_at": 30.0, "max_wait_us": 43200000000, "min_quality": 0.85,
             "name": "tomorrow", "otherwise": "WAIT", "partition_days": 1, "proceed_at": 70.0,
             "recheck_us": 1800000000, "slo_us": 43200000000, "target": 75.0,
             "window": [1020, 1260]},
    "now": 1763244300000000,
    "partition": "2025-11-16",
    "phase": "analytics",
}  # fmt: skip
"""Input of a decision as it was recorded before decisions had a version."""
RECORDED_DECISION = {
    "acknowledgement": "ack", "completeness": 75.25, "effect": "success", "quality": 1.0,
    "missing": ["raw.orders"], "rule": 4, "status": "ready", "verdict": "PROCEED",
    "reasons": ["Complete: completeness 75.2 % (needs 70 %), quality 1.00 (needs 0.85)."],
    "warnings": ["raw.orders: 10/1000 rows"],
}  # fmt: skip


class TestFloors:
    """A critical dependency below its floor counts as absent."""

    @pytest.mark.parametrize(
        ("mode", "verdict", "status"),
        [
            ("overnight", Verdict.WAIT, GateStatus.WAITING),
            ("same_day", Verdict.WAIT, GateStatus.WAITING_SAME_DAY),
            ("tomorrow", Verdict.WAIT, GateStatus.WAITING_SAME_DAY),
            ("manual", Verdict.FAIL, GateStatus.MISSING_SAME_DAY),
            ("backfill", Verdict.FAIL, GateStatus.INSUFFICIENT),
        ],
    )
    def test_one_percent_beside_three_full_tables(
        self, mode: str, verdict: Verdict, status: GateStatus
    ) -> None:
        """The mean is 75 %, which starts most modes; the hole is named with its numbers."""
        decision = decide(gate(mode, *FULL, HOLE))
        assert (decision.verdict, decision.status) == (verdict, status)
        assert "raw.orders (10/1000 rows)" in decision.reasons[0]

    def test_after_the_maximum_wait_it_fails(self) -> None:
        decision = decide(gate("tomorrow", *FULL, HOLE, waited_us=12 * HOUR))
        assert (decision.verdict, decision.alert) == (Verdict.FAIL, AlertLevel.ERROR)
        assert decision.reasons[0].startswith("Below its floor: raw.orders (10/1000 rows).")

    def test_required_data_below_its_floor_fails_at_once(self) -> None:
        required = table(1.0, 1.0, "raw.orders", fail_if_missing=True)
        for mode in ("overnight", "same_day"):
            decision = decide(gate(mode, *FULL, required, overrides=(override("raw.orders"),)))
            assert (decision.verdict, decision.rule) == (Verdict.FAIL, 1)
            assert "raw.orders (10/1000 rows)" in decision.reasons[0]

    @pytest.mark.parametrize(
        ("floor", "completeness", "verdict"),
        [
            (None, 19.9, Verdict.WAIT),
            (None, 20.0, Verdict.PROCEED_DEGRADED),
            (80.0, 79.0, Verdict.WAIT),
            (0.0, 1.0, Verdict.PROCEED_DEGRADED),
        ],
    )
    def test_the_floor_is_that_of_the_mode_unless_declared(
        self, floor: float | None, completeness: float, verdict: Verdict
    ) -> None:
        hole = table(completeness, 1.0, "raw.orders", floor=floor)
        assert decide(gate("same_day", *FULL, hole)).verdict is verdict

    def test_data_that_is_not_critical_has_no_floor(self) -> None:
        minor = table(1.0, 1.0, "raw.orders", critical=False)
        assert decide(gate("same_day", *FULL, minor)).verdict is Verdict.PROCEED_DEGRADED

    def test_an_override_covers_it(self) -> None:
        approved = gate("same_day", *FULL, HOLE, overrides=(override("raw.orders"),))
        decision = decide(approved)
        assert (decision.verdict, decision.overrides_used) == (
            Verdict.PROCEED_DEGRADED,
            ("ovr_1",),
        )

    def test_proceed_needs_every_critical_dependency(self) -> None:
        """65 % is above the floor of `tomorrow`, but below its proceed_at of 70 %."""
        decision = decide(gate("tomorrow", *FULL, table(65, 1.0, "raw.orders")))
        assert decision.completeness > 90
        assert decision.verdict is Verdict.PROCEED_DEGRADED
        assert decision.reasons[0] == (
            "Enough data, but not all of it: raw.orders (650/1000 rows) below the 70 % that each "
            "table needs."
        )
        minor = table(65, 1.0, "raw.orders", critical=False)
        assert decide(gate("tomorrow", *FULL, minor)).verdict is Verdict.PROCEED


class TestVersions:
    """A decision is replayed with the rules that made it."""

    def test_a_decision_without_a_version_follows_the_first_rules(self) -> None:
        given = loads(GateInput, json.dumps(RECORDED_INPUT))
        assert decide(given) == loads(Decision, json.dumps(RECORDED_DECISION))
        assert what_if(given, {"proceed_at": 80}).verdict is Verdict.PROCEED_DEGRADED

    def test_a_decision_of_the_second_rules_keeps_its_words(self) -> None:
        covered = gate("same_day", HOLE, overrides=(override("raw.orders"),), rules=2)
        decision = decide(loads(GateInput, dumps(covered)))
        assert decision.reasons[0] == (
            "Enough data, but not all of it: completeness 100 % (needs 100 %), quality 1.00 "
            "(needs 0.90); weakest is raw.orders (10/1000 rows)."
        )
        today = decide(gate("same_day", HOLE, overrides=(override("raw.orders"),)))
        assert replace(today, reasons=decision.reasons) == decision, "only the words differ"

    def test_the_same_evidence_is_decided_by_the_new_rules_today(self) -> None:
        today = gate("tomorrow", *FULL, HOLE)
        assert decide(loads(GateInput, dumps(today))) == decide(today)
        assert decide(today).verdict is Verdict.WAIT
        assert json.loads(dumps(today))["rules"] == 3

    def test_every_input_made_by_the_package_names_its_rules(self) -> None:
        """Otherwise it would silently follow the first ones."""
        source = Path(penstock.__file__).parent
        calls = [
            (path.name, call)
            for path in source.rglob("*.py")
            for call in ast.walk(ast.parse(path.read_text()))
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "GateInput"
        ]
        assert len(calls) >= 2
        for name, call in calls:
            assert "rules" in [keyword.arg for keyword in call.keywords], name
