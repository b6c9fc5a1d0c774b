"""What a phase produced is probed once it has completed, against its expectation."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, per, produced, same_day
from penstock.core.errors import DeclarationError
from penstock.db.store import Store
from penstock.testing.clock import VirtualClock
from penstock.testing.flow import FlowTest
from tests.kits.flows import Stage, work


def writes(*outputs: Any, **options: Any) -> Pipeline:
    """A first phase that writes tables, and a last one."""
    made = Pipeline("nba", partition="day", warehouse="w", **options)
    first = made.phase("load")
    first.processor("box", produces=list(outputs))(work)
    made.phase("last", after=first).processor("site")(work)
    return made


def opened(store: Store, clock: VirtualClock, pipeline: Pipeline, rows: int) -> Stage:
    """Return a stage on which the first phase has completed, and left this many rows."""
    stage = Stage(store, clock, pipeline)
    stage.rows["raw.box"] = rows
    stage.open(mode="manual")
    stage.complete()
    return stage


def alerts(stage: Stage) -> list[tuple[str, str, str]]:
    """Return rule, severity and state of the alerts."""
    rows = stage.sql("SELECT rule, severity, state FROM alerts ORDER BY alert_id")
    return [(row[0], row[1], row[2]) for row in rows]


def states(stage: Stage) -> dict[str, str]:
    """Return the state of each phase."""
    rows = stage.sql("SELECT phase, state FROM flow_phases ORDER BY gate_id")
    return {row[0]: row[1] for row in rows}


def test_complete_output(store: Store, clock: VirtualClock) -> None:
    """One probe after completion; the next phase starts with it."""
    stage = opened(store, clock, writes(produced("raw.box", expect=10)), rows=10)
    stepped = stage.step()
    assert (stepped.probes, stepped.triggers) == (1, 1)
    assert (states(stage), alerts(stage)) == ({"load": "COMPLETE", "last": "IN_PROGRESS"}, [])
    (request,) = stage.probes
    assert [one.table for one in request.dependencies] == ["raw.box"]


def test_a_short_output_is_a_warning(
    store: Store, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The phase completes; an alert and the log name table, numbers and processor."""
    stage = opened(store, clock, writes(produced("raw.box", expect=10)), rows=0)
    assert stage.step().triggers == 1
    assert alerts(stage) == [("output_missing", "MEDIUM", "open")]
    text = "load completed without its output: raw.box (0/10 rows (0 %)), produced by box"
    assert [one.levelname for one in caplog.records if text in one.getMessage()] == ["WARNING"]


def test_a_required_output_fails_the_phase(store: Store, clock: VirtualClock) -> None:
    """Nothing starts after it; a further report with data completes it and ends the alert."""
    stage = opened(store, clock, writes(produced("raw.box", fail_if_missing=True)), rows=0)
    assert stage.step().triggers == 0
    assert states(stage) == {"load": "FAILED", "last": "PENDING"}
    assert alerts(stage)[0] == ("output_missing", "HIGH", "open")
    stage.rows["raw.box"] = 5
    stage.sql("INSERT INTO nudges (flow_id, customer, phase, at)"
              " SELECT flow_id, customer, 'load', 1 FROM flows")  # fmt: skip
    assert stage.step().triggers == 1
    assert states(stage)["load"] == "COMPLETE"
    assert alerts(stage)[0] == ("output_missing", "HIGH", "resolved")


def test_plain_tables_are_not_probed(store: Store, clock: VirtualClock) -> None:
    """Without an expectation there is nothing to compare with."""
    stage = opened(store, clock, writes("raw.box"), rows=0)
    stepped = stage.step()
    assert (stepped.probes, stepped.triggers, alerts(stage)) == (0, 1, [])


def test_the_last_phase_and_the_test_kit() -> None:
    """Invented tables arrive with their processor, unless the test says otherwise."""
    made = Pipeline("shop", partition="day")
    output = produced("mart.totals", expect=per(2, "raw.shops"), fail_if_missing=True)
    made.phase("only").processor("totals", needs=[same_day("raw.shops")], produces=output)(work)
    with FlowTest(made, mode="manual") as t:
        t.arrive("raw.shops", rows=3)
        t.run()
        assert t.flow.state == "COMPLETE"
    with FlowTest(made, mode="manual") as t:
        t.arrive("raw.shops", rows=3)
        t.arrive("mart.totals", rows=1)
        t.run(upto="10m")
        assert t.state("only") == "FAILED"


def test_mistakes() -> None:
    with pytest.raises(DeclarationError, match="weight is not an option; known: customer_column"):
        produced("t", weight=2)  # type: ignore[call-arg]
    nowhere = Pipeline("p")
    nowhere.phase("a").processor("x", produces=produced("t"))(work)
    with pytest.raises(DeclarationError, match="no partition column"):
        nowhere.check()
