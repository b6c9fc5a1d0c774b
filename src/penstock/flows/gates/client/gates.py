"""Use cases of gates: check one now, read recorded decisions, test other settings on them.

`check` probes the data and decides without any effect. `history` reads recorded decisions;
`what_if` and `backtest` decide their recorded inputs again under other settings of the mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.access.store.names import NameResolver, check_limit
from penstock.core.clock import DAY, FAR_FUTURE
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.core.stored_json import loads
from penstock.db.store import Transactions, Tx
from penstock.flows.advance.decide import gate_input
from penstock.flows.advance.load import snapshot_of
from penstock.flows.advance.snapshot import FlowSnapshot
from penstock.flows.cascade import GateRequest, gates_to_evaluate
from penstock.flows.gates.evidence import Observation, assess
from penstock.flows.gates.gate import decide, what_if
from penstock.flows.gates.probe_request import Prober, ProbeRequest, no_probes
from penstock.flows.gates.rows import DecisionFilter, DecisionRow
from penstock.flows.gates.store.gates import decision_list
from penstock.flows.gates.verdict import Decision, GateInput
from penstock.flows.plan import FlowPlan, planned_of
from penstock.flows.rows import Locked
from penstock.flows.store.flows import flow_get
from penstock.flows.store.from_schedule import mode_and_partition
from penstock.pipelines.mode import ModeOptions
from penstock.pipelines.plan import Need

BACKTEST_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """What a gate would decide now, with its needs, observations, input and decision."""

    gate_input: GateInput
    decision: Decision
    needs: Sequence[Need]
    observations: Sequence[Observation]
    flow_id: int | None
    is_evaluable: bool
    """Whether the cascade would evaluate this gate now, because its upstream is settled."""


class DecisionComparison(NamedTuple):
    """A recorded decision, and the decision under other settings."""

    row: DecisionRow
    recorded: Decision
    recomputed: Decision

    @property
    def has_changed(self) -> bool:
        """Whether the two verdicts differ."""
        return self.recorded.verdict is not self.recomputed.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Recorded decisions under other settings: their number, and those that would change."""

    decisions: int
    changed: Sequence[DecisionComparison]
    moves: Counter[tuple[str, str]]
    """Number of decisions by (recorded verdict, new verdict)."""


