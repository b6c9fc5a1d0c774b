"""Records of dead letters from the rows of the store."""

from __future__ import annotations

from penstock.bus.store.messages import MessageRow
from penstock.core.formatting import id_or_none, parsed
from penstock.core.ids import encode
from penstock.core.records.record import time, time_or_none
from penstock.core.redact import redact
from penstock.dead_letters.records import (
    DeadLetter,
    DeadLetterGroup,
    DeadLetterKind,
    DeadLetterMessage,
)
from penstock.dead_letters.store import DeadLetterGroupRow, DeadLetterRow
from penstock.runs.attempt_result import error_class

_KINDS: dict[str, DeadLetterKind] = {"run": "run", "delivery": "delivery"}


def dead_letter_record(row: DeadLetterRow) -> DeadLetter:
    """Return the record of a dead letter."""
    return DeadLetter(
        dead_letter_id=encode("dl", row.dead_letter_id),
        kind=_KINDS[row.kind],
        run_id=encode("run", row.subject) if row.kind == "run" else None,
        message_id=None if row.message_id is None else str(row.message_id),
        subscription=row.subscription,
        topic=row.topic,
        generation=row.generation,
        customer=row.customer_id,
        pipeline=row.pipeline,
        phase=row.phase,
        processor=row.processor,
        config_id=id_or_none("cfg", row.config_id),
        partition=row.partition,
        correlation_id=row.correlation_id,
        error_type=row.error_type,
        error_kind=row.error_kind,
        error_class=error_class(parsed(row.error_details)),
        error_details=redact(parsed(row.error_details)),
        attempts=row.attempts,
        died_at=time(row.dead_at),
        status=row.status,
        replays=row.replays,
        resolved_at=time_or_none(row.resolved_at),
        resolved_by=row.resolved_by,
        resolution=row.resolution,
    )


def group_record(row: DeadLetterGroupRow) -> DeadLetterGroup:
    """Return the record of a group of dead letters with the same origin and error type."""
    return DeadLetterGroup(
        kind=_KINDS[row.kind],
        pipeline=row.pipeline,
        phase=row.phase,
        processor=row.processor,
        subscription=row.subscription,
        error_type=row.error_type,
        count=row.dead_letters,
        first_at=time(row.first_at),
        last_at=time(row.last_at),
        latest=encode("dl", row.latest),
    )


def dead_message_record(row: MessageRow) -> DeadLetterMessage:
    """Return the record of a dead letter's message; `text` is set if the data is UTF-8."""
    return DeadLetterMessage(
        data=row.data,
        text=_text(row.data),
        attributes=dict(row.attributes),
        ordering_key=row.ordering_key,
        publish_time=time(row.published_at),
    )


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
