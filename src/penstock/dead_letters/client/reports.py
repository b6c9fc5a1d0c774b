"""Replay of completion reports that named an unknown processor: recorded once it is registered."""

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

    It has no subscription: consumers choose the error types of deliveries freely.
    """
    is_own = row.subscription_key is None and row.message_id is None
    return is_own and row.kind == "delivery" and row.error_type == UNKNOWN_PROCESSOR


def report_check(tx: Tx, names: NameResolver, row: DeadLetterRow) -> ProcessorReport:
    """Return the report; raise Conflict while its pipeline has no such processor."""
    given = json.loads(row.error_details or "{}")
    report = ProcessorReport(**{**given, "customer": row.customer_id})
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
    report = report_check(tx, names, row)
    receipt = Flows(InTransaction(store, tx), names, actor).record(report)
    assert receipt.flow_id is not None, "the processor is known"
    return receipt.flow_id
