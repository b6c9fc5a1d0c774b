"""When a new generation, which supersedes the explained one, is suggested."""

from __future__ import annotations

from penstock.core.clock import MINUTE
from penstock.flows.explain.explain import explain
from penstock.flows.explain.facts import FlowFact, GateFact, ProcessorFact
from tests.flows.explain.test_explain import NOW, ago, failed, flow, phase, run
from tests.flows.explain.test_trouble import busy, running


def offers(given: FlowFact) -> list[str]:
    """Return the suggested commands."""
    return [one.command for one in explain(given, NOW).offers]


class TestManualStart:
    """A new generation, which supersedes this one, as a suggestion."""

    def test_not_while_a_processor_merely_retries(self) -> None:
        after = phase("y", "PENDING", after=("x",))
        due = run(attempt=2, pending_reason="later", due_at=NOW + MINUTE)
        for live in (due, busy("features", attempt=2).live):
            retrying = ProcessorFact(name="features", live=live, failures=(failed(),))
            found = offers(flow(running(retrying), after))
            assert found == ["penstock runs show run_1", "penstock why flow_1"]
        dead = ProcessorFact(name="dead", status="failed", at=ago(1), failures=(failed(),))
        found = offers(flow(running(retrying, dead), after))
        assert "penstock trigger nba 2025-12-31 y --mode same_day" in found

    def test_a_phase_that_waits_comes_before_those_that_follow_a_retry(self) -> None:
        retrying = ProcessorFact(name="features", live=run(attempt=2), failures=(failed(),))
        gate = GateFact(processor="", state="WAITING", since=ago(9))
        given = flow(
            running(retrying),
            phase("y", "PENDING", after=("x",)),
            phase("other", "WAITING", gate=gate),
        )
        started = [one for one in offers(given) if one.startswith("penstock trigger")]
        assert started == ["penstock trigger nba 2025-12-31 other --mode same_day"]