class Gates:
    """Use cases of gates."""

    def __init__(self, store: Transactions, names: NameResolver, probe: Prober = no_probes) -> None:
        self._store = store
        self._names = names
        self._probe = probe

    def check(
        self,
        pipeline: str,
        phase: str,
        *,
        partition: str | None = None,
        mode: str | None = None,
        processor: str | None = None,
        flow_id: int | None = None,
        customer: str | None = None,
    ) -> GateCheck:
        """Probe the data now and decide, without changing anything."""
        if flow_id is not None:
            snapshot = self._store.read(lambda tx: self._snapshot(tx, flow_id, customer))
            planned, partition, now = snapshot.planned, snapshot.flow.partition, snapshot.now
        else:
            snapshot = None
            info = self._names.pipeline(pipeline, "pipeline")
            now = self._store.read(lambda tx: tx.now())
            chosen, named = mode_and_partition(info.definition, now, mode=mode)
            planned, partition = planned_of(info.definition, chosen), partition or named
        needs = self._needs(planned, phase, processor)
        ask, is_asked = _ask(snapshot, phase, processor)
        request = ProbeRequest(
            dependencies=[need.dependency for need in needs],
            partition=partition,
            customer=customer or self._names.default_customer,
            since=now,  # a check must not use cached observations
        )
        observations = list(self._probe(request)) if needs else []
        found = tuple(
            assess(
                need.dependency,
                observation,
                judged_at=ask.judged_at or now,
                age_counts=planned.gate_mode.age_counts,
                needed_by=need.needed_by,
            )
            for need, observation in zip(needs, observations, strict=True)
        )
        if snapshot is not None:
            given = gate_input(snapshot, ask, found)
        else:
            given = GateInput(
                mode=planned.gate_mode,
                now=now,
                phase=phase,
                processor=processor,
                partition=partition,
                assessments=found,
            )
        return GateCheck(
            gate_input=given,
            decision=decide(given),
            needs=needs,
            observations=observations,
            flow_id=flow_id,
            is_evaluable=is_asked,
        )

    def history(
        self,
        pipeline: str,
        *,
        partition: str | None = None,
        phase: str | None = None,
        flow_id: int | None = None,
        customer: str | None = None,
        before: int = FAR_FUTURE,
        limit: int = 50,
    ) -> list[DecisionRow]:
        """Return recorded decisions, newest first; `before` (an id) continues an earlier page."""
        check_limit(limit)

        def body(tx: Tx) -> list[DecisionRow]:
            wanted = DecisionFilter(
                pipeline=self._names.pipeline(pipeline, "pipeline", tx).pipeline_key,
                customer=self._names.customer_key(tx, customer),
                partition=partition,
                phase=phase,
                flow_id=flow_id,
                before=before,
                limit=limit,
            )
            return decision_list(tx, wanted)

        return self._store.read(body)

    def what_if(
        self, rows: Sequence[DecisionRow], changes: ModeOptions
    ) -> list[DecisionComparison]:
        """Decide recorded inputs again under other settings of the mode."""
        return [_retried(row, changes) for row in rows]

    def backtest(
        self,
        pipeline: str,
        changes: ModeOptions,
        *,
        days: int = 30,
        phase: str | None = None,
        customer: str | None = None,
    ) -> Backtest:
        """Decide the recorded inputs of the last `days` again; at most the newest 5,000."""
        check_limit(days, "days", 3_660)

        def body(tx: Tx) -> list[DecisionRow]:
            wanted = DecisionFilter(
                pipeline=self._names.pipeline(pipeline, "pipeline", tx).pipeline_key,
                customer=self._names.customer_key(tx, customer),
                phase=phase,
                since=tx.now() - days * DAY,
                limit=BACKTEST_MAX,
            )
            return decision_list(tx, wanted)

        tried = [_retried(row, changes) for row in self._store.read(body)]
        return Backtest(
            decisions=len(tried),
            changed=[one for one in tried if one.has_changed],
            moves=Counter(
                (str(one.recorded.verdict), str(one.recomputed.verdict)) for one in tried
            ),
        )

    def _snapshot(self, tx: Tx, flow_id: int, customer: str | None) -> FlowSnapshot:
        flow = flow_get(tx, flow_id, self._names.customer_key(tx, customer))
        if flow is None:
            raise NotFound("flow", encode("flow", flow_id))
        return snapshot_of(tx, Locked(flow, has_overrides=True, has_breakers=True, now=tx.now()))

    def _needs(self, planned: FlowPlan, phase: str, processor: str | None) -> tuple[Need, ...]:
        known = [p.name for p in planned.plan.phases]
        if phase not in known:
            raise InvalidInput("phase", f"a phase of mode {planned.mode.name}: {known}", phase)
        return planned.needs(phase, processor or "")


def _ask(
    snapshot: FlowSnapshot | None, phase: str, processor: str | None
) -> tuple[GateRequest, bool]:
    """Return the evaluation as the cascade would request it, and whether it would do so now."""
    if snapshot is not None:
        for ask in gates_to_evaluate(snapshot.planned.plan, snapshot.all_progress(), snapshot.now):
            if ask.phase == phase and processor in (None, ask.processor):
                return ask, True
    bare = GateRequest(
        phase=phase,
        processor=processor,
        upstream=None,
        set_complete=True,
        stragglers_passed=False,
        judged_at=None,
    )
    return bare, snapshot is None


def _retried(row: DecisionRow, changes: ModeOptions) -> DecisionComparison:
    then, given = loads(Decision, row.decision), loads(GateInput, row.input)
    return DecisionComparison(row, then, what_if(given, changes))
