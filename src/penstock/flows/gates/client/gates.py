"""Use cases of gates: check one now, read recorded decisions, test other settings on them.

`check` probes the data and decides without any effect. `decisions` reads recorded decisions;
`what_if` and `backtest` decide their recorded inputs again under other settings of the mode.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from penstock.access.store.names import (
    NameResolver,
    PipelineInfo,
    check_limit,
    check_sole_customer,
)
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.access.store.registry import customer_get
from penstock.core.clock import DAY, FAR_FUTURE, Micros, request_time
from penstock.core.errors import DeclarationError, InvalidInput, NotFound
from penstock.core.fields import did_you_mean
from penstock.core.ids import decode_or_not_found, encode
from penstock.core.records.parameters import (
    CustomerFilter,
    CustomerOrDefault,
    PartitionFilter,
    PhaseFilter,
    PipelineName,
)
from penstock.core.records.record import Meta, Page, Wire
from penstock.db.store import Transactions, Tx
from penstock.flows.advance.decide import gate_input
from penstock.flows.advance.load import snapshot_of
from penstock.flows.advance.snapshot import FlowSnapshot
from penstock.flows.cascade import GateRequest, gates_to_evaluate
from penstock.flows.client.target import only_configs
from penstock.flows.gates.evidence import assess
from penstock.flows.gates.from_rows import (
    backtest_record,
    check_record,
    decision_record,
    has_diverged,
    reevaluated_record,
)
from penstock.flows.gates.gate import decide
from penstock.flows.gates.probe_request import Prober, ProbeRequest, no_probes
from penstock.flows.gates.records import (
    Backtest,
    BacktestRequest,
    GateCheck,
    GateDecision,
    GateRecheck,
    ModeChanges,
    OverrideScope,
    ReevaluatedDecision,
    WhatIf,
    WhatIfRequest,
)
from penstock.flows.gates.rows import DecisionFilter, DecisionRow
from penstock.flows.gates.store.gates import decision_count, decision_list
from penstock.flows.gates.verdict import RULES, GateInput
from penstock.flows.plan import FlowPlan, planned_of
from penstock.flows.rows import Locked, WaitingFilter
from penstock.flows.store.adopt import flow_event_put_for_waiting
from penstock.flows.store.flows import flow_get
from penstock.flows.store.parameters import flow_parameters
from penstock.pipelines.mode import ModeOptions
from penstock.pipelines.parameters import defaults, run_parameters
from penstock.pipelines.partition import check_partition, partition_rule_of
from penstock.pipelines.plan import Need, mode_and_partition, modes_of

BACKTEST_MAX = 5_000
CHANNEL = "flows"


Pipeline = Annotated[
    str,
    Wire("pipeline_template"),
    Meta(description="Registered name of the pipeline.", examples=["nba"]),
]
_PHASE = Meta(description="Phase that the gate belongs to.", examples=["analytics"], max_length=200)
_PROCESSOR = Meta(description="Evaluate only the gate of this processor.")
_PARTITION = Meta(description="Partition of the data; the mode's current partition when omitted.")
_MODE = Meta(description="Mode to evaluate in; chosen by the time of day when omitted.")
_RECHECK_PARTITION = Meta(description="Only flows of this partition; all when omitted.")
_RECHECK_PHASE = Meta(description="Only flows in which this phase waits or is blocked.")
_RECHECK_CUSTOMER = Meta(description="Only flows of this customer; all when omitted.")
_RECHECK_FLOW = Meta(description="Only this flow; all when omitted.")
_FLOW_ID = Meta(description="Flow whose completions and overrides count; none when omitted.")


_RETRY_COUNT = Meta(
    description="Number of earlier attempts of the message; missing history fails after three.",
    ge=0,
    le=1_000_000,
)


class Gates:
    """Use cases of gates."""

    def __init__(self, store: Transactions, names: NameResolver, probe: Prober = no_probes) -> None:
        self._store = store
        self._names = names
        self._probe = probe

    def check(
        self,
        pipeline: Pipeline,
        phase: Annotated[str, _PHASE],
        *,
        processor: Annotated[str | None, _PROCESSOR] = None,
        partition: Annotated[str | None, _PARTITION] = None,
        mode: Annotated[str | None, _MODE] = None,
        customer: CustomerOrDefault = None,
        flow_id: Annotated[str | None, _FLOW_ID] = None,
        retry_count: Annotated[int, _RETRY_COUNT] = 0,
    ) -> GateCheck:
        """Evaluate a gate now. The data is probed; nothing is changed.

        Queries receive the parameters of the flow. Without a flow they receive those of the
        customer's only active config of the pipeline; if there are several, the schema's defaults.
        """
        number = _flow_number(flow_id)
        owner = self._names.customer_or_default(customer)
        if number is not None:
            snapshot, parameters = self._store.read(lambda tx: self._snapshot(tx, number, customer))
            planned, partition, now = snapshot.planned, snapshot.flow.partition, snapshot.now
            owner = snapshot.flow.customer_id
        else:
            snapshot = None
            info = self._names.pipeline(pipeline, "pipeline")
            now, of_config = self._store.read(lambda tx: self._owner_checked(tx, customer, info))
            parameters = run_parameters(defaults(info.definition.get("parameters")), of_config)
            if partition is not None:
                check_partition(partition_rule_of(info.definition), partition)
            chosen, named = mode_and_partition(info.definition, now, mode=mode)
            planned, partition = planned_of(info.definition, chosen), partition or named
        needs = self._needs(planned, phase, processor)
        ask, is_asked = _ask(snapshot, phase, processor)
        request = ProbeRequest(
            dependencies=[need.dependency for need in needs],
            partition=partition,
            customer=owner,
            parameters=parameters,
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
                historical_tries=retry_count,
                rules=RULES,
            )
        return check_record(given, decide(given), number, is_evaluable=is_asked)

    def recheck(
        self,
        pipeline: Pipeline,
        *,
        partition: Annotated[str | None, _RECHECK_PARTITION] = None,
        phase: Annotated[str | None, _RECHECK_PHASE] = None,
        customer: Annotated[str | None, Wire("customer_id"), _RECHECK_CUSTOMER] = None,
        flow_id: Annotated[str | None, _RECHECK_FLOW] = None,
    ) -> GateRecheck:
        """Evaluate the waiting and blocked gates of open flows again; their data is probed."""
        number = _flow_number(flow_id)

        def body(tx: Tx) -> GateRecheck:
            info = self._names.pipeline(pipeline, "pipeline", tx)
            phases = [one["name"] for one in info.definition["phases"]]
            if phase is not None and phase not in phases:
                expected = f"one of {', '.join(phases)}"
                raise InvalidInput("phase", expected, phase, did_you_mean(phase, phases))
            key = self._names.customer_key(tx, customer)
            if number is not None and flow_get(tx, number, key) is None:
                raise NotFound("flow", encode("flow", number))
            wanted = WaitingFilter(info.pipeline_key, key, partition, number, phase)
            found = flow_event_put_for_waiting(tx, wanted)
            tx.after_commit(lambda: self._store.wake([CHANNEL]))
            return GateRecheck(flow_ids=[encode("flow", one) for one in found])

        return self._store.write(body)

    def decisions(
        self,
        pipeline: PipelineName,
        *,
        partition: PartitionFilter = None,
        phase: PhaseFilter = None,
        customer: CustomerFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[GateDecision]:
        """List recorded gate decisions with their evidence, newest first."""

        def body(tx: Tx, before: int) -> list[DecisionRow]:
            wanted = DecisionFilter(
                pipeline=self._names.pipeline(pipeline, "pipeline", tx).pipeline_key,
                customer=self._names.customer_key(tx, customer),
                partition=partition,
                phase=phase,
                before=before,
                limit=limit,
            )
            return decision_list(tx, wanted)

        return paged(
            self._names,
            "gates/decisions",
            lambda after: self._store.read(
                lambda tx: body(tx, FAR_FUTURE if after is None else after[0])
            ),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.decision_id],
            record=decision_record,
            filters={
                "pipeline": pipeline, "partition": partition, "phase": phase, "customer": customer
            },
        )  # fmt: skip

    def what_if(self, request: WhatIfRequest) -> WhatIf:
        """Evaluate recorded decisions again: under changed settings, or as if an override were
        granted.
        """
        check_limit(request.limit)
        flow_id = _flow_number(request.flow_id)
        is_empty = request.changes == ModeChanges() and request.override is not None
        changes: ModeOptions = {} if is_empty else _options(request.changes)

        def body(tx: Tx) -> list[DecisionRow]:
            wanted = DecisionFilter(
                pipeline=self._names.pipeline(request.pipeline, "pipeline", tx).pipeline_key,
                customer=self._names.customer_key(tx, request.customer),
                partition=request.partition,
                phase=request.phase,
                flow_id=flow_id,
                limit=request.limit,
            )
            return decision_list(tx, wanted)

        return WhatIf(items=_reevaluated(self._store.read(body), changes, request.override))

    def backtest(self, request: BacktestRequest) -> Backtest:
        """Evaluate recorded decisions of a range under changed settings; count the differences.

        At most the newest 5,000 decisions are evaluated; `left_out` is the number of the others.
        """
        check_limit(request.days, "days", 3_660)
        changes = _options(request.changes)

        def body(tx: Tx) -> tuple[DecisionFilter, list[DecisionRow], int]:
            info = self._names.pipeline(request.pipeline, "pipeline", tx)
            modes = sorted(modes_of(info.definition))
            if request.mode is not None and request.mode not in modes:
                raise InvalidInput("mode", f"one of {', '.join(modes)}", request.mode)
            since, until = _range(request, tx.now())
            wanted = DecisionFilter(
                pipeline=info.pipeline_key,
                customer=self._names.customer_key(tx, request.customer),
                phase=request.phase,
                mode=request.mode,
                since=since,
                until=until,
                limit=BACKTEST_MAX,
            )
            return wanted, decision_list(tx, wanted), decision_count(tx, wanted)

        wanted, rows, total = self._store.read(body)
        return backtest_record(
            _reevaluated(rows, changes),
            within=(wanted.since, wanted.until),
            left_out=total - len(rows),
            diverged=sum(has_diverged(row) for row in rows),
        )

    def _owner_checked(
        self, tx: Tx, customer: str | None, info: PipelineInfo
    ) -> tuple[Micros, str | None]:
        """Raise NotFound for a customer that the caller may not see.

        A pipeline whose needs do not distinguish customers would show another customer's rows.
        Return the time, and the parameters (JSON) of the customer's only active config.
        """
        key = self._names.customer_key(tx, customer)
        if key is not None:
            check_sole_customer(tx, info, key)
        else:
            key = customer_get(tx, self._names.default_customer)
        configs = [] if key is None else only_configs(tx, info, key)
        return tx.now(), configs[0].parameters if len(configs) == 1 else None

    def _snapshot(
        self, tx: Tx, flow_id: int, customer: str | None
    ) -> tuple[FlowSnapshot, dict[str, Any]]:
        """Return an unlocked flow, and the parameters that its runs receive."""
        flow = flow_get(tx, flow_id, self._names.customer_key(tx, customer))
        if flow is None:
            raise NotFound("flow", encode("flow", flow_id))
        locked = Locked(flow, has_overrides=True, has_breakers=True, now=tx.now())
        snapshot = snapshot_of(tx, locked)
        return snapshot, flow_parameters(tx, [(flow, snapshot.planned)])[flow_id]

    def _needs(self, planned: FlowPlan, phase: str, processor: str | None) -> tuple[Need, ...]:
        known = [p.name for p in planned.plan.phases]
        if phase not in known:
            expected = f"a phase of mode {planned.mode.name} ({', '.join(known)})"
            raise InvalidInput("phase", expected, phase, did_you_mean(phase, known))
        if processor is not None:
            # An undeclared processor has no needs, so a misspelled name would proceed.
            names = [
                one["name"]
                for declared in planned.definition["phases"]
                if declared["name"] == phase
                for one in declared["processors"]
            ]
            if processor not in names:
                expected = f"a processor of phase {phase}: {', '.join(names)}"
                raise InvalidInput("processor", expected, processor)
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


def _flow_number(flow_id: str | None) -> int | None:
    return None if flow_id is None else decode_or_not_found("flow", "flow", flow_id)


def _range(request: BacktestRequest, now: Micros) -> tuple[Micros, Micros]:
    """Return the start and end of a backtest; InvalidInput unless they are in order."""
    until = now + 1 if request.until is None else request_time(request.until, "until")
    since = until - request.days * DAY
    if request.since is not None:
        since = request_time(request.since, "since")
    if since >= until:
        raise InvalidInput("since", "a time before `until`", request.since)
    return since, until


def _options(changes: ModeChanges) -> ModeOptions:
    """Return the settings that the request names; at least one is required."""
    given = {name: getattr(changes, name) for name in changes.__struct_fields__}
    named = {name: value for name, value in given.items() if value is not None}
    if not named:
        raise InvalidInput("changes", "at least one setting", "none")
    return cast("ModeOptions", named)


def _reevaluated(
    rows: list[DecisionRow], changes: ModeOptions, override: OverrideScope | None = None
) -> list[ReevaluatedDecision]:
    try:
        return [reevaluated_record(row, changes, override) for row in rows]
    except DeclarationError as error:
        raise InvalidInput("changes", "consistent settings", error.message) from None
