"""The service `google.pubsub.v1.Subscriber`, except for streams: subscriptions, pull, snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import empty_pb2
from google.pubsub_v1 import types

from penstock.access.api_keys import Permission
from penstock.bus import rules
from penstock.bus.message import Delivery
from penstock.bus.push.push_config import parse_push
from penstock.bus.records import NewSnapshot, Subscription
from penstock.bus.store.topics import channel
from penstock.core.errors import InvalidInput
from penstock.core.records.record import to_json_value
from penstock.pubsub_wire.calls import WireCaller
from penstock.pubsub_wire.handlers import FrontEnd, Method, Streaming, Unary, WaitingUnary
from penstock.pubsub_wire.masks import apply_mask
from penstock.pubsub_wire.messages import (
    SnapshotPb,
    SubscriptionPb,
    push_of,
    received_message,
    snapshot_pb,
    subscription_of,
    subscription_pb,
    time_of,
)
from penstock.pubsub_wire.names import parse_name, parse_project
from penstock.pubsub_wire.pages import Listing
from penstock.pubsub_wire.settling import acknowledge, check_pullable, modify_ack_deadline
from penstock.pubsub_wire.streams import streaming_pull
from penstock.server.polling.poll_hub import PollKey

SERVICE: Final = "google.pubsub.v1.Subscriber"
PULL_WAIT: Final = 20.0
"""Seconds that a pull waits for the first message, at most until shortly before its deadline."""
PULL_MARGIN: Final = 1.0
PULL_BYTES: Final = 10_000_000
_IMMUTABLE: Final = frozenset(
    {"name", "topic", "filter", "enable_message_ordering", "detached", "state",
     "topic_message_retention_duration"}
)  # fmt: skip
ListResponse: Any = types.ListSubscriptionsResponse.pb()
ListSnapshotsResponse: Any = types.ListSnapshotsResponse.pb()
PullResponse: Any = types.PullResponse.pb()
SeekResponse: Any = types.SeekResponse.pb()


def _checked(caller: WireCaller, sub: Subscription) -> Subscription:
    """Return a subscription whose endpoint the egress rules allow."""
    if sub.push is not None:
        parse_push(to_json_value(sub.push), caller.rules, "push_config")
    return sub


def create_subscription(caller: WireCaller, pb: Any) -> Any:
    """Create a subscription."""
    project, name = parse_name(pb.name, "subscriptions", "name")
    topic = parse_name(pb.topic, "topics", "topic")
    if topic.project != project:
        raise InvalidInput("topic", f"a topic of the same project {project}", pb.topic)
    wanted = subscription_of(pb, Subscription(name=name, topic=topic.name), project)
    customer = caller.customer(project)
    made = caller.client.subscriptions.add(_checked(caller, wanted), customer=customer)
    return subscription_pb(made, project)


def update_subscription(caller: WireCaller, pb: Any) -> Any:
    """Change the settings of a subscription that the mask names."""
    project, name = parse_name(pb.subscription.name, "subscriptions", "subscription.name")

    def change(before: Subscription) -> Subscription:
        now = subscription_pb(before, project)
        apply_mask(now, pb.subscription, pb.update_mask, _IMMUTABLE)
        return _checked(caller, subscription_of(now, before, project))

    customer = caller.customer(project)
    made = caller.client.subscriptions.change(name, change, customer=customer)
    return subscription_pb(made, project)


def get_subscription(caller: WireCaller, pb: Any) -> Any:
    """Return a subscription."""
    project, name = parse_name(pb.subscription, "subscriptions", "subscription")
    found = caller.client.subscriptions.get(name, customer=caller.customer(project))
    return subscription_pb(found.subscription, project)


def list_subscriptions(caller: WireCaller, pb: Any) -> Any:
    """List the subscriptions of a project."""
    project = parse_project(pb.project)
    found = Listing(ListResponse, "subscriptions", lambda one: subscription_pb(one, project))
    return found.of_project(caller, project, pb, caller.client.subscriptions.list)


def delete_subscription(caller: WireCaller, pb: Any) -> Any:
    """Delete a subscription."""
    project, name = parse_name(pb.subscription, "subscriptions", "subscription")
    caller.client.subscriptions.delete(name, customer=caller.customer(project))
    return empty_pb2.Empty()


def modify_push_config(caller: WireCaller, pb: Any) -> Any:
    """Set the endpoint of a subscription; without one it becomes a pull subscription."""
    project, name = parse_name(pb.subscription, "subscriptions", "subscription")

    def change(before: Subscription) -> Subscription:
        now = subscription_pb(before, project)
        now.push_config.CopyFrom(pb.push_config)
        push_of(now.push_config, before.push)
        return _checked(caller, subscription_of(now, before, project))

    caller.client.subscriptions.change(name, change, customer=caller.customer(project))
    return empty_pb2.Empty()


# -- pull -----------------------------------------------------------------------------------------


async def pull(front: FrontEnd, caller: WireCaller, pb: Any, context: Any) -> Any:
    """Lease messages; if none is ready, wait for the first unless `return_immediately` is set."""
    project, name = parse_name(pb.subscription, "subscriptions", "subscription")
    if pb.max_messages < 1:
        raise InvalidInput("max_messages", "at least 1", pb.max_messages)
    most = min(pb.max_messages, rules.BATCH_MAX)
    number: list[int] = []

    def attempt() -> list[Delivery]:
        if number:
            front.check_again(caller)
        sub, found = caller.bus(project).pull_bounded(
            name, max_messages=most, max_bytes=PULL_BYTES, deadline_us=None
        )
        check_pullable(sub)
        number[:] = [sub.subscription_key]
        return found

    def release(found: list[Delivery]) -> None:
        if found:
            caller.bus(project).release(name, [one.ack_id for one in found])

    found = await front.lease(attempt, release)
    left = context.time_remaining()
    wait = PULL_WAIT if left is None else min(PULL_WAIT, left - PULL_MARGIN)
    if not found and not pb.return_immediately and wait > 0:
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        context.add_done_callback(lambda _: gone.cancelled() or gone.cancel())
        question = PollKey(channel(number[0]), customer=project, keep_listening=False)  # type: ignore[arg-type]
        found = await front.waiting.until(
            question, wait, lambda: front.lease(attempt, release), gone
        )
    return PullResponse(received_messages=[received_message(one, project) for one in found])


# -- snapshots and seeks --------------------------------------------------------------------------


def create_snapshot(caller: WireCaller, pb: Any) -> Any:
    """Take a snapshot of a subscription."""
    project, name = parse_name(pb.name, "snapshots", "name")
    sub = parse_name(pb.subscription, "subscriptions", "subscription")
    if sub.project != project:
        expected = f"a subscription of project {project}"
        raise InvalidInput("subscription", expected, pb.subscription)
    wanted = NewSnapshot(name=name, subscription=sub.name, labels=dict(pb.labels))
    made = caller.client.snapshots.create(wanted, customer=caller.customer(project))
    return snapshot_pb(made, project)


def update_snapshot(caller: WireCaller, pb: Any) -> Any:
    """Change the labels or the expiry of a snapshot."""
    project, name = parse_name(pb.snapshot.name, "snapshots", "snapshot.name")

    def change(labels: dict[str, str], end: Any) -> tuple[dict[str, str], Any]:
        now = SnapshotPb(labels=labels)
        now.expire_time.FromDatetime(end.replace(tzinfo=None))
        apply_mask(now, pb.snapshot, pb.update_mask, {"name", "topic"})
        return dict(now.labels), time_of(now.expire_time, "expire_time")

    customer = caller.customer(project)
    return snapshot_pb(caller.client.snapshots.change(name, change, customer=customer), project)


def get_snapshot(caller: WireCaller, pb: Any) -> Any:
    """Return a snapshot."""
    project, name = parse_name(pb.snapshot, "snapshots", "snapshot")
    found = caller.client.snapshots.get(name, customer=caller.customer(project))
    return snapshot_pb(found, project)


def list_snapshots(caller: WireCaller, pb: Any) -> Any:
    """List the snapshots of a project."""
    project = parse_project(pb.project)
    found = Listing(ListSnapshotsResponse, "snapshots", lambda one: snapshot_pb(one, project))
    return found.of_project(caller, project, pb, caller.client.snapshots.list)


def delete_snapshot(caller: WireCaller, pb: Any) -> Any:
    """Delete a snapshot."""
    project, name = parse_name(pb.snapshot, "snapshots", "snapshot")
    caller.client.snapshots.delete(name, customer=caller.customer(project))
    return empty_pb2.Empty()


def seek(caller: WireCaller, pb: Any) -> Any:
    """Set a subscription to a time or a snapshot."""
    project, name = parse_name(pb.subscription, "subscriptions", "subscription")
    customer = caller.customer(project)
    target = pb.WhichOneof("target")
    if target == "time":
        to = time_of(pb.time, "time")
        caller.client.subscriptions.seek(name, to, customer=customer)
    elif target == "snapshot":
        taken = parse_name(pb.snapshot, "snapshots", "snapshot")
        if taken.project != project:
            raise InvalidInput("snapshot", f"a snapshot of project {project}", pb.snapshot)
        caller.client.snapshots.seek(taken.name, name, customer=customer)
    else:
        raise InvalidInput("target", "a time or a snapshot", None)
    return SeekResponse()


_EMPTY = empty_pb2.Empty
METHODS: Final[Mapping[str, Method]] = {
    "CreateSubscription": Unary(
        SubscriptionPb, SubscriptionPb, Permission.OPERATE, create_subscription
    ),
    "UpdateSubscription": Unary(
        types.UpdateSubscriptionRequest.pb(),
        SubscriptionPb,
        Permission.OPERATE,
        update_subscription,
    ),
    "GetSubscription": Unary(
        types.GetSubscriptionRequest.pb(), SubscriptionPb, Permission.READ, get_subscription
    ),
    "ListSubscriptions": Unary(
        types.ListSubscriptionsRequest.pb(), ListResponse, Permission.READ, list_subscriptions
    ),
    "DeleteSubscription": Unary(
        types.DeleteSubscriptionRequest.pb(), _EMPTY, Permission.OPERATE, delete_subscription
    ),
    "ModifyPushConfig": Unary(
        types.ModifyPushConfigRequest.pb(), _EMPTY, Permission.OPERATE, modify_push_config
    ),
    "Acknowledge": WaitingUnary(
        types.AcknowledgeRequest.pb(), _EMPTY, Permission.WORK, acknowledge
    ),
    "ModifyAckDeadline": WaitingUnary(
        types.ModifyAckDeadlineRequest.pb(), _EMPTY, Permission.WORK, modify_ack_deadline
    ),
    "Pull": WaitingUnary(types.PullRequest.pb(), PullResponse, Permission.WORK, pull),
    "StreamingPull": Streaming(
        types.StreamingPullRequest.pb(),
        types.StreamingPullResponse.pb(),
        Permission.WORK,
        streaming_pull,
    ),
    "CreateSnapshot": Unary(
        types.CreateSnapshotRequest.pb(), SnapshotPb, Permission.OPERATE, create_snapshot
    ),
    "UpdateSnapshot": Unary(
        types.UpdateSnapshotRequest.pb(), SnapshotPb, Permission.OPERATE, update_snapshot
    ),
    "GetSnapshot": Unary(types.GetSnapshotRequest.pb(), SnapshotPb, Permission.READ, get_snapshot),
    "ListSnapshots": Unary(
        types.ListSnapshotsRequest.pb(), ListSnapshotsResponse, Permission.READ, list_snapshots
    ),
    "DeleteSnapshot": Unary(
        types.DeleteSnapshotRequest.pb(), _EMPTY, Permission.OPERATE, delete_snapshot
    ),
    "Seek": Unary(types.SeekRequest.pb(), SeekResponse, Permission.OPERATE, seek),
}
