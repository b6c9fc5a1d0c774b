"""The log tables of flows: ended phases, changed checks, executions. Also batch writes of messages.

Written in the transaction they describe; read by `trace`, `explain` and the audit sink. Executions
are logged from the existing history row (`completions.completion_from_runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from penstock.core.clock import MINUTE, Micros
from penstock.db.store import Tx, one
from penstock.flows.cascade import FlowState
from penstock.flows.rows import CheckLogRow, FlowRow, PhaseLogRow

ENDING_MAX: Final = 10 * MINUTE
"""Maximum time between the end of a flow and its journal entry; one transaction writes both."""


def cancel_reasons(tx: Tx, flows: Iterable[FlowRow]) -> dict[int, str]:
    """Return the recorded reasons of the cancelled flows among these; no read without any."""
    ended = {
        flow.flow_id: flow.ended_at
        for flow in flows
        if flow.state == FlowState.CANCELLED and flow.ended_at is not None
    }
    if not ended:
        return {}
    first, last = min(ended.values()), max(ended.values())
    params = {"ids": sorted(ended), "since": first - ENDING_MAX, "until": last + ENDING_MAX}
    return dict(tx.rows("flow_cancel_reasons", params))


def phase_log_put_many(tx: Tx, lines: Sequence[PhaseLogRow]) -> None:
    """Log ended phases; an existing row is updated."""
    tx.later("phase_log_put_many", batch=lines)


def phase_log_triggered_many(tx: Tx, rows: Sequence[tuple[int, str, str]]) -> None:
    """Log (flow, phase, downstream): an ended phase led to the start of another."""
    tx.later("phase_log_triggered_many", batch=rows)


def check_log_put_many(tx: Tx, lines: Sequence[CheckLogRow]) -> None:
    """Log changed checks."""
    tx.later("check_log_put_many", batch=lines)


def execution_log_report(tx: Tx, params: dict[str, object]) -> None:
    """Log an execution that was reported externally.

    params: flow_id, processor, status, correlation_id, records, entities, message_id, subscription,
    metadata, actor.
    """
    # Negative, because run ids are positive.
    execution_id = -int(one(tx.rows("token_next"))[0])
    tx.run("execution_log_from_report", {**params, "execution_id": execution_id})


def topics_later(tx: Tx, flow_ids: Iterable[int]) -> Callable[[], frozenset[str]]:
    """Query the existing topics for messages about flows."""
    result = tx.later("topics_of_flows", {"ids": sorted(flow_ids)})
    return lambda: frozenset(row[0] for row in result.rows())


def outbox_announce_many(tx: Tx, messages: Sequence[tuple[str, str]]) -> None:
    """Send (topic, JSON) messages with this transaction, where the topic exists."""
    tx.later("outbox_announce_many", batch=messages)


def alert_resolve_many(tx: Tx, keys: Sequence[str], actor: str) -> None:
    """Resolve the open alerts among these."""
    if keys:
        tx.later("alert_resolve_many", {"keys": sorted(set(keys)), "actor": actor})


def alert_resolve_repaired(tx: Tx, flow_ids: Sequence[int], actor: str) -> None:
    """Resolve the alerts about earlier generations of flows that succeeded."""
    if flow_ids:
        tx.later("alert_resolve_repaired", {"ids": sorted(set(flow_ids)), "actor": actor})


def dead_letter_put_report(tx: Tx, params: dict[str, object]) -> int:
    """Store an unusable report as a dead letter. Return its id.

    params: customer, partition, correlation_id, error_type, error_details.
    """
    # Negative, because dead letters of messages use the message's id.
    subject = -int(one(tx.rows("token_next"))[0])
    return int(one(tx.rows("dead_letter_put_report", {**params, "subject": subject}))[0])


def report_details(tx: Tx, flow_id: int, since: Micros) -> list[str]:
    """Return the details of the reports that a flow has recorded since a time."""
    rows = tx.rows("report_details", {"flow_id": flow_id, "since": since})
    return [row[0] for row in rows]
