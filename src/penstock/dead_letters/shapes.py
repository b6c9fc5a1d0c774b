"""JSON representations of dead letters."""

from __future__ import annotations

import base64
from typing import Any

from penstock.core.clock import iso
from penstock.core.formatting import id_or_none, iso_or_none, parsed
from penstock.core.ids import encode
from penstock.core.records.record import to_json_value
from penstock.core.redact import redact
from penstock.dead_letters.client.dead_letters import DeadLetterDetail, ReplayStep
from penstock.dead_letters.store import DeadLetter, DeadLetterGroup
from penstock.runs.from_rows import run_record


def dead_letter_shape(row: DeadLetter) -> dict[str, Any]:
    """Return the JSON form of a dead letter in a list."""
    return {
        "dead_letter_id": encode("dl", row.dead_letter_id),
        "kind": row.kind,
        "run_id": encode("run", row.subject) if row.kind == "run" else None,
        "message_id": None if row.message_id is None else str(row.message_id),
        "subscription": row.subscription,
        "topic": row.topic,
        "round": row.generation,
        "customer_id": row.customer_id,
        "pipeline_template": row.pipeline,
        "phase": row.phase,
        "processor": row.processor,
        "config_id": id_or_none("cfg", row.config_id),
        "partition": row.partition,
        "correlation_id": row.correlation_id,
        "error_type": row.error_type,
        "error_kind": row.error_kind,
        "error_details": redact(parsed(row.error_details)),
        "attempts": row.attempts,
        "died_at": iso(row.dead_at),
        "status": row.status,
        "replays": row.replays,
        "resolved_at": iso_or_none(row.resolved_at),
        "resolved_by": row.resolved_by,
        "resolution": row.resolution,
    }


def dead_letter_group_shape(group: DeadLetterGroup) -> dict[str, Any]:
    """Return the JSON form of a group of dead letters with the same origin and error type."""
    return {
        "kind": group.kind,
        "pipeline_template": group.pipeline,
        "phase": group.phase,
        "processor": group.processor,
        "subscription": group.subscription,
        "error_type": group.error_type,
        "count": group.dead_letters,
        "first_at": iso(group.first_at),
        "last_at": iso(group.last_at),
        "latest": encode("dl", group.latest),
    }


def dead_letter_detail_shape(detail: DeadLetterDetail) -> dict[str, Any]:
    """Return the JSON form of a dead letter in full; `text` is set if the data is UTF-8."""
    message = None
    if detail.data is not None:
        message = {
            "data": base64.b64encode(detail.data).decode(),
            "text": _text(detail.data),
            "attributes": dict(detail.attributes or {}),
            "ordering_key": detail.ordering_key,
            "publish_time": iso_or_none(detail.publish_time),
        }
    return {
        "dead_letter": dead_letter_shape(detail.dead_letter),
        "run": None if detail.run is None else to_json_value(run_record(detail.run)),
        "message": message,
    }


def replay_shape(replay: ReplayStep) -> dict[str, Any]:
    """Return the JSON form of a replay step's result."""
    return {
        "matched": replay.matched,
        "replayed": [
            {"dead_letter_id": encode("dl", number), "replayed_as": new_id or None}
            for number, new_id in replay.replayed
        ],
        "refused": [
            {"dead_letter_id": encode("dl", one.dead_letter_id), "why": one.why}
            for one in replay.refused
        ],
        "left": replay.left,
        "dry_run": replay.is_dry_run,
        "next_before": id_or_none("dl", replay.next_before),
        "next_at": iso_or_none(replay.next_at),
    }


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
