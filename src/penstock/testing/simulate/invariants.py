"""Invariants of flows, checked during a simulated history and once it has become idle.

I13 a phase starts at most once per generation, and its runs are created once. I14 nothing starts
early: a trigger has a decision that allows it, on a complete set unless it is degraded. I15 after
recovery everything ends. I16 completions are a set. Replaying a decision gives the recorded result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.core.stored_json import loads
from penstock.db.sqlite.store import SqliteStore
from penstock.flows.gates.gate import decide
from penstock.flows.gates.verdict import Decision, GateInput
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.testing.simulate.snapshots import DirectReader
from penstock.testing.simulate.violation import Violation

TRIGGERS = """
SELECT t.flow_id, t.phase, t.processor, t.verdict, t.runs, t.source FROM triggers t
"""
RUNS_TWICE = """
SELECT flow_id, processor, count(*) FROM (
  SELECT flow_id, processor, item_key FROM runs WHERE attempt = 1 AND flow_id IS NOT NULL
  UNION ALL
  SELECT flow_id, processor, item_key FROM history WHERE attempt = 1 AND flow_id IS NOT NULL
) GROUP BY flow_id, processor, item_key HAVING count(*) > 1
"""
RUNS_BY_PHASE = """
SELECT r.flow_id, p.phase, count(*) FROM (
  SELECT flow_id, processor FROM runs
  WHERE attempt = 1 AND flow_id IS NOT NULL AND item_key = ''
  UNION ALL SELECT flow_id, processor FROM history
  WHERE attempt = 1 AND flow_id IS NOT NULL AND item_key = ''
) r JOIN processors p ON p.processor = r.processor GROUP BY r.flow_id, p.phase
"""
DECISIONS = """
SELECT decision_id, flow_id, phase, processor, verdict, input, decision FROM decisions
WHERE decision_id > ? ORDER BY decision_id
"""
JOURNAL = """
SELECT subject, action, count(*) FROM journal WHERE kind = 'flow' AND action IN ('opened', 'ended')
GROUP BY subject, action HAVING count(*) > 1
"""
FLOW = """
SELECT p.name, f.mode FROM flows f JOIN pipelines p ON p.pipeline = f.pipeline WHERE f.flow_id = ?
"""
PHASES = "SELECT phase, state, started_at FROM flow_phases WHERE flow_id = ? AND processor = ''"
NOW = "SELECT at FROM triggers WHERE flow_id = ? AND phase = ? ORDER BY at DESC LIMIT 1"
OPEN = "SELECT flow_id, state FROM flows WHERE ended_at IS NULL"
LIVE = "SELECT run_id, state FROM runs"
FLOW_EVENTS = "SELECT count(*) FROM nudges"


class FlowInvariants:
    """Reads the store directly and raises `Violation`."""

    def __init__(self, store: SqliteStore, pipelines: Sequence[Pipeline]) -> None:
        self._rows = DirectReader(store).rows
        self._plans = {
            (pipeline.name, mode): pipeline.plan(mode)
            for pipeline in pipelines
            for mode in pipeline.modes
        }
        self._after = 0
        self._allowed: dict[tuple[int, str, str], set[str]] = {}
        self.started: dict[tuple[int, str, str], str] = {}
        self.checks = 0
        self.decisions: Counter[str] = Counter()

    def committed(self) -> None:
        """Check the state after the latest commit."""
        self.checks += 1
        self._replay()
        for flow_id, processor, count in self._rows(RUNS_TWICE):
            raise Violation("I13", f"processor {processor} of flow {flow_id} got {count} runs")
        for flow_id, phase, processor, verdict, _, source in self._rows(TRIGGERS):
            gate = (flow_id, phase, processor)
            if gate not in self.started:
                self._check_time(flow_id, phase)
            known = self.started.setdefault(gate, verdict)
            if known != verdict:
                raise Violation("I13", f"the trigger of {gate} changed to {verdict}")
            if verdict not in self._allowed.get(gate, ()):
                raise Violation("I14", f"{gate} was triggered by {source} without a decision")

    def is_quiet(self) -> bool:
        """Whether all flows and runs have ended and no flow event is left."""
        left = (self._rows(OPEN), self._rows(LIVE), self._rows(FLOW_EVENTS)[0][0])
        return not any(left)

    def finished(self) -> None:
        """Check the final state."""
        self.committed()
        for row in self._rows(OPEN):
            raise Violation("I15", f"flow {row[0]} is still open")
        for row in self._rows(LIVE):
            raise Violation("I15", f"run {row[0]} is still {row[1]}")
        if self._rows(FLOW_EVENTS)[0][0]:
            raise Violation("I15", "flow events were not processed")
        counts = {(flow_id, phase): n for flow_id, phase, n in self._rows(RUNS_BY_PHASE)}
        started: Counter[tuple[int, str]] = Counter()
        for flow_id, phase, _, _, runs, _ in self._rows(TRIGGERS):
            started[flow_id, phase] += runs
        for gate, runs in started.items():
            if counts.get(gate, 0) != runs:
                found = counts.get(gate, 0)
                raise Violation("I13", f"{gate} should have started {runs} runs, started {found}")
        for flow_id, action, count in self._rows(JOURNAL):
            raise Violation("I17", f"flow {flow_id} has {count} entries {action!r}")

    def _check_time(self, flow_id: int, phase: str) -> None:
        """Check that all earlier phases have ended or passed their straggler deadline."""
        ((name, mode),) = self._rows(FLOW, flow_id)
        plan = self._plans[name, mode]
        if plan.phase(phase).terms.on == "each":
            return  # any event of a preceding phase starts it
        before = {row[0]: row[1:] for row in self._rows(PHASES, flow_id)}
        ((now,),) = self._rows(NOW, flow_id, phase)
        for earlier in plan.phase(phase).after:
            state, started = before[earlier]
            wait = plan.phase(earlier).terms.stragglers_us
            is_over = wait is not None and started is not None and now >= started + wait
            if state not in ("COMPLETE", "DEGRADED", "SKIPPED") and not is_over:
                raise Violation("I14", f"{phase} of flow {flow_id} started while {earlier} {state}")

    def _replay(self) -> None:
        """Evaluate every new decision again from its record."""
        for row in self._rows(DECISIONS, self._after):
            self._after, flow_id, phase, processor, verdict = row[:5]
            given, decision = loads(GateInput, row[5]), loads(Decision, row[6])
            if decide(given) != decision:
                raise Violation("replay", f"decision {self._after} of {phase} does not replay")
            # A gate per processor (on="each") is evaluated at every event, not at the end of a set.
            early = not processor and not given.set_complete and not given.stragglers_passed
            if decision.verdict.starts and early:
                raise Violation(
                    "I14", f"{phase} of flow {flow_id} starts before its set is settled"
                )
            self.decisions[verdict] += 1
            if decision.verdict.starts:
                self._allowed.setdefault((flow_id, phase, processor), set()).add(verdict)
