"""Writes of a completion report: completion, journal, execution log, dead letter, cancelled runs.

Functions over the transaction of `client.flows`, which is their only caller.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from penstock.audit.rows import Entry
from penstock.core.clock import MINUTE
from penstock.core.naming import CustomerKey, ProcessorKey
from penstock.db.store import Tx
from penstock.entities.store import report_put
from penstock.flows.cascade import FlowState
from penstock.flows.client.requests import ProcessorReport, entity_report
from penstock.flows.rows import FlowRow, NewCompletion
from penstock.flows.store.logs import (
    dead_letter_put_report,
    execution_log_report,
    report_details,
)
from penstock.pipelines.partition import PartitionKind, PartitionRule
from penstock.runs.store.finish import run_cancel_waiting

REPEATED_WITHIN: Final = 10 * MINUTE
"""Time in which an identical report without an execution id repeats one of a completed flow: a
sender that lost the reply tries again within minutes.
"""


def is_repeated(tx: Tx, flow: FlowRow, report: ProcessorReport, rule: PartitionRule | None) -> bool:
    """Whether a completed flow has just recorded the same report; the caller holds its partition.

    After a flow that failed or was cancelled, the report is about a second attempt. A partition of
    a pipeline without a rule, by text or with `repeats` may be processed again at any time.
    """
    if rule is None or rule.kind is PartitionKind.TEXT or rule.repeats:
        return False
    since = tx.now() - REPEATED_WITHIN
    if flow.state not in (FlowState.COMPLETE, FlowState.DEGRADED):
        return False
    if flow.ended_at is None or flow.ended_at < since:
        return False
    digest = _digest(report)
    return any(
        json.loads(detail).get("digest") == digest
        for detail in report_details(tx, flow.flow_id, since)
    )


def _digest(report: ProcessorReport) -> str:
    """Return a digest of everything that the sender reported."""
    text = json.dumps(_body(report), default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _body(report: ProcessorReport) -> dict[str, object]:
    return {name: getattr(report, name) for name in report.__slots__ if name != "origin"}


def completion_from_report(
    flow: FlowRow, processor_key: ProcessorKey, now: int, report: ProcessorReport
) -> NewCompletion:
    """Convert a report to a completion."""
    return NewCompletion(
        flow_id=flow.flow_id,
        processor_key=processor_key,
        customer_key=flow.customer_key,
        status=report.status,
        at=now,
        execution_id=report.execution_id,
        records=report.records,
        quality=report.quality,
        entities=_counts(report),
        total_expected=report.total_expected,
        completeness_pct=report.completeness_pct,
    )


def _counts(report: ProcessorReport) -> str | None:
    """Return the number of reported ids by kind, as JSON; None if nothing was reported."""
    changes, is_reported = entity_report(report)
    return json.dumps(changes.counts) if is_reported else None


def report_changes(
    tx: Tx, flow: FlowRow, processor_key: ProcessorKey, report: ProcessorReport
) -> None:
    """Record which entities an execution changed; a second one in a flow adds to the first."""
    changes, is_reported = entity_report(report)
    report_put(
        tx,
        flow.flow_id,
        processor_key,
        changes,
        execution_id=report.execution_id,
        is_reported=is_reported,
    )


def report_journal_entry(
    flow: FlowRow, phase: str, report: ProcessorReport, who: str, *, is_repeat: bool = False
) -> Entry:
    """Convert a report, or a repeat that changes nothing, to a journal entry."""
    detail = {
        "phase": phase,
        "processor": report.processor,
        "partition": flow.partition,
        "mode": flow.mode,
        "correlation_id": flow.correlation_id,
        "execution_id": report.execution_id,
        "reported_correlation_id": report.correlation_id,
        "digest": _digest(report),
    }
    text = json.dumps(detail, sort_keys=True)
    action, state = ("report_repeated", None) if is_repeat else ("reported", report.status)
    return Entry("flow", flow.flow_id, flow.customer_key, action, who, None, state,
                 None, None, text)  # fmt: skip


def report_log(
    tx: Tx, flow: FlowRow, processor_key: ProcessorKey, report: ProcessorReport, who: str
) -> None:
    """Append a report to the execution log; the reporter's own execution id is in the metadata."""
    metadata = dict(report.metadata or {})
    if report.execution_id is not None:
        metadata["execution_id"] = report.execution_id
    origin = report.origin
    execution_log_report(
        tx,
        {
            "flow_id": flow.flow_id,
            "processor": processor_key,
            "status": report.status,
            "correlation_id": report.correlation_id,
            "records": report.records,
            "entities": _counts(report),
            "message_id": None if origin is None else origin.message_id,
            "subscription": None if origin is None else origin.subscription,
            "metadata": json.dumps(metadata, sort_keys=True, default=str) if metadata else None,
            "actor": who,
        },
    )


def report_dead_letter(tx: Tx, customer_key: CustomerKey, report: ProcessorReport) -> int:
    """Store a report of an unknown processor as a dead letter and return its id."""
    body = _body(report)
    return dead_letter_put_report(
        tx,
        {
            "customer": customer_key,
            "partition": report.partition,
            "correlation_id": report.correlation_id,
            "error_type": "UNKNOWN_PROCESSOR",
            "error_details": json.dumps(body, default=str, sort_keys=True),
        },
    )


def run_cancel_pending_of(tx: Tx, flow: FlowRow, processor_key: ProcessorKey, who: str) -> None:
    """Cancel the pending runs of a processor that was completed outside Penstock."""
    run_cancel_waiting(tx, flow.flow_id, who, "completed by an external report", processor_key)
