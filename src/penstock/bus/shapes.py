"""JSON representations of topics, subscriptions, messages and deliveries."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from penstock.bus.client.subscriptions import SubscriptionDetail
from penstock.bus.client.topics import MessageDetail, TopicDetail
from penstock.bus.message import Delivery
from penstock.bus.store.backlog import MessageState
from penstock.bus.store.replay import Seek
from penstock.bus.store.topics import Subscription, Topic
from penstock.core.clock import SECOND, iso
from penstock.core.formatting import iso_or_none


def topic_shape(topic: Topic) -> dict[str, Any]:
    """Return the JSON form of a topic."""
    return {
        "name": topic.name,
        "retention_seconds": topic.retention_us // SECOND,
        "created_at": iso(topic.created_at),
        "created_by": topic.created_by,
    }


def topic_detail_shape(detail: TopicDetail) -> dict[str, Any]:
    """Return the JSON form of a topic with the names of its subscriptions."""
    names = [sub.name for sub in detail.subscriptions]
    return {**topic_shape(detail.topic), "subscriptions": names}


def subscription_shape(sub: Subscription) -> dict[str, Any]:
    """Return the JSON form of a subscription's declaration."""
    return {
        "name": sub.name,
        "topic": sub.topic_name,
        "kind": sub.kind,
        "ack_deadline_seconds": sub.ack_deadline_us / SECOND,
        "min_backoff_seconds": sub.min_backoff_us / SECOND,
        "max_backoff_seconds": sub.max_backoff_us / SECOND,
        "max_delivery_attempts": sub.max_attempts,
        "dead_letter_topic": sub.dead_letter_name,
        "retention_seconds": sub.retention_us // SECOND,
        "enable_message_ordering": sub.is_ordered,
        "filter": sub.filter,
        "push": _parsed(sub.push),
        "binding": _parsed(sub.binding),
        "auto_replay": _parsed(sub.auto_replay),
        "replays_max": sub.replays_max,
        "is_paused": sub.is_paused,
        "version": sub.version,
        "created_at": iso(sub.created_at),
        "created_by": sub.created_by,
    }


def subscription_detail_shape(detail: SubscriptionDetail) -> dict[str, Any]:
    """Return the JSON form of a subscription with its backlog and its totals."""
    backlog = detail.backlog
    return {
        "subscription": subscription_shape(detail.subscription),
        "backlog": {
            "ready": backlog.ready,
            "leased": backlog.leased,
            "delayed": backlog.delayed,
            "behind_ordering_key": backlog.behind,
            "oldest_publish_time": iso_or_none(backlog.oldest_at),
        },
        "sums": detail.totals._asdict(),
    }


def delivery_shape(one: Delivery) -> dict[str, Any]:
    """Return the JSON form of a delivered message."""
    return {
        "ack_id": one.ack_id,
        "delivery_attempt": one.attempt,
        "deadline": iso(one.deadline),
        "message": {
            "message_id": one.message_id,
            "data": base64.b64encode(one.data).decode(),
            "attributes": dict(one.attributes),
            "ordering_key": one.ordering_key,
            "publish_time": iso(one.publish_time),
        },
    }


def message_detail_shape(detail: MessageDetail) -> dict[str, Any]:
    """Return the JSON form of a message with its delivery state per subscription."""
    message = detail.message
    return {
        "message_id": str(message.message_id),
        "topic": message.topic_name,
        "data": base64.b64encode(message.data).decode(),
        "attributes": dict(message.attributes),
        "ordering_key": message.ordering_key,
        "publish_time": iso(message.published_at),
        "expires_at": iso(message.expires_at),
        "deliveries": [_delivery_state_shape(place) for place in detail.deliveries],
    }


def seek_shape(seek: Seek) -> dict[str, Any]:
    """Return the JSON form of a seek's result."""
    return {"time": iso(seek.to), "purged": seek.purged, "delivered_again": seek.replayed}


def _delivery_state_shape(place: MessageState) -> dict[str, Any]:
    return {
        "subscription": place.name,
        "state": place.state,
        "round": place.generation,
        "attempts": place.attempts,
        "replays": place.replays,
        "at": iso(place.at),
        "last_error": place.last_error,
    }


def _parsed(text: str | None) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = None if text is None else json.loads(text)
    return found
