"""Incoming messages, stored exactly once; unusable ones become dead letters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.bus.message import NewMessage, TopicSpec
from penstock.bus.store.messages import Published, message_publish_to
from penstock.bus.store.topics import (
    SYSTEM,
    OpenTopic,
    topic_declare,
    topic_open_find,
    topic_open_named,
)
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.flows.store.logs import dead_letter_put_report


def topic_for_incoming(
    tx: Tx, name: str, actor: str, customer_key: CustomerKey = SYSTEM
) -> OpenTopic:
    """Return the topic that messages are published to; create it if it is missing."""
    topic = topic_open_find(tx, name, customer_key)
    if topic is None:
        topic_declare(tx, TopicSpec(name=name), customer_key, actor)
        topic = topic_open_named(tx, name, customer_key)
    return topic


def incoming_publish(tx: Tx, topic: OpenTopic, messages: Sequence[NewMessage]) -> Published:
    """Publish messages with dedupe ids, so that a repeated delivery has no effect."""
    done = message_publish_to(tx, topic, messages)
    if done.wake:
        tx.wake(sorted(done.wake))
    return done


def unusable_keep(
    tx: Tx, topic: OpenTopic, message: NewMessage, error_type: str, detail: Mapping[str, Any]
) -> None:
    """Store a message that cannot be published as a dead letter."""
    done = incoming_publish(tx, topic, [message])
    if not done.new:
        return
    dead_letter_put_report(
        tx,
        {
            "customer": topic.customer_key,
            "partition": None,
            "correlation_id": None,
            "error_type": error_type,
            "error_details": json.dumps({**detail, "copy": done.message_ids[0]}),
        },
    )
