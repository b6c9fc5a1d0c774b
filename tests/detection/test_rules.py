"""The rules of detection, as tables: what is found, how severe it is, and what is not found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Pipeline
from penstock.core.clock import HOUR, MINUTE
from penstock.core.errors import DeclarationError
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.detection.live_rules import (
    behind,
    shared_waits,
    stale_runs,
    stuck_and_untriggered,
    waits_of,
)
from penstock.detection.rows import DependencyTrend, LiveFlow, LivePhase, StaleRuns
from penstock.detection.trend_rules import freshness_status, late_dependencies, missing_optionals
from penstock.flows.plan import planned_of
from penstock.pipelines.declare.needs import same_day
from tests.kits.flows import chain, work

NOW = 100 * HOUR
PLAN = planned_of(chain("raw", "next").definition(), "same_day")


def flow(*phases: LivePhase, number: int = 1, **more: Any) -> LiveFlow:
    """A live flow of same_day, three hours old."""
    made = LiveFlow(
        number, CustomerKey(1), "acme", PipelineKey(1), "nba", 0, "2025-11-15", "same_day", "d",
        NOW - 3 * HOUR, NOW + HOUR, False, list(phases),
    )  # fmt: skip
    return made._replace(**more)


def phase(name: str, state: str, minutes: int, **more: Any) -> LivePhase:
    """A phase that has been in its state for some minutes."""
    at = NOW - minutes * MINUTE
    ended = at if state in ("COMPLETE", "DEGRADED") else None
    return LivePhase(name, "", state, at, ended, None, None, None)._replace(**more)


@pytest.mark.parametrize(
    ("raw", "after", "expected"),
    [
        (("IN_PROGRESS", 120), ("PENDING", 180), []),
        (("IN_PROGRESS", 121), ("PENDING", 180), ["phase_stuck"]),
        (("COMPLETE", 5), ("PENDING", 180), []),
        (("COMPLETE", 6), ("PENDING", 180), ["phase_untriggered"]),
        (("DEGRADED", 6), ("PENDING", 180), ["phase_untriggered"]),
        (("COMPLETE", 60), ("IN_PROGRESS", 60), []),
        (("COMPLETE", 60), ("BLOCKED", 45), []),
        (("COMPLETE", 60), ("BLOCKED", 46), ["flow_stalled"]),
        (("COMPLETE", 60), ("WAITING", 46), ["flow_stalled"]),
    ],
)
def test_stuck(raw: tuple[str, int], after: tuple[str, int], expected: list[str]) -> None:
    """Thresholds: the mode's service level, five minutes, self-heal's 30 minutes and a pass."""
    live = flow(phase("raw", *raw), phase("next", *after))
    found = list(stuck_and_untriggered(live, PLAN, NOW, is_behind=False))
    assert [one.rule for one in found] == expected
    assert all(one.fix.startswith("penstock ") and one.threshold for one in found)


def test_planned_evaluations_and_order() -> None:
    """A gate with a planned evaluation is not stalled, a flow behind another not untriggered."""
    waiting = phase("next", "WAITING", 90, probe_at=NOW + MINUTE)
    live = flow(phase("raw", "COMPLETE", 90), waiting)
    assert list(stuck_and_untriggered(live, PLAN, NOW, is_behind=False)) == []
    queued = flow(phase("raw", "PENDING", 90), number=2, config_id=7, is_ordered=True)
    assert behind([flow(config_id=7), queued]) == {2}
    assert list(stuck_and_untriggered(queued, PLAN, NOW, is_behind=True)) == []


@pytest.mark.parametrize(
    ("processors", "minutes", "expected"),
    [
        (1, 60, []),
        (1, 61, [("dependency_missing", "MEDIUM")]),
        (1, 121, [("dependency_missing", "CRITICAL")]),
        (2, 120, [("dependency_missing", "MEDIUM")]),
        (2, 121, [("dependency_blocking", "CRITICAL")]),
    ],
)
def test_waits(processors: int, minutes: int, expected: list[tuple[str, str]]) -> None:
    """One processor makes a table missing, two make it blocking; one alert for each table."""
    made = Pipeline("nba", partition="day", warehouse="w")
    raw = made.phase("raw")
    for n in range(processors):
        raw.processor(f"p{n}", needs=[same_day("t.box")])(work)
    gate = json.dumps({"missing": ["t.box"]})
    held = phase("raw", "WAITING", minutes, gate=gate, waiting_since=NOW - minutes * MINUTE)
    waits = list(waits_of(flow(held), planned_of(made.definition(), "daily")))
    found = [(one.rule, one.severity) for one in shared_waits(waits, NOW)]
    assert found == expected


@pytest.mark.parametrize(
    ("flows", "missing", "late", "never", "late_rule", "optional_rule"),
    [
        (10, 0, 0, 0, [], []),
        (10, 2, 0, 0, [], []),
        (10, 3, 0, 0, [], ["MEDIUM"]),
        (4, 4, 0, 0, [], []),
        (10, 0, 1, 0, ["MEDIUM"], []),
        (10, 1, 1, 1, ["HIGH"], []),
    ],
)
def test_trends(
    flows: int, missing: int, late: int, never: int, late_rule: list[str], optional_rule: list[str]
) -> None:
    """Late at all is MEDIUM, never is HIGH; optional from more than a fifth of five flows."""
    row = DependencyTrend(
        CustomerKey(1), "acme", "nba", "t.box", flows, missing, late, never, 2 * HOUR, 0, "p"
    )
    assert [one.severity for one in late_dependencies([row])] == late_rule
    assert [one.severity for one in missing_optionals([row])] == optional_rule


@pytest.mark.parametrize(("runs", "severity"), [(1, "HIGH"), (9, "HIGH"), (10, "CRITICAL")])
def test_stale_runs(runs: int, severity: str) -> None:
    """Ten stale runs are critical."""
    row = StaleRuns(CustomerKey(1), "acme", "nba", runs, NOW - HOUR, 5)
    assert [one.severity for one in stale_runs([row], NOW)] == [severity]


@pytest.mark.parametrize(
    ("newest", "error", "expected"),
    [(NOW, None, "FRESH"), (NOW - HOUR, None, "FRESH"), (NOW - HOUR - 1, None, "STALE"),
     (None, None, "STALE"), (NOW, "no such table", "ERROR")],
)  # fmt: skip
def test_freshness_status(newest: int | None, error: str | None, expected: str) -> None:
    """An hour is allowed; no time and a failed probe are not fresh."""
    assert freshness_status(newest, error, HOUR, NOW) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("2h", "freshness takes maximum ages by table"),
        ({"t box": "2h"}, "is not a table name"),
        ({"t.box": "soon"}, r"freshness\['t.box'\]"),
        ({"t.box": ("2h", "loaded at")}, "is not a column name"),
    ],
)
def test_freshness_is_validated(given: Any, message: str) -> None:
    """A wrong policy names the table and what is wrong."""
    with pytest.raises(DeclarationError, match=message):
        Pipeline("nba", freshness=given)
