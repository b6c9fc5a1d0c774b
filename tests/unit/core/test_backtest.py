"""Backtests: recorded decisions under other thresholds."""

from __future__ import annotations

from dataclasses import replace

from penstock.core.backtest import Recorded, backtest
from penstock.core.gate import decide
from penstock.core.verdict import GateInput, Verdict
from tests.gate_kit import absent, gate, table


def recorded(given: GateInput) -> Recorded:
    return Recorded(given=given, decision=decide(given))


def test_changes() -> None:
    """Only decisions with a different verdict are listed, with both verdicts."""
    records = [
        recorded(gate("overnight", table(91, 0.98), phase="analytics", partition="2025-11-14")),
        recorded(gate("overnight", table(40, 0.98))),
        recorded(gate("overnight", absent())),
        recorded(gate("same_day", table(91, 0.98))),
    ]
    found = backtest(records, {"proceed_at": 90}, modes=["overnight"])
    assert (found.total, found.diverged) == (4, 0)
    assert found.before == {"WAIT": 3, "PROCEED_DEGRADED": 1}
    assert found.after == {"PROCEED": 1, "WAIT": 2, "PROCEED_DEGRADED": 1}
    (change,) = found.changes
    assert (change.phase, change.partition) == ("analytics", "2025-11-14")
    assert (change.before, change.after, change.is_better) == (Verdict.WAIT, Verdict.PROCEED, True)
    everywhere = backtest(records, {"proceed_at": 90})
    assert [c.mode for c in everywhere.changes] == ["overnight", "same_day"]


def test_stricter_is_worse() -> None:
    """Higher thresholds turn starts into failures."""
    found = backtest([recorded(gate("manual", table(60, 0.9)))], {"degraded_at": 70})
    assert [(c.after, c.is_better) for c in found.changes] == [(Verdict.FAIL, False)]


def test_diverged_records_are_counted() -> None:
    """A stored decision that differs from what the current rules decide is counted."""
    true = recorded(gate("overnight", table()))
    false = replace(true, decision=replace(true.decision, quality=0.5))
    assert backtest([true, false], {}).diverged == 1
