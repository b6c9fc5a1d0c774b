"""Replay of completion reports that named a processor that was not registered at the time."""

from __future__ import annotations

import json
from typing import Final

from penstock.access.store.names import NameResolver
from penstock.core.errors import Conflict
from penstock.db.in_transaction import InTransaction
from penstock.db.store import Transactions, Tx
from penstock.dead_letters.store import DeadLetterRow
from penstock.flows.client.flows import Flows
from penstock.flows.client.requests import ProcessorReport, reporting_processor

UNKNOWN_PROCESSOR: Final = "UNKNOWN_PROCESSOR"


def is_report(row: DeadLetterRow) -> bool:
    """Return whether a dead letter is a report of an unknown processor.

    Such a dead letter has no subscription; consumers may use any error type for deliveries.
    """
    is_own = row.subscription_key is None and row.message_id is None
    return is_own and row.kind == "delivery" and row.error_type == UNKNOWN_PROCESSOR


def report_check(
    tx: Tx, names: NameResolver, details: str | None, customer: str | None
) -> ProcessorReport:
    """Return the report in these details; raise Conflict while its processor is not registered."""
    report = ProcessorReport(**{**json.loads(details or "{}"), "customer": customer})
    info = names.pipeline(report.pipeline, "pipeline", tx)
    if reporting_processor(info, report) is None:
        raise Conflict(
            f"{report.pipeline} has no processor {report.processor}: register it, then replay."
        )
    return report


def report_replay(
    tx: Tx, store: Transactions, names: NameResolver, row: DeadLetterRow, actor: str
) -> str:
    """Record the report; return the flow that received it."""
    report = report_check(tx, names, row.error_details, row.customer_id)
    receipt = Flows(InTransaction(store, tx), names, actor).record(report)
    assert receipt.flow_id is not None, "the processor is known"
    return receipt.flow_id
