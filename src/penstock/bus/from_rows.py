"""Conversion of store rows to records of topics, subscriptions, messages and deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from penstock.bus.message import Delivery
from penstock.bus.records import (
    AutoReplay,
    Backlog,
    DeliveryCounters,
    DeliveryState,
    MessageDetail,
    PushSettings,
    ReceivedMessage,
    SchemaSettings,
    SeekResult,
    StoredMessage,
    StoredSchema,
    StoredSnapshot,
    StoredSubscription,
    StoredTopic,
    SubscriptionBinding,
    SubscriptionDetail,
    SubscriptionKind,
    TopicDetail,
)
from penstock.bus.store.backlog import BacklogRow, DeliveryCountersRow, MessageState
from penstock.bus.store.messages import MessageRow, attributes_of
from penstock.bus.store.replay import Seek
from penstock.bus.store.schemas import SchemaRow
from penstock.bus.store.snapshots import SnapshotRow
from penstock.bus.store.topics import SubscriptionRow, TopicRow
from penstock.core.records.record import decode_record, from_row, seconds, time, time_or_none

T = TypeVar("T")

_KINDS: dict[str, SubscriptionKind] = {"pull": "pull", "push": "push", "bound": "bound"}


def topic_record(row: TopicRow) -> StoredTopic:
    """Convert a topic row to its public record."""
    return StoredTopic(
        name=row.name,
        retention=seconds(row.retention_us),
        created_at=time(row.created_at),
        created_by=row.created_by,
        labels=attributes_of(row.labels),
        schema_settings=_parsed(row.schema_settings, SchemaSettings),
    )


def topic_detail_record(row: TopicRow, subscriptions: Iterable[SubscriptionRow]) -> TopicDetail:
    """Return the record of a topic with the names of its subscriptions."""
    return TopicDetail(
        name=row.name,
        retention=seconds(row.retention_us),
        created_at=time(row.created_at),
        created_by=row.created_by,
        labels=attributes_of(row.labels),
        schema_settings=_parsed(row.schema_settings, SchemaSettings),
        subscriptions=[one.name for one in subscriptions],
    )


def subscription_record(
    row: SubscriptionRow, waiting: BacklogRow | None = None
) -> StoredSubscription:
    """Convert a subscription row, and its backlog if it was read, to its public record."""
    converted: dict[str, Any] = {
        "topic": row.topic_name,
        "kind": _KINDS[row.kind],
        "ack_deadline": seconds(row.ack_deadline_us),
        "min_backoff": seconds(row.min_backoff_us),
        "max_backoff": seconds(row.max_backoff_us),
        "dead_letter_topic": row.dead_letter_name,
        "retention": seconds(row.retention_us),
        "push": _parsed(row.push, PushSettings),
        "binding": _parsed(row.binding, SubscriptionBinding),
        "auto_replay": _parsed(row.auto_replay, AutoReplay),
        "created_at": time(row.created_at),
        "labels": attributes_of(row.labels),
        "expires_after": None if row.expires_after_us is None else seconds(row.expires_after_us),
        "is_detached": row.detached_at is not None,
        "backlog": None if waiting is None else _backlog(waiting),
    }
    return from_row(StoredSubscription, row, converted)


def subscription_detail_record(
    row: SubscriptionRow, waiting: BacklogRow, totals: DeliveryCountersRow
) -> SubscriptionDetail:
    """Return the record of a subscription with its backlog and its counters."""
    return SubscriptionDetail(
        subscription=subscription_record(row),
        backlog=_backlog(waiting),
        totals=DeliveryCounters(**totals._asdict()),
    )


def _backlog(waiting: BacklogRow) -> Backlog:
    return Backlog(
        ready=waiting.ready,
        leased=waiting.leased,
        delayed=waiting.delayed,
        behind=waiting.behind,
        oldest_at=time_or_none(waiting.oldest_at),
    )


def received_record(one: Delivery) -> ReceivedMessage:
    """Return the record of a leased message."""
    return ReceivedMessage(
        ack_id=one.ack_id,
        attempt=one.attempt,
        deadline=time(one.deadline),
        message=StoredMessage(
            message_id=one.message_id,
            data=one.data,
            attributes=dict(one.attributes),
            ordering_key=one.ordering_key,
            publish_time=time(one.publish_time),
        ),
    )


def message_record(row: MessageRow, states: Sequence[MessageState]) -> MessageDetail:
    """Return the record of a message with its state in each subscription."""
    return MessageDetail(
        message_id=str(row.message_id),
        data=row.data,
        attributes=dict(row.attributes),
        ordering_key=row.ordering_key,
        publish_time=time(row.published_at),
        topic=row.topic_name,
        expires_at=time(row.expires_at),
        deliveries=[
            DeliveryState(
                subscription=one.name,
                state=one.state,
                generation=one.generation,
                attempts=one.attempts,
                replays=one.replays,
                at=time(one.at),
                last_error=one.last_error,
            )
            for one in states
        ],
    )


def snapshot_record(row: SnapshotRow) -> StoredSnapshot:
    """Convert a snapshot row to its public record."""
    return StoredSnapshot(
        name=row.name,
        topic=row.topic_name,
        taken_at=time(row.taken_at),
        expires_at=time(row.expires_at),
        labels=attributes_of(row.labels),
    )


def schema_record(row: SchemaRow) -> StoredSchema:
    """Return the record of a revision of a schema."""
    return StoredSchema(
        name=row.name,
        definition=row.definition,
        kind="avro" if row.kind == "avro" else "protobuf",
        revision_id=row.revision_id,
        created_at=time(row.created_at),
    )


def seek_record(seek: Seek) -> SeekResult:
    """Return the record of a finished seek."""
    return SeekResult(time=time(seek.to), purged=seek.purged, delivered_again=seek.replayed)


def _parsed(text: str | None, kind: type[T]) -> T | None:
    return None if text is None else decode_record(text.encode(), kind)
