"""Records of executions from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from penstock.core.clock import SECOND
from penstock.core.formatting import id_or_none, parsed
from penstock.core.ids import encode
from penstock.core.records.record import time, time_or_none
from penstock.tracking.alerted import alert_about
from penstock.tracking.records import Execution
from penstock.tracking.rows import AlertOfExecution, ExecutionRow


class ExecutionPage(NamedTuple):
    """Shared data of a page of executions."""

    correlation_id: str
    """Correlation id of executions that have none themselves."""
    causes: Mapping[tuple[str, int], int] = {}
    """The runs that created runs, flows and messages, by kind of action and created id."""
    alerts: Sequence[AlertOfExecution] = ()
    entities: Mapping[int, dict[str, list[str | int]]] = {}
    """Changed entities by execution number."""


def actions_of(rows: Sequence[ExecutionRow]) -> list[tuple[str, int]]:
    """Return the actions of runs that may have caused executions: (kind, created id)."""
    return [action for row in rows for action in _actions(row)]


def execution_record(
    row: ExecutionRow,
    context: ExecutionPage,
) -> Execution:
    """Convert an execution row to its public record."""
    causes, alerts = context.causes, context.alerts
    source = row.source_run_id
    if source is None:
        source = next((causes[key] for key in _actions(row) if key in causes), None)
    metadata = _object(row.metadata)
    rule = alert_about(row, alerts)
    spent = row.duration_us
    return Execution(
        execution_id=_public_id(row),
        kind=cast("Any", "delivery" if row.kind == "attempt" else row.kind),
        source_execution_id=id_or_none("run", source),
        retry_of=id_or_none("run", row.retry_of),
        correlation_id=row.correlation_id or _own_cause(row) or context.correlation_id,
        customer=row.customer_id,
        pipeline=row.pipeline,
        flow_id=id_or_none("flow", row.flow_id if (row.flow_id or 0) > 0 else None),
        phase=row.phase,
        processor=row.processor,
        event_type=row.event_type,
        partition=row.partition,
        mode=row.mode,
        affected_entities=context.entities.get(row.number, {}),
        status=cast("Any", row.status),
        started_at=time_or_none(row.started_at),
        completed_at=time(row.ended_at),
        duration_seconds=None if spent is None else spent / SECOND,
        outcome=cast("Any", row.handled_as),
        dependency_result=row.dependency_result,
        dependency_failure_type=row.failure_type,
        missing=_list(row.missing),
        stale=_list(row.stale),
        acknowledgment=cast("Any", row.acknowledgment),
        is_override_used=bool(_list(row.overrides)) or row.override_reason is not None,
        override_reason=row.override_reason,
        override_metadata=_list(row.overrides),
        error_type=row.error_type,
        error=_message(row.error),
        retry_count=row.retry_count,
        message_id=row.message_id,
        subscription=row.subscription,
        batch_id=None if metadata is None else _text(metadata.get("batch_id")),
        records_processed=row.records,
        records_inserted=row.inserted,
        records_updated=row.updated,
        trigger_source=row.trigger_source,
        parent_processor=row.parent_processor,
        is_alert_sent=rule is not None,
        alert_type=rule,
        service=row.service,
        revision=row.revision,
        definition=row.definition,
        metadata=metadata,
    )


def _actions(row: ExecutionRow) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    if row.kind == "run":
        found.append(("submit", row.root_run_id or row.number))
    if row.flow_id is not None and row.flow_id > 0 and row.parent_processor is None:
        found.append(("trigger", row.flow_id))
    if row.message_id is not None and row.message_id.isascii() and row.message_id.isdigit():
        number = int(row.message_id)
        if number < 2**63:
            found.append(("publish", number))
    return found


def _own_cause(row: ExecutionRow) -> str | None:
    """Return the id that an execution without a correlation id passes on: its own id."""
    if row.kind == "run" and row.flow_id is None:
        return encode("run", row.root_run_id or row.number)
    return row.message_id if row.kind in ("delivery", "attempt") else None


def _public_id(row: ExecutionRow) -> str:
    if row.kind == "run":
        return encode("run", row.number)
    if row.kind == "report":
        return encode("evt", -row.number)
    if row.kind == "evaluation":
        return encode("dec", row.number)
    return f"{row.message_id}@{row.subscription}#{row.retry_count + 1}"


def _object(text: str | None) -> dict[str, Any] | None:
    value = parsed(text)
    return value if isinstance(value, dict) else None


def _list(text: str | None) -> list[str]:
    value = parsed(text)
    return [str(one) for one in value] if isinstance(value, list) else []


def _message(text: str | None) -> str | None:
    """Return the `message` in JSON error details, or the text unchanged."""
    value = parsed(text)
    return str(value["message"]) if isinstance(value, dict) and "message" in value else text


def _text(value: object) -> str | None:
    return None if value is None else str(value)
