"""Publish outbox rows to topics and their subscriptions.

Called inside the transaction that deletes the rows, so that every row is published exactly once. A
topic without subscriptions is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from penstock.audit.rows import OutboxMessage
from penstock.bus.cloudevents import event_attributes
from penstock.bus.message import NewMessage
from penstock.bus.store.messages import attributes_of, message_publish_to
from penstock.bus.store.topics import topic_open_find
from penstock.db.store import Tx


def outbox_publish(tx: Tx, messages: Sequence[OutboxMessage]) -> set[str]:
    """Publish outbox rows to system topics. Return the channels to wake."""
    wake: set[str] = set()
    for name, rows in groupby(sorted(messages, key=lambda m: (m.topic, m.outbox_id)), _topic):
        topic = topic_open_find(tx, name)
        if topic is not None and topic.subscribers:
            wake |= message_publish_to(tx, topic, [_outgoing(row) for row in rows]).wake
    return wake


def _topic(message: OutboxMessage) -> str:
    return message.topic


def _outgoing(row: OutboxMessage) -> NewMessage:
    payload = msgspec.json.decode(row.payload)
    known = payload if isinstance(payload, dict) else {}
    attributes = event_attributes(row.topic, row.outbox_id, row.created_at, known)
    return NewMessage(
        data=row.payload.encode(),
        attributes=attributes | attributes_of(row.attributes),
        ordering_key=row.ordering_key,
    )
