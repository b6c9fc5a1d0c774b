"""Messages, topics, subscriptions, snapshots and schemas as Google's types, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from google.pubsub_v1 import types

from penstock.bus.message import SOURCE_SUBSCRIPTION_PROJECT, Delivery, NewMessage
from penstock.bus.records import (
    OidcSettings,
    PushSettings,
    SchemaSettings,
    StoredSchema,
    StoredSnapshot,
    StoredSubscription,
    StoredTopic,
    Subscription,
    Topic,
    UnwrappedSettings,
)
from penstock.core.clock import DAY, SECOND
from penstock.core.errors import InvalidInput
from penstock.pubsub_wire.errors import unsupported
from penstock.pubsub_wire.names import format_name, format_topic, parse_name

PULL_DEADLINE_DEFAULT: Final = 10
EXPIRATION_DEFAULT: Final = timedelta(days=31)
RETENTION_DEFAULT: Final = timedelta(days=7)
ATTEMPTS: Final = (5, 100)
NO_BACKOFF: Final = timedelta(0)
BACKOFF_DEFAULT: Final = (timedelta(seconds=10), timedelta(seconds=600))

TopicPb: Any = types.Topic.pb()
SubscriptionPb: Any = types.Subscription.pb()
SnapshotPb: Any = types.Snapshot.pb()
SchemaPb: Any = types.Schema.pb()
ReceivedPb: Any = types.ReceivedMessage.pb()


def new_message(pb: Any) -> NewMessage:
    """Return a message to publish."""
    return NewMessage(
        data=pb.data, attributes=dict(pb.attributes), ordering_key=pb.ordering_key or None
    )


def received_message(one: Delivery, project: str) -> Any:
    """Return a delivery as Google's type."""
    made = ReceivedPb(ack_id=one.ack_id)
    message = made.message
    message.data = one.data
    message.attributes.update(one.attributes)
    if SOURCE_SUBSCRIPTION_PROJECT in one.attributes:
        message.attributes[SOURCE_SUBSCRIPTION_PROJECT] = project
    message.message_id = one.message_id
    message.publish_time.FromMicroseconds(one.publish_time)
    if one.ordering_key:
        message.ordering_key = one.ordering_key
    if one.has_dead_letters:
        made.delivery_attempt = one.attempt
    return made


def delivery_size(one: Delivery) -> int:
    """Return the approximate size of an encoded delivery in bytes."""
    return len(one.data) + sum(len(k) + len(v) for k, v in one.attributes.items()) + 128


# -- topics ---------------------------------------------------------------------------------------


def topic_pb(topic: StoredTopic, project: str) -> Any:
    """Return a topic as Google's type."""
    made = TopicPb(name=format_name(project, "topics", topic.name), labels=topic.labels)
    made.message_retention_duration.FromTimedelta(topic.retention)
    settings = topic.schema_settings
    if settings is not None:
        made.schema_settings.schema = format_name(project, "schemas", settings.schema)
        made.schema_settings.encoding = 2 if settings.encoding == "binary" else 1
        made.schema_settings.first_revision_id = settings.first_revision_id or ""
        made.schema_settings.last_revision_id = settings.last_revision_id or ""
    made.state = int(types.Topic.State.ACTIVE)
    return made


def topic_of(pb: Any, name: str, project: str) -> Topic:
    """Return the topic that Google's type describes."""
    _refuse(pb, "kms_key_name", "The database's own encryption applies.")
    _refuse(pb, "ingestion_data_source_settings", "Publish from the source instead.")
    _refuse(pb, "message_transforms", "Transform messages in a consumer.")
    if pb.message_storage_policy.allowed_persistence_regions:
        raise unsupported("message_storage_policy", "Messages are stored in Penstock's database.")
    retention = RETENTION_DEFAULT
    if pb.HasField("message_retention_duration"):
        retention = _duration(pb.message_retention_duration, "message_retention_duration")
    return Topic(
        name=name,
        retention=retention,
        labels=dict(pb.labels),
        schema_settings=_schema_settings(pb, project),
    )


def _schema_settings(pb: Any, project: str) -> SchemaSettings | None:
    if not pb.HasField("schema_settings"):
        return None
    given = pb.schema_settings
    schema = parse_name(given.schema, "schemas", "schema_settings.schema")
    if schema.project != project:
        raise InvalidInput("schema_settings.schema", f"a schema of {project}", given.schema)
    return SchemaSettings(
        schema=schema.name,
        encoding="binary" if given.encoding == 2 else "json",
        first_revision_id=given.first_revision_id or None,
        last_revision_id=given.last_revision_id or None,
    )


