"""Use cases of flows: trigger, report a completion, read, cancel.

When `trigger` returns, the flow is open and the phases whose gates need no data are running. A
second trigger for the same partition and mode returns the existing flow, unless `force` opens the
next generation. A report for an unknown processor is kept as a dead letter, never lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from penstock.access.store.names import NameResolver, check_limit
from penstock.access.store.paging import Cursor, PageLimit, paged_part
from penstock.audit.from_rows import journal_record
from penstock.audit.store.journal import journal_append_many, journal_for
from penstock.core.clock import FAR_FUTURE
from penstock.core.errors import IllegalTransition, NotFound
from penstock.core.ids import decode_or_not_found, encode
from penstock.core.records.parameters import (
    CustomerFilter,
    CustomerOrDefault,
    FlowId,
    PartitionFilter,
    PipelineFilter,
    PipelineName,
)
from penstock.core.records.record import Meta, Page, Time, Wire
from penstock.db.store import Transactions, Tx
from penstock.entities.store import inputs_of_flow, reported_of
from penstock.flows.cascade import CompletionStatus, FlowState
from penstock.flows.client.closing import flow_close
from penstock.flows.client.completion_message import report_of
from penstock.flows.client.grid import grid_read
from penstock.flows.client.listing import (
    HELD_UP,
    FlowOrder,
    FlowSort,
    Only,
    check_order,
    filter_of,
    flow_page,
)
from penstock.flows.client.opening import EVENT, flow_open_for_report, flow_start, flow_trigger
from penstock.flows.client.reports import (
    completion_from_report,
    is_repeated,
    report_changes,
    report_dead_letter,
    report_journal_entry,
    report_log,
    run_cancel_pending_of,
)
from penstock.flows.client.requests import ProcessorReport, check_report, reporting_processor
from penstock.flows.forecast.store import forecasts_of
from penstock.flows.from_rows import (
    completion_record,
    flow_record,
    input_record,
    phase_record,
    progress_of,
    trigger_record,
)
from penstock.flows.gates.from_rows import decision_record
from penstock.flows.gates.rows import DecisionFilter
from penstock.flows.gates.store.gates import decision_list, triggers_of
from penstock.flows.records import (
    CompletionReceipt,
    CompletionReport,
    Flow,
    FlowCancellation,
    FlowCompletion,
    FlowDetail,
    FlowGrid,
    FlowRequest,
    FlowTrigger,
)
from penstock.flows.rows import FlowFilter, FlowRow
from penstock.flows.store.completions import (
    completion_put_many,
    completion_recorded_in,
    completions_of,
)
from penstock.flows.store.create import opening_lock
from penstock.flows.store.flows import (
    flow_find,
    flow_get,
    phase_states,
    phases_of,
)
from penstock.flows.store.grid import GridKey, phase_marks
from penstock.flows.store.logs import cancel_reasons
from penstock.pipelines.partition import check_partition, partition_rule_of
from penstock.pipelines.plan import mode_and_partition

__all__ = ["Flows"]

CHANNEL: Final = "flows"

ModeFilter = Annotated[
    Annotated[str, Meta(max_length=64)] | None,
    Meta(description="Return only flows of this mode."),
]
StateFilter = Annotated[
    Literal["OPEN", "WAITING", "BLOCKED", "COMPLETE", "DEGRADED", "FAILED", "CANCELLED"] | None,
    Meta(
        description="Return only flows in this state; WAITING and BLOCKED select open flows with a "
        "phase in that state."
    ),
]
RiskFlag = Annotated[
    bool,
    Meta(description="Include progress, and forecasts of open flows: ETA, probability of a miss."),
]
PhasesFlag = Annotated[bool, Meta(description="Include progress and the state of every phase.")]
OpenedSince = Annotated[
    Time | None,
    Meta(description="Return only flows opened at or after this ISO 8601 time or date."),
]
OpenedUntil = Annotated[
    Time | None, Meta(description="Return only flows opened before this ISO 8601 time or date.")
]
OnlyFilter = Annotated[
    Only | None,
    Meta(
        description="`open`: flows that have not ended. `trouble`: flows that ended FAILED or "
        "DEGRADED, and open ones with a blocked or failed phase or past their deadline."
    ),
]
FlowSearch = Annotated[
    Annotated[str, Meta(max_length=200)] | None,
    Wire("q"),
    Meta(
        description="The id of a flow, or the beginning of a partition, a pipeline's name or a "
        "customer's id, ignoring case. A page examines 10,000 flows: it may have fewer rows "
        "than `limit` and still be followed by another."
    ),
]
SortOrder = Annotated[
    FlowSort,
    Meta(
        description="For open flows also `oldest`, or `risk`: the highest probability of a miss "
        "first, on a single page and for at most 500 flows."
    ),
]
GridRows = Annotated[
    int, Meta(description="Maximum number of partitions, newest first.", ge=1, le=90)
]
FirstPartition = Annotated[
    Annotated[str, Meta(max_length=500)] | None,
    Wire("from"),
    Meta(description="Oldest partition to include, in alphabetical order."),
]
LastPartition = Annotated[
    Annotated[str, Meta(max_length=500)] | None,
    Wire("to"),
    Meta(description="Newest partition to include, in alphabetical order."),
]
CancelReason = Annotated[
    str, Meta(description="Reason for the action, stored with its record.", max_length=500)
]


class Flows:
    """Use cases of flows."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def trigger(self, request: FlowRequest) -> FlowTrigger:
        """Open a flow and start its first phases. Without `force` an existing flow is returned."""

        def body(tx: Tx) -> FlowTrigger:
            result = flow_trigger(tx, self._store, self._names, request, self._actor)
            held_up = phase_states(tx, [result.flow.flow_id])
            return FlowTrigger(
                flow=flow_record(result.flow, held_up.get(result.flow.flow_id)),
                is_new=result.is_new,
                run_ids=[encode("run", run_id) for run_id in result.run_ids],
                superseded=[encode("flow", number) for number in result.superseded],
            )

        return self._store.write(body)

    def complete(self, report: CompletionReport) -> CompletionReceipt:
        """Report the completion of a processor that Penstock does not run; safe to repeat.

        The newest open flow of its partition and mode receives it; without one, a new flow is
        opened. A repeat is `known`: one with an execution id that was recorded before, in any
        generation, or, without one, an identical report that the newest flow, if it ended COMPLETE
        or DEGRADED, recorded in the last ten minutes; not if its partitions may repeat (none
        declared, text, or `repeats`). The flow's journal shows it as `report_repeated`. To run the
        partition again, trigger it, or report a new execution id. A report for an unknown processor
        becomes a dead letter.
        """
        return self.record(report_of(report))

    def record(self, report: ProcessorReport) -> CompletionReceipt:
        """Record a completion report that arrived as a message of the bus; see `complete`."""
        check_report(report)
        who = self._actor

        def body(tx: Tx) -> CompletionReceipt:
            customer_id = self._names.customer_or_default(report.customer)
            customer = self._names.ensure_customer_keys(tx, [customer_id])[customer_id]
            info = self._names.pipeline(report.pipeline, "pipeline", tx)
            self._names.use_pipeline(tx, info, customer)
            row = reporting_processor(info, report)
            if row is None:
                return CompletionReceipt(
                    outcome="dead",
                    flow_id=None,
                    dead_letter_id=encode("dl", report_dead_letter(tx, customer, report)),
                )
            rule = partition_rule_of(info.definition)
            check_partition(rule, report.partition)
            mode, _ = mode_and_partition(info.definition, tx.now(), mode=report.mode, source=EVENT)
            flow = flow_find(tx, customer, info.pipeline_key, report.partition, report.mode)
            if flow is None or not flow.is_open:
                # One of several concurrent first reports opens the flow; the others then find it.
                opening_lock(tx, customer, info.pipeline_key, report.partition)
                flow = flow_find(tx, customer, info.pipeline_key, report.partition, report.mode)
            if flow is not None and (flow.is_open or report.mode is None):
                mode = flow.mode if flow.is_open else mode
            if report.execution_id is not None:
                params = {
                    "customer": customer,
                    "pipeline": info.pipeline_key,
                    "partition": report.partition,
                    "mode": report.mode,
                    "processor": row.processor_key,
                    "execution_id": report.execution_id,
                }
                before = completion_recorded_in(tx, params)
                if before is not None:
                    return _receipt(before, is_new=False, opened=False)
            elif flow is not None and is_repeated(tx, flow, report, rule):
                repeat = report_journal_entry(flow, row.phase, report, who, is_repeat=True)
                journal_append_many(tx, [repeat])
                return _receipt(flow.flow_id, is_new=False, opened=False)
            opened = flow is None or not flow.is_open
            if flow is None or opened:
                flow = flow_open_for_report(tx, info, report, (customer, mode, row.phase), who)
            news = completion_put_many(
                tx, [completion_from_report(flow, row.processor_key, tx.now(), report)]
            )
            if news or report.entities is not None or report.everything_changed is not None:
                report_changes(tx, flow, row.processor_key, report)
            if news:
                journal_append_many(tx, [report_journal_entry(flow, row.phase, report, who)])
                report_log(tx, flow, row.processor_key, report, who)
            if opened:
                # The report is already recorded, so the start skips completed processors.
                flow_start(tx, self._store, info, flow.flow_id, who)
            elif news and report.status != CompletionStatus.FAILED:
                run_cancel_pending_of(tx, flow, row.processor_key, who)
            tx.after_commit(lambda: self._store.wake([CHANNEL]))
            return _receipt(flow.flow_id, is_new=bool(news), opened=opened)

        return self._store.write(body)

    def get(self, flow_id: FlowId) -> FlowDetail:
        """Return a flow with its phases, completions, triggers, decisions and journal."""
        number = decode_or_not_found("flow", "flow", flow_id)

        def body(tx: Tx) -> FlowDetail:
            flow = self._flow(tx, number)
            wanted = DecisionFilter(pipeline=flow.pipeline_key, flow_id=number, limit=200)
            return FlowDetail(
                flow=flow_record(
                    flow,
                    phase_states(tx, [number]).get(number),
                    forecasts_of(tx, [flow]).get(number, (None, None)),
                    progress=progress_of(phase_marks(tx, [number])[number]),
                    cancel_reason=cancel_reasons(tx, [flow]).get(number),
                ),
                phases=[phase_record(row) for row in phases_of(tx, [number])[number]],
                completions=_completions(tx, number),
                triggers=[trigger_record(row) for row in triggers_of(tx, [number])],
                decisions=[decision_record(row) for row in decision_list(tx, wanted)],
                journal=[journal_record(row) for row in journal_for(tx, "flow", number)],
                inputs=[input_record(*key, c) for key, c in inputs_of_flow(tx, number).items()],
            )

        return self._store.read(body)

    def list(
        self,
        *,
        customer: CustomerFilter = None,
        pipeline: PipelineFilter = None,
        partition: PartitionFilter = None,
        mode: ModeFilter = None,
        state: StateFilter = None,
        only: OnlyFilter = None,
        since: OpenedSince = None,
        until: OpenedUntil = None,
        search: FlowSearch = None,
        sort: SortOrder = "newest",
        risk: RiskFlag = False,
        phases: PhasesFlag = False,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[Flow]:
        """List flows, newest first; open ones also by age or by risk."""
        order = FlowOrder(only, sort, risk, phases)
        check_order(order, state)
        check_limit(limit)
        is_open = only == "open" or state in HELD_UP

        def body(tx: Tx, before: int) -> tuple[Sequence[Flow], list[int] | None]:
            info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
            wanted = FlowFilter(
                customer=self._names.customer_key(tx, customer),
                pipeline=None if info is None else info.pipeline_key,
                partition=partition,
                mode=mode,
                state=FlowState.OPEN if is_open else state,
                phase_state=state if state in HELD_UP else None,
                direction=-1 if sort == "oldest" else 1,
                before=before,
                limit=limit,
            )
            wanted = filter_of(tx, self._names, wanted, search, (since, until))
            return flow_page(tx, self._names, wanted, order)

        return paged_part(
            self._names,
            "flows",
            lambda after: self._store.read(
                lambda tx: body(tx, FAR_FUTURE if after is None else after[0])
            ),
            cursor=cursor,
            filters={
                "customer": customer, "pipeline": pipeline, "partition": partition, "mode": mode,
                "state": state, "risk": risk, "phases": phases, "only": only, "since": since,
                "until": until, "search": search, "sort": sort,
            },
        )  # fmt: skip

    def grid(
        self,
        pipeline: PipelineName,
        *,
        customer: CustomerOrDefault = None,
        first: FirstPartition = None,
        last: LastPartition = None,
        mode: ModeFilter = None,
        limit: GridRows = 28,
    ) -> FlowGrid:
        """Return the newest partitions of a pipeline with the state of every phase.

        Each partition and mode shows its newest flow. Partitions whose flows were pruned come from
        the log of phases.
        """
        info = self._names.pipeline(pipeline, "pipeline")
        owner = self._names.customer_or_default(customer)

        def body(tx: Tx) -> FlowGrid:
            number = self._names.customer_key(tx, owner)
            assert number is not None
            key = GridKey(number, info.pipeline_key, mode)
            span = (first, last, limit)
            return grid_read(tx, key, info.definition, span, (owner, info.name))

        return self._store.read(body)

    def cancel(self, flow_id: FlowId, reason: CancelReason = "") -> FlowCancellation:
        """Cancel a flow and its runs. Runs in progress are asked to stop."""
        number = decode_or_not_found("flow", "flow", flow_id)
        who = self._actor

        def body(tx: Tx) -> FlowCancellation:
            self._flow(tx, number)
            runs = flow_close(tx, number, who, reason)
            if runs is None:
                state = self._flow(tx, number).state
                raise IllegalTransition("flow", encode("flow", number), state, "CANCELLED")
            tx.after_commit(lambda: self._store.wake(["cancel", CHANNEL]))
            return FlowCancellation(flow_id=encode("flow", number), runs=runs)

        return self._store.write(body)

    def _flow(self, tx: Tx, number: int) -> FlowRow:
        found = flow_get(tx, number, self._names.customer_key(tx, None))
        if found is None:
            raise NotFound("flow", encode("flow", number))
        return found


def _completions(tx: Tx, number: int) -> list[FlowCompletion]:
    rows = completions_of(tx, [number])[number]
    reported = reported_of(tx, [row.reported_by for row in rows if row.entities is not None])
    return [completion_record(row, reported.get(row.reported_by)) for row in rows]


def _receipt(number: int, *, is_new: bool, opened: bool) -> CompletionReceipt:
    flow_id = encode("flow", number)
    if not is_new:
        return CompletionReceipt(outcome="known", flow_id=flow_id, dead_letter_id=None)
    outcome: Literal["opened", "taken"] = "opened" if opened else "taken"
    return CompletionReceipt(outcome=outcome, flow_id=flow_id, dead_letter_id=None)
