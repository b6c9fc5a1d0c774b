"""The headline of a running phase names the processors in trouble, and a pause that holds runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.core.clock import MINUTE, SECOND
from penstock.flows.explain.explain import PhaseExplanation, explain
from penstock.flows.explain.facts import HeartbeatFact, PauseFact, PhaseFact, ProcessorFact
from tests.flows.explain.test_explain import NOW, ago, failed, flow, phase, run

LOST = HeartbeatFact(at=ago(2), until_at=NOW + 10 * SECOND)
PAUSE = PauseFact(scope="config", subject="cfg_1", since=ago(3), by="ann", reason="audit")


def running(*processors: ProcessorFact) -> PhaseFact:
    """Return a phase in progress."""
    names = tuple(one.name for one in processors)
    return phase("x", "IN_PROGRESS", started_at=ago(9), processors=processors, expected=names)


def busy(name: str, **fields: Any) -> ProcessorFact:
    """Return a processor whose run executes."""
    live = run(state="RUNNING", pending_reason=None, started_at=ago(2), processor=name, **fields)
    return ProcessorFact(name=name, live=live)


def shown(*phases: PhaseFact) -> PhaseExplanation:
    """Return the explanation of the first phase."""
    return explain(flow(*phases), NOW).phases[0]


class TestOrder:
    """The processors that a running phase names."""

    def test_a_silent_worker_comes_before_healthy_runs(self) -> None:
        story = shown(
            running(
                busy("basel", claimed_by="w1"),
                busy("lyon", claimed_by="w1"),
                busy("turin", claimed_by="w2", heartbeat=LOST),
                busy("wien", claimed_by="w2", heartbeat=LOST),
            )
        )
        clause = (
            "has been running since 11:09 on w2; its worker has sent no heartbeat since 11:09:00, "
            "and the run will be taken over after 11:11:10 unless the worker reports"
        )
        assert story.headline == f"since 11:02: turin {clause}; wien {clause}"
        assert [one.split()[0] for one in story.sentences] == ["turin", "wien", "basel", "lyon"]

    def test_trouble_then_waiting_then_running(self) -> None:
        again = run(attempt=2, pending_reason="later", due_at=NOW + MINUTE)
        processors = (
            busy("runs"),
            ProcessorFact(name="waits", live=run()),
            ProcessorFact(name="failed", live=again, failures=(failed(),)),
            busy("lost", heartbeat=LOST),
        )
        story = shown(running(*processors))
        assert [one.split()[0] for one in story.sentences] == ["lost", "failed", "waits", "runs"]
        assert "waits" not in story.headline
        healthy = shown(running(*processors[:2]))
        assert healthy.headline.index("waits") < healthy.headline.index("runs")

    def test_those_left_out_are_counted(self) -> None:
        story = shown(running(busy("a"), busy("b"), busy("c")))
        clause = "has been running since 11:09"
        assert story.headline == f"since 11:02: a {clause}; b {clause}; and 1 more"


class TestPause:
    """Runs that a pause holds."""

    def test_the_headline_says_that_a_pause_holds_them(self) -> None:
        held = run(pending_reason="paused", pauses=(PAUSE,))
        paused = [ProcessorFact(name=name, live=held) for name in ("a", "b")]
        words = "held by a pause: the config is paused by ann (audit)"
        assert shown(running(*paused)).headline == f"since 11:02: 2 runs are {words}"
        assert shown(running(paused[0])).headline == f"since 11:02: 1 run is {words}"
        mixed = shown(running(*paused, busy("c"))).headline
        assert mixed.startswith("since 11:02: a cannot start: the config is paused by ann (audit);")
        hidden = ProcessorFact(name="a", live=replace(held, pauses=()))
        assert shown(running(hidden)).headline.endswith(": 1 run is held by a pause")