# -- subscriptions --------------------------------------------------------------------------------


def subscription_pb(sub: StoredSubscription | Subscription, project: str) -> Any:
    """Return a subscription as Google's type."""
    made = SubscriptionPb(
        name=format_name(project, "subscriptions", sub.name),
        topic=format_topic(project, sub.topic),
        ack_deadline_seconds=int(sub.ack_deadline.total_seconds()),
        retain_acked_messages=sub.keeps_acked,
        labels=sub.labels,
        enable_message_ordering=sub.is_ordered,
        filter=sub.filter or "",
        enable_exactly_once_delivery=sub.is_exactly_once,
    )
    made.message_retention_duration.FromTimedelta(sub.retention)
    made.expiration_policy.SetInParent()
    if sub.expires_after is not None:
        made.expiration_policy.ttl.FromTimedelta(sub.expires_after)
    if sub.dead_letter_topic is not None:
        made.dead_letter_policy.dead_letter_topic = format_topic(project, sub.dead_letter_topic)
        made.dead_letter_policy.max_delivery_attempts = sub.max_attempts
    if sub.max_backoff > NO_BACKOFF:
        made.retry_policy.minimum_backoff.FromTimedelta(sub.min_backoff)
        made.retry_policy.maximum_backoff.FromTimedelta(sub.max_backoff)
    made.push_config.SetInParent()
    if sub.push is not None:
        _put_push(made.push_config, sub.push)
    if isinstance(sub, StoredSubscription):
        made.detached = sub.is_detached
        made.state = int(types.Subscription.State.ACTIVE)
    return made


def _put_push(pb: Any, push: PushSettings) -> None:
    pb.push_endpoint = push.endpoint
    if push.oidc is not None:
        pb.oidc_token.service_account_email = push.oidc.email
        pb.oidc_token.audience = push.oidc.audience or ""
    if push.unwrapped is not None:
        pb.no_wrapper.write_metadata = push.unwrapped.writes_metadata
    else:
        pb.pubsub_wrapper.SetInParent()


def subscription_of(pb: Any, before: Subscription, project: str) -> Subscription:
    """Return a subscription with the settings of Google's type; settings that it lacks stay
    unchanged.
    """
    _refuse(pb, "bigquery_config", "Write to BigQuery from a consumer.")
    _refuse(pb, "cloud_storage_config", "Write to files from a consumer.")
    _refuse(pb, "bigtable_config", "Write to Bigtable from a consumer.")
    _refuse(pb, "message_transforms", "Transform messages in a consumer.")
    least, most = _backoff(pb)
    retention = RETENTION_DEFAULT
    if pb.HasField("message_retention_duration"):
        retention = _duration(pb.message_retention_duration, "message_retention_duration")
    dead, attempts = _dead_letters(pb, project, before)
    push = push_of(pb.push_config, before.push)
    kind = "push" if push is not None else "bound" if before.binding is not None else "pull"
    changes: dict[str, Any] = {
        "kind": kind,
        "push": push,
        "ack_deadline": timedelta(seconds=pb.ack_deadline_seconds or PULL_DEADLINE_DEFAULT),
        "min_backoff": least,
        "max_backoff": most,
        "max_attempts": attempts,
        "dead_letter_topic": dead,
        "has_dead_letters": dead is not None,
        "retention": retention,
        "filter": pb.filter or None,
        "is_ordered": pb.enable_message_ordering,
        "is_exactly_once": pb.enable_exactly_once_delivery,
        "keeps_acked": pb.retain_acked_messages,
        "labels": dict(pb.labels),
        "expires_after": _expiration(pb),
    }
    return msgspec.structs.replace(before, **changes)


def push_of(pb: Any, before: PushSettings | None) -> PushSettings | None:
    """Return the push settings of Google's type; None without an endpoint."""
    if not pb.push_endpoint:
        return None
    oidc = None
    if pb.oidc_token.service_account_email:
        audience = pb.oidc_token.audience or None
        oidc = OidcSettings(email=pb.oidc_token.service_account_email, audience=audience)
    unwrapped = None
    if pb.WhichOneof("wrapper") == "no_wrapper":
        unwrapped = UnwrappedSettings(writes_metadata=pb.no_wrapper.write_metadata)
    return PushSettings(
        endpoint=pb.push_endpoint,
        oidc=oidc,
        signing_secrets=[] if before is None else before.signing_secrets,
        unwrapped=unwrapped,
    )


