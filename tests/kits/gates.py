"""Factories of evidence for gate tests: tables in a given state, history by days."""

from __future__ import annotations

from typing import Any

from penstock.core.clock import DAY, Micros, parse_iso
from penstock.flows.gates.evidence import Assessment, DependencyStatus, Observation, assess
from penstock.flows.gates.override import Override
from penstock.flows.gates.verdict import RULES, GateInput
from penstock.pipelines.declare.needs import historical
from penstock.pipelines.dependency import DependencyKind
from tests.kits.modes import GAME_DAY

NOW: Micros = parse_iso("2025-11-15T22:05:00Z")


def table(
    completeness: float = 100.0, quality: float = 1.0, name: str = "raw.box", **fields: Any
) -> Assessment:
    """Return the assessment of a same-day table with this completeness and quality."""
    rows = round(completeness * 10)
    return Assessment(
        **{
            "key": f"same_day:{name}",
            "table": name,
            "kind": DependencyKind.SAME_DAY,
            "completeness": completeness,
            "quality": quality,
            "status": DependencyStatus.COMPLETE
            if completeness >= 100
            else DependencyStatus.MISSING,
            "absent": rows == 0,
            "rows": rows,
            "expected": 1_000,
            "issues": () if rows >= 1_000 else (f"{rows}/1000 rows",),
            **fields,
        }
    )


def absent(name: str = "raw.box", **fields: Any) -> Assessment:
    """Return the assessment of an empty table."""
    return table(0.0, 0.0, name, **fields)


def odds(present: bool) -> Assessment:
    """Return the assessment of an optional table."""
    odds_table = table(100.0 if present else 0.0, 1.0 if present else 0.0, "raw.odds")
    fields = {
        name: getattr(odds_table, name) for name in ("completeness", "quality", "status", "absent")
    }
    return Assessment(
        key="optional:raw.odds",
        table="raw.odds",
        kind=DependencyKind.OPTIONAL,
        critical=False,
        **fields,
    )


def history(days: int, degraded_at: int | None = 5) -> Assessment:
    """Return the assessment of ten days of history of which `days` are present."""
    need = historical("analytics.summary", days=10, degraded_at=degraded_at)
    missing = tuple(f"2025-11-{day:02}" for day in range(5, 15 - days))
    observation = Observation(key=need.key, looked_at=NOW, days_present=days, days_missing=missing)
    return assess(need, observation, judged_at=NOW)


def override(dependency: str | None = None, **fields: Any) -> Override:
    """Return an active override."""
    given = {
        "id": "ovr_1",
        "customer": "default",
        "pipeline": "nba",
        "partition": "2025-11-15",
        "reason": "first run after the move",
        "approved_by": "ann@example.com",
        "approved_at": NOW - 1,
        "expires_at": NOW + DAY,
        "dependency": dependency,
    }
    return Override(**{**given, **fields})


def gate(mode: str, *assessments: Assessment, **fields: Any) -> GateInput:
    """Return the input of a gate in a built-in mode with these assessments."""
    given = {"rules": RULES, **fields}
    return GateInput(mode=GAME_DAY[mode], now=NOW, assessments=assessments, **given)
