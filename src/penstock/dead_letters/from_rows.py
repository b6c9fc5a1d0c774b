"""Records of dead letters from the rows of the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.bus.store.messages import MessageRow
from penstock.core.clock import HOUR, Micros
from penstock.core.formatting import id_or_none, parsed
from penstock.core.ids import encode
from penstock.core.records.record import time, time_or_none
from penstock.core.redact import redact, redact_text
from penstock.dead_letters.group_name import GroupKey, group_name
from penstock.dead_letters.records import (
    DeadLetter,
    DeadLetterAttempt,
    DeadLetterGroup,
    DeadLetterKind,
    DeadLetterMessage,
)
from penstock.dead_letters.store import AttemptRow, DeadLetterGroupRow, DeadLetterRow
from penstock.runs.attempt_result import error_class
from penstock.runs.fingerprint import error_text, fingerprint
from penstock.runs.rows import RunRow

BUCKETS: Final = 24
"""Number of most recent hours for which a group has counts."""
_KINDS: dict[str, DeadLetterKind] = {"run": "run", "delivery": "delivery"}


def dead_letter_record(row: DeadLetterRow) -> DeadLetter:
    """Convert a dead-letter row to its public record."""
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


def attempt_record(row: AttemptRow) -> DeadLetterAttempt:
    """Return the record of a failed attempt of a delivery."""
    return DeadLetterAttempt(
        attempt=row.attempt,
        at=time(row.at),
        error_type=row.error_type,
        error=redact_text(row.error),
        run_id=None,
        service=row.service,
        revision=row.revision,
    )


def run_attempt_records(rows: Iterable[RunRow]) -> list[DeadLetterAttempt]:
    """Return the records of the failed attempts of a run."""
    return [
        DeadLetterAttempt(
            attempt=row.attempt,
            at=time(row.finished_at),
            error_type=row.error_type,
            error=redact_text(error_text(row.error_details)),
            run_id=encode("run", row.run_id),
            service=None,
            revision=None,
        )
        for row in rows
        if row.error_type is not None and row.finished_at is not None
    ]


def group_records(
    rows: Iterable[DeadLetterGroupRow], now: Micros, most: int
) -> list[DeadLetterGroup]:
    """Return a record for each origin and error type, the largest group first; at most `most`."""
    groups: dict[tuple[str | None, ...], list[DeadLetterGroupRow]] = {}
    for row in rows:
        groups.setdefault(row[:6], []).append(row)
    largest = sorted(groups.values(), key=_size_and_latest, reverse=True)[:most]
    return [_group_record(parts, now // HOUR) for parts in largest]


def _size_and_latest(parts: Sequence[DeadLetterGroupRow]) -> tuple[int, int]:
    return sum(one.dead_letters for one in parts), max(one.latest for one in parts)


def _group_record(parts: Sequence[DeadLetterGroupRow], this_hour: int) -> DeadLetterGroup:
    newest = max(parts, key=lambda one: one.latest)
    example = error_text(newest.details)
    buckets = [0] * BUCKETS
    for one in parts:
        if 0 <= (back := this_hour - one.hour) < BUCKETS:
            buckets[-1 - back] += one.dead_letters
    texts = {error_text(details) for details in {one.details for one in parts}}
    return DeadLetterGroup(
        kind=_KINDS[newest.kind],
        pipeline=newest.pipeline,
        phase=newest.phase,
        processor=newest.processor,
        subscription=newest.subscription,
        error_type=newest.error_type,
        count=sum(one.dead_letters for one in parts),
        first_at=time(min(one.first_at for one in parts)),
        last_at=time(max(one.last_at for one in parts)),
        latest=encode("dl", newest.latest),
        error_kind=newest.error_kind,
        example=redact_text(example),
        fingerprint=fingerprint(newest.error_type, example),
        fingerprints=len({fingerprint(newest.error_type, text) for text in texts}),
        buckets=buckets,
        group=group_name(GroupKey._make(newest[:6])),
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
