"""The service `google.pubsub.v1.Publisher`: topics, publishing, detached subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf import empty_pb2
from google.pubsub_v1 import types

from penstock.access.api_keys import Permission
from penstock.bus.records import StoredSubscription, Topic
from penstock.core.records.record import Page
from penstock.pubsub_wire.calls import WireCaller
from penstock.pubsub_wire.handlers import Method, Unary
from penstock.pubsub_wire.masks import apply_mask
from penstock.pubsub_wire.messages import TopicPb, new_message, topic_of, topic_pb
from penstock.pubsub_wire.names import format_name, parse_name, parse_project
from penstock.pubsub_wire.pages import Listing

SERVICE: Final = "google.pubsub.v1.Publisher"
_IMMUTABLE: Final = frozenset({"name", "state", "satisfies_pzs"})
PublishResponse: Any = types.PublishResponse.pb()
ListTopicsResponse: Any = types.ListTopicsResponse.pb()
ListNames: Any = types.ListTopicSubscriptionsResponse.pb()
ListSnapshotNames: Any = types.ListTopicSnapshotsResponse.pb()
DetachResponse: Any = types.DetachSubscriptionResponse.pb()


def create_topic(caller: WireCaller, pb: Any) -> Any:
    """Create a topic."""
    project, name = parse_name(pb.name, "topics", "name")
    topic = topic_of(pb, name, project)
    return topic_pb(caller.client.topics.add(topic, customer=caller.customer(project)), project)


def update_topic(caller: WireCaller, pb: Any) -> Any:
    """Change the settings of a topic that the mask names."""
    project, name = parse_name(pb.topic.name, "topics", "topic.name")

    def change(before: Topic) -> Topic:
        now = _pb_of(before, project)
        apply_mask(now, pb.topic, pb.update_mask, _IMMUTABLE)
        return topic_of(now, name, project)

    customer = caller.customer(project)
    return topic_pb(caller.client.topics.change(name, change, customer=customer), project)


def _pb_of(topic: Topic, project: str) -> Any:
    made = TopicPb(name=format_name(project, "topics", topic.name), labels=topic.labels)
    made.message_retention_duration.FromTimedelta(topic.retention)
    if topic.schema_settings is not None:
        settings = topic.schema_settings
        made.schema_settings.schema = format_name(project, "schemas", settings.schema)
        made.schema_settings.encoding = 2 if settings.encoding == "binary" else 1
        made.schema_settings.first_revision_id = settings.first_revision_id or ""
        made.schema_settings.last_revision_id = settings.last_revision_id or ""
    return made


def publish(caller: WireCaller, pb: Any) -> Any:
    """Publish messages: all are stored, or none."""
    project, name = parse_name(pb.topic, "topics", "topic")
    messages = [new_message(one) for one in pb.messages]
    return PublishResponse(message_ids=caller.bus(project).publish(name, messages))


def get_topic(caller: WireCaller, pb: Any) -> Any:
    """Return a topic."""
    project, name = parse_name(pb.topic, "topics", "topic")
    return topic_pb(caller.client.topics.get(name, customer=caller.customer(project)), project)


def list_topics(caller: WireCaller, pb: Any) -> Any:
    """List the topics of a project."""
    project = parse_project(pb.project)
    topics = Listing(ListTopicsResponse, "topics", lambda one: topic_pb(one, project))
    return topics.of_project(caller, project, pb, caller.client.topics.list)


def list_topic_subscriptions(caller: WireCaller, pb: Any) -> Any:
    """List the subscriptions of a topic."""
    return _names_of_topic(caller, pb, ListNames, "subscriptions", _attached(caller))


def _attached(caller: WireCaller) -> Callable[..., Page[StoredSubscription]]:
    def read(**filters: Any) -> Page[StoredSubscription]:
        page = caller.client.subscriptions.list(**filters)
        kept = [one for one in page.items if not one.is_detached]
        return Page(items=kept, next_cursor=page.next_cursor)

    return read


def list_topic_snapshots(caller: WireCaller, pb: Any) -> Any:
    """List the snapshots of a topic."""
    read = caller.client.snapshots.list
    return _names_of_topic(caller, pb, ListSnapshotNames, "snapshots", read)


def _names_of_topic(
    caller: WireCaller, pb: Any, response: Any, kind: str, read: Callable[..., Page[Any]]
) -> Any:
    project, name = parse_name(pb.topic, "topics", "topic")
    names = Listing(response, kind, lambda one: format_name(project, kind, one.name))
    return names.page(pb, read, topic=name, customer=caller.customer(project))


def delete_topic(caller: WireCaller, pb: Any) -> Any:
    """Delete a topic; its subscriptions stay."""
    project, name = parse_name(pb.topic, "topics", "topic")
    caller.client.topics.delete(name, customer=caller.customer(project))
    return empty_pb2.Empty()


def detach_subscription(caller: WireCaller, pb: Any) -> Any:
    """Detach a subscription from its topic."""
    project, name = parse_name(pb.subscription, "subscriptions", "subscription")
    caller.client.subscriptions.detach(name, customer=caller.customer(project))
    return DetachResponse()


METHODS: Final[Mapping[str, Method]] = {
    "CreateTopic": Unary(TopicPb, TopicPb, Permission.OPERATE, create_topic),
    "UpdateTopic": Unary(types.UpdateTopicRequest.pb(), TopicPb, Permission.OPERATE, update_topic),
    "Publish": Unary(types.PublishRequest.pb(), PublishResponse, Permission.WORK, publish),
    "GetTopic": Unary(types.GetTopicRequest.pb(), TopicPb, Permission.READ, get_topic),
    "ListTopics": Unary(
        types.ListTopicsRequest.pb(), ListTopicsResponse, Permission.READ, list_topics
    ),
    "ListTopicSubscriptions": Unary(
        types.ListTopicSubscriptionsRequest.pb(),
        ListNames,
        Permission.READ,
        list_topic_subscriptions,
    ),
    "ListTopicSnapshots": Unary(
        types.ListTopicSnapshotsRequest.pb(),
        ListSnapshotNames,
        Permission.READ,
        list_topic_snapshots,
    ),
    "DeleteTopic": Unary(
        types.DeleteTopicRequest.pb(), empty_pb2.Empty, Permission.OPERATE, delete_topic
    ),
    "DetachSubscription": Unary(
        types.DetachSubscriptionRequest.pb(),
        DetachResponse,
        Permission.OPERATE,
        detach_subscription,
    ),
}
