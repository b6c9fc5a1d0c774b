"""Use cases of flows: trigger, report a completion, read, cancel.

When `trigger` returns, the flow is open and the phases whose gates need no data are running. A
second trigger for the same partition and mode returns the existing flow, unless `force` opens the
next generation. A report for an unknown processor is kept as a dead letter, never lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.access.store.names import NameResolver, check_limit
from penstock.audit.rows import Entry, JournalRow
from penstock.audit.store.journal import journal_append_many, journal_for
from penstock.core.errors import IllegalTransition, InvalidInput, NotFound
from penstock.core.ids import encode, new_correlation_id
from penstock.db.store import Transactions, Tx
from penstock.flows.cascade import CompletionStatus, FlowState
from penstock.flows.client.opening import (
    EVENT,
    TriggerResult,
    digest_of,
    flow_open,
    flow_open_for_report,
    flow_start,
)
from penstock.flows.client.reports import (
    completion_from_report,
    report_dead_letter,
    report_journal_entry,
    report_log,
    run_cancel_pending_of,
)
from penstock.flows.client.requests import (
    CompletionReport,
    FlowRequest,
    check_report,
    check_request,
    reporting_processor,
)
from penstock.flows.gates.rows import DecisionFilter, DecisionRow, Trigger
from penstock.flows.gates.store.gates import decision_list, triggers_of
from penstock.flows.gates.store.overrides import flow_requests_close
from penstock.flows.phases import ENDED, PhaseState
from penstock.flows.rows import CompletionRow, Execution, Flow, FlowFilter, PhaseRow
from penstock.flows.store.completions import (
    completion_put_many,
    completion_recorded_in,
    completions_of,
    flow_event_put_for_next,
)
from penstock.flows.store.create import FlowOpening, opening_lock
from penstock.flows.store.flows import (
    flow_end_many,
    flow_find,
    flow_for_correlation,
    flow_get,
    flow_list,
    flow_lock_many,
    flow_runs_live,
    phase_update_many,
    phases_of,
)
from penstock.flows.store.from_schedule import mode_and_partition
from penstock.flows.store.logs import execution_list
from penstock.runs.store.finish import run_cancel

__all__ = [
    "CompletionReceipt",
    "CompletionReport",
    "FlowDetail",
    "FlowRequest",
    "Flows",
    "TriggerResult",
]

CHANNEL: Final = "flows"


class CompletionReceipt(NamedTuple):
    """Outcome of a completion report: recorded in a flow, a known repeat, or a dead letter."""

    flow_id: int | None
    is_new: bool = False
    opened: bool = False
    dead_letter_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDetail:
    """A flow with its phases, completions, triggers, decisions, journal and definition."""

    flow: Flow
    phases: Sequence[PhaseRow]
    completions: Sequence[CompletionRow]
    triggers: Sequence[Trigger]
    decisions: Sequence[DecisionRow]
    journal: Sequence[JournalRow]
    definition: Mapping[str, Any]


class Flows:
    """Use cases of flows."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def trigger(self, request: FlowRequest | str, *, actor: str | None = None) -> TriggerResult:
        """Open a flow and start its ready phases, or return the existing flow unless `force`."""
        wanted = FlowRequest(pipeline=request) if isinstance(request, str) else request
        who = actor or self._actor

        def body(tx: Tx) -> TriggerResult:
            info = self._names.pipeline(wanted.pipeline, "pipeline", tx)
            parameters = check_request(info, wanted)
            customer_id = wanted.customer or self._names.default_customer
            customer = self._names.ensure_customer_keys(tx, [customer_id])[customer_id]
            mode, partition = mode_and_partition(
                info.definition,
                tx.now(),
                mode=wanted.mode,
                backfill=wanted.backfill,
                source=wanted.source,
            )
            partition = wanted.partition or partition
            opening_lock(tx, customer, info.pipeline_key, partition)
            existing = flow_find(tx, customer, info.pipeline_key, partition, mode)
            if existing is not None and not wanted.force and not wanted.phases:
                return TriggerResult(existing, is_new=False)
            parent = None
            if wanted.phases:
                parent = existing or flow_find(tx, customer, info.pipeline_key, partition)
            opening = FlowOpening(
                customer_key=customer,
                pipeline_key=info.pipeline_key,
                digest=digest_of(tx, info),
                mode=mode,
                partition=partition,
                source=wanted.source,
                correlation_id=wanted.correlation_id or new_correlation_id(),
                opened_by=who,
                priority=wanted.priority,
                parameters=parameters,
                start_phases=tuple(wanted.phases),
                parent=parent,
                no_downstream=wanted.no_downstream,
                generation=wanted.generation,
            )
            return flow_open(tx, self._store, info, opening, who)

        return self._store.write(body)

    def complete(self, report: CompletionReport, *, actor: str | None = None) -> CompletionReceipt:
        """Record the completion of a processor that runs outside Penstock; safe to repeat.

        The report is recorded in the newest open flow of its partition and mode; if there is none,
        it opens the next generation. A report for an unknown processor becomes a dead letter.
        """
        who = actor or self._actor
        check_report(report)

        def body(tx: Tx) -> CompletionReceipt:
            customer_id = report.customer or self._names.default_customer
            customer = self._names.ensure_customer_keys(tx, [customer_id])[customer_id]
            info = self._names.pipeline(report.pipeline, "pipeline", tx)
            row = reporting_processor(info, report)
            if row is None:
                return CompletionReceipt(
                    None, dead_letter_id=report_dead_letter(tx, customer, report)
                )
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
                    "mode": mode,
                    "processor": row.processor_key,
                    "execution_id": report.execution_id,
                }
                before = completion_recorded_in(tx, params)
                if before is not None:
                    return CompletionReceipt(before)
            opened = flow is None or not flow.is_open
            if flow is None or opened:
                flow = flow_open_for_report(tx, info, report, (customer, mode, row.phase), who)
            news = completion_put_many(
                tx, [completion_from_report(flow, row.processor_key, tx.now(), report)]
            )
            if news:
                journal_append_many(tx, [report_journal_entry(flow, row.phase, report, who)])
                report_log(tx, flow, row.processor_key, report, who)
            if opened:
                # The report is already recorded, so the start skips what is done.
                flow_start(tx, self._store, info, flow.flow_id, who)
            elif news and report.status != CompletionStatus.FAILED:
                run_cancel_pending_of(tx, flow, row.processor_key, who)
            tx.after_commit(lambda: self._store.wake([CHANNEL]))
            return CompletionReceipt(flow.flow_id, is_new=bool(news), opened=opened)

        return self._store.write(body)

    def get(self, flow_id: int, customer: str | None = None) -> Flow:
        """Return one flow; raise NotFound if it does not exist."""
        return self._store.read(lambda tx: self._flow(tx, flow_id, customer))

    def find(
        self, pipeline: str, partition: str, *, mode: str | None = None, customer: str | None = None
    ) -> Flow:
        """Return the newest flow of a partition; open flows take precedence."""

        def body(tx: Tx) -> Flow:
            info = self._names.pipeline(pipeline, "pipeline", tx)
            number = self._names.customer_key(tx, customer or self._names.default_customer)
            assert number is not None
            found = flow_find(tx, number, info.pipeline_key, partition, mode)
            if found is None:
                raise NotFound("flow", f"{pipeline} {partition}")
            return found

        return self._store.read(body)

    def detail(self, flow_id: int, customer: str | None = None) -> FlowDetail:
        """Return one flow with its phases, completions, triggers, decisions and journal."""

        def body(tx: Tx) -> FlowDetail:
            flow = self._flow(tx, flow_id, customer)
            info = self._names.pipeline(flow.pipeline, "pipeline", tx)
            wanted = DecisionFilter(pipeline=flow.pipeline_key, flow_id=flow_id, limit=200)
            return FlowDetail(
                flow=flow,
                phases=phases_of(tx, [flow_id])[flow_id],
                completions=completions_of(tx, [flow_id])[flow_id],
                triggers=triggers_of(tx, [flow_id]),
                decisions=decision_list(tx, wanted),
                journal=journal_for(tx, "flow", flow_id),
                definition=info.definition,
            )

        return self._store.read(body)

    def page(
        self, wanted: FlowFilter, *, pipeline: str | None = None, customer: str | None = None
    ) -> list[Flow]:
        """Return flows, newest first; `before` (an id) continues an earlier page."""
        check_limit(wanted.limit)
        if wanted.state is not None and wanted.state not in tuple(FlowState):
            raise InvalidInput("state", f"one of {', '.join(FlowState)}", wanted.state)

        def body(tx: Tx) -> list[Flow]:
            number = self._names.customer_key(tx, customer)
            info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
            which = None if info is None else info.pipeline_key
            return flow_list(tx, wanted._replace(customer=number, pipeline=which))

        return self._store.read(body)

    def trace(
        self, correlation_id: str, customer: str | None = None
    ) -> tuple[list[Flow], list[Execution]]:
        """Return the flows and executions that share a correlation id."""

        def body(tx: Tx) -> tuple[list[Flow], list[Execution]]:
            number = self._names.customer_key(tx, customer)
            flows = flow_for_correlation(tx, correlation_id, number)
            return flows, execution_list(tx, correlation_id, number)

        return self._store.read(body)

    def cancel(
        self,
        flow_id: int,
        *,
        reason: str = "",
        customer: str | None = None,
        actor: str | None = None,
    ) -> int:
        """Cancel a flow and its runs; running ones are asked to stop. Return the number of runs."""
        who = actor or self._actor

        def body(tx: Tx) -> int:
            self._flow(tx, flow_id, customer)
            (locked,) = flow_lock_many(tx, [flow_id])
            flow = locked.flow
            if not flow.is_open:
                raise IllegalTransition("flow", encode("flow", flow_id), flow.state, "CANCELLED")
            known = phases_of(tx, [flow_id])[flow_id]
            rows = [
                row._replace(state=PhaseState.SKIPPED.value, probe_at=None, probe_again=False)
                for row in known
                if row.state not in ENDED
            ]
            phase_update_many(tx, rows)
            flow_requests_close(tx, known, who)
            state = FlowState.CANCELLED.value
            flow_end_many(tx, [(flow_id, state, flow.is_degraded, flow.missing, True)])
            flow_event_put_for_next(tx, [flow.config_id])
            entry = Entry("flow", flow_id, flow.customer_key, "ended", who, flow.state, state,
                          None, reason or None)  # fmt: skip
            journal_append_many(tx, [entry])
            runs = flow_runs_live(tx, flow_id)
            for run_id, _, _ in runs:
                run_cancel(tx, run_id, who, reason)
            tx.after_commit(lambda: self._store.wake(["cancel", CHANNEL]))
            return len(runs)

        return self._store.write(body)

    def _flow(self, tx: Tx, flow_id: int, customer: str | None) -> Flow:
        found = flow_get(tx, flow_id, self._names.customer_key(tx, customer))
        if found is None:
            raise NotFound("flow", encode("flow", flow_id))
        return found
