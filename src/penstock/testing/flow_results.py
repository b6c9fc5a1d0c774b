"""Results of a flow under test: its generations, phases, decisions, triggers and items."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.access.store.registry import pipeline_get
from penstock.client import Client
from penstock.core.ids import encode
from penstock.core.stored_json import loads
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store
from penstock.flows.gates.rows import DecisionFilter, Trigger
from penstock.flows.gates.store.gates import decision_list, triggers_of
from penstock.flows.gates.verdict import Decision
from penstock.flows.rows import FlowFilter, FlowRow, PhaseRow
from penstock.flows.store.flows import flow_list, phases_of
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.action_records import RunAction
from penstock.testing.memory import save_store

PAGE: Final = 1_000
RUNS_MAX: Final = 10_000
"""Maximum number of runs whose actions are read."""


class FlowResults:
    """The methods of `FlowTest` that read results."""

    pipeline: Pipeline
    store: Store
    client: Client
    partition: str

    def report(self) -> str:
        """Return a summary of events so far, for assertion messages."""
        raise NotImplementedError

    def save(self, file: str) -> None:
        """Write the database to a file, so that commands can inspect the results of the test:
        `penstock --database-url sqlite:FILE explain …`. An existing file is replaced.
        """
        assert isinstance(self.store, SqliteStore), "a test has its store in memory"
        save_store(self.store, Path(file))

    @property
    def flow(self) -> FlowRow:
        """The newest generation."""
        return self.flows[-1]

    @property
    def flows(self) -> list[FlowRow]:
        """Every generation, oldest first; late data may have started several."""
        wanted = FlowFilter(pipeline=self._number()[0], partition=self.partition, limit=500)
        found = self.store.read(lambda tx: flow_list(tx, wanted))
        return sorted(found, key=lambda flow: flow.generation)

    def phase(self, name: str, generation: int | None = None) -> PhaseRow:
        """Return a phase: state, started_at, ended_at, is_degraded, gate_context."""
        flow = self._flow(generation)
        rows = self.store.read(lambda tx: phases_of(tx, [flow.flow_id]))[flow.flow_id]
        for row in rows:
            if row.phase == name and not row.processor:
                return row
        raise KeyError(name)

    def state(self, phase: str) -> str:
        """Return the state of a phase in the newest generation."""
        return self.phase(phase).state

    def decisions(self, phase: str, processor: str = "") -> list[Decision]:
        """Return the decisions of a phase's gate, in order, over all generations."""
        wanted = DecisionFilter(pipeline=self._number()[0], phase=phase, limit=10_000)
        rows = self.store.read(lambda tx: decision_list(tx, wanted))
        return [loads(Decision, r.decision) for r in reversed(rows) if r.processor == processor]

    def decision(self, phase: str, processor: str = "") -> Decision:
        """Return the last decision; AssertionError if the gate was never evaluated."""
        found = self.decisions(phase, processor)
        if not found:
            raise AssertionError(f"the gate of {phase} was never evaluated:\n{self.report()}")
        return found[-1]

    def triggers(self, phase: str) -> list[Trigger]:
        """Return the triggers of a phase, over all generations."""
        ids = [flow.flow_id for flow in self.flows]
        found = self.store.read(lambda tx: triggers_of(tx, ids))
        return [trigger for trigger in found if trigger.phase == phase]

    def actions(self, kind: str | None = None) -> list[RunAction]:
        """Return the actions of runs, oldest first.

        kind: only these: publish, submit or trigger.
        """
        runs = [run for run in self.client.runs.list(limit=RUNS_MAX).items if run.finished_at]
        runs.sort(key=lambda run: (str(run.finished_at), run.run_id))
        found = [one for run in runs for one in self.client.runs.detail(run.run_id).actions]
        return [one for one in found if kind in (None, one.kind)]

    def items(self, processor: str) -> dict[str, str]:
        """Return the states of a processor's items in the newest generation, by key."""
        flow_id = encode("flow", self.flow.flow_id)
        found: dict[str, str] = {}
        cursor = None
        while True:
            page = self.client.items.list(flow_id, processor=processor, limit=PAGE, cursor=cursor)
            found.update({one.item_key: one.state for one in page.items})
            cursor = page.next_cursor
            if cursor is None:
                return found

    def _flow(self, generation: int | None) -> FlowRow:
        flows = self.flows
        return flows[-1] if generation is None else flows[generation - 1]

    def _number(self) -> tuple[int, str]:
        found = self.store.read(lambda tx: pipeline_get(tx, self.pipeline.name))
        assert found is not None
        return found[0], found[1]
