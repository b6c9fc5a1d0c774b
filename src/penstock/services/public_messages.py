"""Public form of messages that statements of the store announce with internal numbers.

Runs and alerts are announced where they are written, in one statement with the change. Subscribers
receive public ids and the customer's name; this module fills in both, batch by batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.access.store.registry import customer_names
from penstock.alerts.from_rows import alert_record
from penstock.audit.rows import AlertRow, OutboxMessage
from penstock.audit.store.alerts import alert_rows
from penstock.audit.store.journal import SEALS_TOPIC
from penstock.bus.cloudevents import event_attributes
from penstock.bus.store.deliveries import LeasedDelivery
from penstock.core.clock import DAY
from penstock.core.formatting import id_or_none
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.core.records.record import time, to_json_value
from penstock.db.store import Tx
from penstock.flows.advance.announcements import run_completion_message
from penstock.flows.store.completions import run_completions
from penstock.monitoring.verify.records import SealedBlock

RUNS_TOPIC: Final = "penstock.runs"
ALERTS_TOPIC: Final = "penstock.alerts"
ENDED_RUN: Final = '{"ended_run":'
"""Beginning of the message about a completed run without a flow (statement `run_finish_many`)."""


class _EndedRun(msgspec.Struct):
    ended_run: int


def public_messages(tx: Tx, messages: Sequence[OutboxMessage]) -> list[OutboxMessage]:
    """Return the messages in their public form; one about a deleted alert or run is left out."""
    payloads = {
        one.outbox_id: msgspec.json.decode(one.payload)
        for one in messages
        if one.topic in (RUNS_TOPIC, ALERTS_TOPIC, SEALS_TOPIC) or one.payload.startswith(ENDED_RUN)
    }
    if not payloads:
        return list(messages)
    keys = {CustomerKey(p["customer"]) for p in payloads.values() if "customer" in p}
    names = customer_names(tx, sorted(keys)) if keys else {}
    alert_ids = {p["alert_id"] for p in payloads.values() if "alert_id" in p}
    alerts = alert_rows(tx, sorted(alert_ids)) if alert_ids else {}
    ended = {key: p["ended_run"] for key, p in payloads.items() if "ended_run" in p}
    since = min((one.created_at for one in messages if one.outbox_id in ended), default=0)
    completions = run_completions(tx, ended.values(), since) if ended else {}
    made = []
    for one in messages:
        payload = payloads.get(one.outbox_id)
        if payload is None:
            made.append(one)
        elif one.outbox_id in ended:
            if seen := completions.get(ended[one.outbox_id]):
                made.append(_with_payload(one, run_completion_message(seen)))
        elif one.topic == RUNS_TOPIC:
            made.append(_with_payload(one, _run(payload, names)))
        elif one.topic == SEALS_TOPIC:
            made.append(_with_payload(one, _seal(payload)))
        elif payload["alert_id"] in alerts:
            made.append(_with_payload(one, _alert(payload, alerts[payload["alert_id"]])))
    return made


def completions_announced(
    tx: Tx, topic: str, leased: Sequence[LeasedDelivery]
) -> list[LeasedDelivery]:
    """Return messages of a system topic; an internal one about a completed run in its public form.

    A publisher of the release before sends those as they are (rolling upgrade).
    """
    ended = {one.message_id: run for one in leased if (run := _ended_run(one.data)) is not None}
    since = min(one.published_at for one in leased) - DAY
    seen = run_completions(tx, ended.values(), since)
    made = []
    for one in leased:
        found = seen.get(ended.get(one.message_id, -1))
        if found is None or f"{found.pipeline}.{found.phase}.complete" != topic:
            made.append(one)
            continue
        body = run_completion_message(found)
        number = int(one.attributes.get("ce-id", one.message_id))
        attributes = event_attributes(topic, number, one.published_at, body)
        data = msgspec.json.encode(body)
        made.append(one._replace(data=data, attributes=attributes | one.attributes))
    return made


def is_internal(data: bytes) -> bool:
    """Whether a message about a completed run was published in its internal form."""
    return data.startswith(ENDED_RUN.encode())


def _ended_run(data: bytes) -> int | None:
    if not is_internal(data):
        return None
    try:
        return msgspec.json.decode(data, type=_EndedRun).ended_run
    except msgspec.DecodeError:
        return None


def _run(payload: dict[str, Any], names: dict[CustomerKey, str]) -> dict[str, Any]:
    return {
        "run_id": encode("run", payload["run_id"]),
        "config_id": id_or_none("cfg", payload["config_id"]),
        "customer_id": names[CustomerKey(payload["customer"])],
        "priority": payload["priority"],
    }


def _seal(payload: dict[str, Any]) -> dict[str, Any]:
    block = SealedBlock(
        block=payload["block"],
        entries=payload["entries"],
        head=payload["head"],
        sealed_at=time(payload["at"]),
    )
    return dict(to_json_value(block))


def _alert(payload: dict[str, Any], row: AlertRow) -> dict[str, Any]:
    """Return the public record of an alert as it was: firing, or resolved."""
    if payload["state"] != row.state:
        row = row._replace(state=payload["state"], closed_at=None, closed_by=None)
    return dict(to_json_value(alert_record(row)))


def _with_payload(one: OutboxMessage, payload: dict[str, Any]) -> OutboxMessage:
    return one._replace(payload=msgspec.json.encode(payload).decode())
