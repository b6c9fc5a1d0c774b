"""Topics, subscriptions and snapshots through Google's client: settings, lists, masks, errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from google.api_core import exceptions
from google.protobuf import field_mask_pb2
from google.pubsub_v1 import types

from tests.pubsub_wire.kit import PROJECT, Wire, subscription, topic


class Clients(NamedTuple):
    """Both clients."""

    publisher: Any
    subscriber: Any


def mask(*paths: str) -> Any:
    """Return a field mask."""
    return field_mask_pb2.FieldMask(paths=paths)


def test_settings_of_a_subscription_are_kept(wire: Wire) -> None:
    """What a client sets is what it reads, also in lists."""
    publisher, subscriber = wire.publisher(), wire.subscriber()
    publisher.create_topic(types.Topic(name=topic(), labels={"team": "web"}))
    publisher.create_topic(name=topic("dead"))
    wanted = types.Subscription(
        name=subscription(),
        topic=topic(),
        ack_deadline_seconds=30,
        retain_acked_messages=True,
        message_retention_duration=timedelta(seconds=911),
        labels={"tier": "1"},
        enable_message_ordering=True,
        expiration_policy={"ttl": timedelta(days=2)},
        filter='attributes.kind = "order"',
        dead_letter_policy={"dead_letter_topic": topic("dead"), "max_delivery_attempts": 7},
        retry_policy={
            "minimum_backoff": timedelta(seconds=1),
            "maximum_backoff": timedelta(seconds=60),
        },
        enable_exactly_once_delivery=True,
    )
    made = subscriber.create_subscription(wanted)
    assert made == subscriber.get_subscription(subscription=subscription())
    assert list(subscriber.list_subscriptions(project=f"projects/{PROJECT}")) == [made]
    for name in types.Subscription.meta.fields:
        if name not in {"push_config", "state"}:
            assert getattr(made, name) == getattr(wanted, name), name
    assert list(publisher.list_topic_subscriptions(topic=topic())) == [subscription()]
    assert publisher.get_topic(topic=topic()).labels == {"team": "web"}


def test_defaults_are_googles(wire: Wire) -> None:
    """10 seconds, 7 days, 31 days, no retry policy and no dead letters."""
    publisher, subscriber = wire.publisher(), wire.subscriber()
    publisher.create_topic(name=topic())
    made = subscriber.create_subscription(name=subscription(), topic=topic())
    assert made.ack_deadline_seconds == 10
    assert made.message_retention_duration == timedelta(days=7)
    assert made.expiration_policy.ttl == timedelta(days=31)
    assert "retry_policy" not in made
    assert "dead_letter_policy" not in made


def test_updates_change_what_the_mask_names(wire: Wire) -> None:
    """Other fields stay; a named field that is not given is cleared."""
    publisher, subscriber = wire.publisher(), wire.subscriber()
    publisher.create_topic(name=topic())
    publisher.create_topic(name=topic("dead"))
    policy = {"dead_letter_topic": topic("dead"), "max_delivery_attempts": 6}
    subscriber.create_subscription(
        types.Subscription(
            name=subscription(), topic=topic(), labels={"a": "1"}, dead_letter_policy=policy
        )
    )
    changed = types.Subscription(
        name=subscription(), ack_deadline_seconds=60, labels={"b": "2"}, filter="ignored"
    )
    made = subscriber.update_subscription(
        subscription=changed, update_mask=mask("ack_deadline_seconds", "labels")
    )
    assert (made.ack_deadline_seconds, made.labels) == (60, {"b": "2"})
    assert made.dead_letter_policy.max_delivery_attempts == 6
    changed.dead_letter_policy.max_delivery_attempts = 9
    paths = mask("dead_letter_policy.max_delivery_attempts")
    made = subscriber.update_subscription(subscription=changed, update_mask=paths)
    assert made.dead_letter_policy.dead_letter_topic == topic("dead")
    assert made.dead_letter_policy.max_delivery_attempts == 9
    cleared = types.Subscription(name=subscription())
    made = subscriber.update_subscription(
        subscription=cleared, update_mask=mask("dead_letter_policy")
    )
    assert "dead_letter_policy" not in made


def test_topics_are_changed_and_listed_in_pages(wire: Wire) -> None:
    """A page token continues the list."""
    publisher = wire.publisher()
    for n in range(5):
        publisher.create_topic(name=topic(f"topic-{n}"))
    page = publisher.list_topics(request={"project": f"projects/{PROJECT}", "page_size": 2})
    assert [one.name for one in page] == [topic(f"topic-{n}") for n in range(5)]
    changed = types.Topic(
        name=topic("topic-1"), labels={"x": "y"}, message_retention_duration=timedelta(days=3)
    )
    made = publisher.update_topic(topic=changed, update_mask=mask("labels"))
    assert made.labels == {"x": "y"}
    assert made.message_retention_duration == timedelta(days=7)
    assert list(publisher.list_topics(project="projects/nothing-here")) == []


CASES: dict[str, tuple[Callable[[Clients], object], type[Exception]]] = {
    "a topic twice": (lambda c: c.publisher.create_topic(name=topic()), exceptions.AlreadyExists),
    "a subscription twice": (
        lambda c: c.subscriber.create_subscription(name=subscription(), topic=topic()),
        exceptions.AlreadyExists,
    ),
    "no such topic": (lambda c: c.publisher.get_topic(topic=topic("none")), exceptions.NotFound),
    "publish to no topic": (
        lambda c: c.publisher.publish(topic("none"), b"x").result(10),
        exceptions.NotFound,
    ),
    "subscribe to no topic": (
        lambda c: c.subscriber.create_subscription(name=subscription("two"), topic=topic("none")),
        exceptions.NotFound,
    ),
    "no such subscription": (
        lambda c: c.subscriber.pull(subscription=subscription("none"), max_messages=1),
        exceptions.NotFound,
    ),
    "ack on no subscription": (
        lambda c: c.subscriber.acknowledge(subscription=subscription("none"), ack_ids=["x"]),
        exceptions.NotFound,
    ),
    "a bad name": (lambda c: c.publisher.create_topic(name="topics/x"), exceptions.InvalidArgument),
    "a short name": (
        lambda c: c.publisher.create_topic(name=topic("ab")),
        exceptions.InvalidArgument,
    ),
    "an empty message": (
        lambda c: c.publisher.publish(topic(), b"").result(10),
        exceptions.InvalidArgument,
    ),
    "no messages": (
        lambda c: c.publisher._gapic_publish(topic=topic(), messages=[]),
        exceptions.InvalidArgument,
    ),
    "a reserved attribute": (
        lambda c: c.publisher.publish(topic(), b"x", CloudPubSubX="1").result(10),
        exceptions.InvalidArgument,
    ),
    "a bad filter": (
        lambda c: c.subscriber.create_subscription(
            types.Subscription(name=subscription("two"), topic=topic(), filter="attributes.")
        ),
        exceptions.InvalidArgument,
    ),
    "too few attempts": (
        lambda c: c.subscriber.create_subscription(
            types.Subscription(
                name=subscription("two"),
                topic=topic(),
                dead_letter_policy={"dead_letter_topic": topic(), "max_delivery_attempts": 2},
            )
        ),
        exceptions.InvalidArgument,
    ),
    "an unknown field in a mask": (
        lambda c: c.subscriber.update_subscription(
            subscription=types.Subscription(name=subscription()), update_mask=mask("nothing")
        ),
        exceptions.InvalidArgument,
    ),
    "an immutable field in a mask": (
        lambda c: c.subscriber.update_subscription(
            subscription=types.Subscription(name=subscription()), update_mask=mask("topic")
        ),
        exceptions.InvalidArgument,
    ),
    "no mask": (
        lambda c: c.subscriber.update_subscription(
            subscription=types.Subscription(name=subscription()), update_mask=mask()
        ),
        exceptions.InvalidArgument,
    ),
    "a feature the bus lacks": (
        lambda c: c.subscriber.create_subscription(
            types.Subscription(
                name=subscription("two"), topic=topic(), bigquery_config={"table": "p.d.t"}
            )
        ),
        exceptions.MethodNotImplemented,
    ),
    "a forbidden endpoint": (
        lambda c: c.subscriber.modify_push_config(
            subscription=subscription(), push_config={"push_endpoint": "http://127.0.0.1/x"}
        ),
        exceptions.InvalidArgument,
    ),
    "a foreign page token": (
        lambda c: list(
            c.publisher.list_topics(request={"project": f"projects/{PROJECT}", "page_token": "x"})
        ),
        exceptions.InvalidArgument,
    ),
    "a deadline that is too long": (
        lambda c: c.subscriber.modify_ack_deadline(
            subscription=subscription(), ack_ids=["x"], ack_deadline_seconds=601
        ),
        exceptions.InvalidArgument,
    ),
}


def test_errors_have_the_codes_that_clients_expect(wire: Wire) -> None:
    """Each request is refused with its own code."""
    publisher, subscriber = wire.publisher(), wire.subscriber()
    publisher.create_topic(name=topic())
    subscriber.create_subscription(name=subscription(), topic=topic())
    for name, (call, expected) in CASES.items():
        with pytest.raises(expected) as caught:
            call(Clients(publisher, subscriber))
        assert type(caught.value) is expected, name


def test_a_deleted_topic_has_googles_name(wire: Wire) -> None:
    """Its subscriptions stay and name it so."""
    publisher, subscriber = wire.publisher(), wire.subscriber()
    publisher.create_topic(name=topic())
    subscriber.create_subscription(name=subscription(), topic=topic())
    publisher.delete_topic(topic=topic())
    assert subscriber.get_subscription(subscription=subscription()).topic == "_deleted-topic_"
    publisher.create_topic(name=topic())
    subscriber.delete_subscription(subscription=subscription())
    with pytest.raises(exceptions.NotFound):
        subscriber.get_subscription(subscription=subscription())


def test_push_subscriptions_are_pushed_not_pulled(wire: Wire) -> None:
    """Setting an endpoint makes a push subscription, removing it a pull one."""
    publisher, subscriber = wire.publisher(), wire.subscriber()
    publisher.create_topic(name=topic())
    subscriber.create_subscription(name=subscription(), topic=topic())
    push = {
        "push_endpoint": "https://example.com/in",
        "oidc_token": {"service_account_email": "a@example.com", "audience": "x"},
    }
    subscriber.modify_push_config(subscription=subscription(), push_config=push)
    found = subscriber.get_subscription(subscription=subscription())
    assert found.push_config.push_endpoint == "https://example.com/in"
    assert found.push_config.oidc_token.audience == "x"
    with pytest.raises(exceptions.FailedPrecondition):
        subscriber.pull(subscription=subscription(), max_messages=1)
    subscriber.modify_push_config(subscription=subscription(), push_config={})
    found = subscriber.get_subscription(subscription=subscription())
    assert found.push_config.push_endpoint == ""


def test_a_detached_subscription_receives_nothing(wire: Wire) -> None:
    """It loses its backlog, cannot be pulled and is not listed at its topic."""
    publisher, subscriber = wire.publisher(), wire.subscriber()
    publisher.create_topic(name=topic())
    subscriber.create_subscription(name=subscription(), topic=topic())
    publisher.publish(topic(), b"before").result(10)
    publisher.detach_subscription(request={"subscription": subscription()})
    publisher.detach_subscription(request={"subscription": subscription()})
    publisher.publish(topic(), b"after").result(10)
    assert subscriber.get_subscription(subscription=subscription()).detached
    assert list(publisher.list_topic_subscriptions(topic=topic())) == []
    with pytest.raises(exceptions.FailedPrecondition):
        subscriber.pull(subscription=subscription(), max_messages=1)
    with pytest.raises(exceptions.FailedPrecondition):
        subscriber.seek({"subscription": subscription(), "time": "2020-01-01T00:00:00Z"})