def _backoff(pb: Any) -> tuple[timedelta, timedelta]:
    """Return the backoff; without a retry policy messages are redelivered immediately."""
    if not pb.HasField("retry_policy"):
        return NO_BACKOFF, NO_BACKOFF
    least, most = BACKOFF_DEFAULT
    given = pb.retry_policy
    if given.HasField("minimum_backoff"):
        least = _duration(given.minimum_backoff, "retry_policy.minimum_backoff")
    if given.HasField("maximum_backoff"):
        most = _duration(given.maximum_backoff, "retry_policy.maximum_backoff")
    if most < least:
        raise InvalidInput("retry_policy.maximum_backoff", f"at least {least}", most)
    return least, most


def _dead_letters(pb: Any, project: str, before: Subscription) -> tuple[str | None, int]:
    given = pb.dead_letter_policy
    if not pb.HasField("dead_letter_policy") or not given.dead_letter_topic:
        return None, before.max_attempts
    topic = parse_name(given.dead_letter_topic, "topics", "dead_letter_policy.dead_letter_topic")
    if topic.project != project:
        expected = f"a topic of the subscription's project {project}"
        raise InvalidInput(
            "dead_letter_policy.dead_letter_topic", expected, given.dead_letter_topic
        )
    attempts = given.max_delivery_attempts or ATTEMPTS[0]
    kept = before.dead_letter_topic is not None and attempts == before.max_attempts
    if not kept and not ATTEMPTS[0] <= attempts <= ATTEMPTS[1]:
        expected = f"{ATTEMPTS[0]} to {ATTEMPTS[1]}"
        raise InvalidInput("dead_letter_policy.max_delivery_attempts", expected, attempts)
    return topic.name, attempts


def _expiration(pb: Any) -> timedelta | None:
    if not pb.HasField("expiration_policy"):
        return EXPIRATION_DEFAULT
    if not pb.expiration_policy.HasField("ttl"):
        return None
    ttl = _duration(pb.expiration_policy.ttl, "expiration_policy.ttl")
    if ttl < timedelta(microseconds=DAY):
        raise InvalidInput("expiration_policy.ttl", "at least one day", ttl)
    return ttl


def _duration(pb: Any, field: str) -> timedelta:
    if not -(10**10) < pb.seconds < 10**10:
        raise InvalidInput(field, "a duration of at most 10,000 years", pb.seconds)
    return timedelta(microseconds=pb.seconds * SECOND + pb.nanos // 1_000)


def _refuse(pb: Any, field: str, why: str) -> None:
    """Raise if a field is set that the bus does not support."""
    value = getattr(pb, field)
    descriptor = pb.DESCRIPTOR.fields_by_name[field]
    is_message = descriptor.message_type is not None and not hasattr(value, "append")
    if pb.HasField(field) if is_message else value:
        raise unsupported(field, why)


# -- snapshots and schemas ------------------------------------------------------------------------


def snapshot_pb(snapshot: StoredSnapshot, project: str) -> Any:
    """Return a snapshot as Google's type."""
    made = SnapshotPb(
        name=format_name(project, "snapshots", snapshot.name),
        topic=format_topic(project, snapshot.topic),
        labels=snapshot.labels,
    )
    made.expire_time.FromDatetime(snapshot.expires_at.astimezone(UTC).replace(tzinfo=None))
    return made


def time_of(pb: Any, field: str) -> datetime:
    """Convert a protobuf timestamp; raise InvalidInput if it is out of range."""
    try:
        return datetime.fromtimestamp(pb.seconds, UTC) + timedelta(microseconds=pb.nanos // 1_000)
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(field, "a time between the years 1 and 9999", pb.seconds) from None


def schema_pb(schema: StoredSchema, project: str, *, is_full: bool = True) -> Any:
    """Return a revision of a schema as Google's type; without its definition unless `is_full`."""
    made = SchemaPb(
        name=format_name(project, "schemas", schema.name),
        type_=2 if schema.kind == "avro" else 1,
        definition=schema.definition if is_full else "",
        revision_id=schema.revision_id,
    )
    made.revision_create_time.FromDatetime(schema.created_at.astimezone(UTC).replace(tzinfo=None))
    return made
