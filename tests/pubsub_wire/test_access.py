"""Who may do what: keys, roles, customers, and which projects they see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.api_core import exceptions

from penstock.access.api_keys import Role
from penstock.assembly.messaging.pubsub import build_pubsub
from penstock.assembly.settings import load
from penstock.core.errors import SettingsError
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore
from tests.pubsub_wire.kit import Wire, served, subscription, topic


@pytest.fixture
def keyed(open_store: OpenStore, clock: VirtualClock) -> Iterator[Wire]:
    """A front end that requires a key."""
    with served(open_store(), clock, needs_key=True) as made:
        yield made


def key(wire: Wire, role: Role, customer: str | None = None) -> str:
    """Create a key."""
    made = wire.client.keys.create(f"{role}-{customer}", role, customer=customer).key
    assert made is not None
    return made


def test_a_key_is_required(keyed: Wire) -> None:
    """Without one, and with a wrong one, nothing is served."""
    for wrong in (None, "pnk_wrong", "pnk_00000000_" + "0" * 46):
        with pytest.raises(exceptions.Unauthenticated):
            keyed.publisher(wrong).create_topic(name=topic())


def test_roles_bound_what_a_key_may_do(keyed: Wire) -> None:
    """A worker publishes and pulls; a viewer reads; an operator declares."""
    operator = key(keyed, Role.OPERATOR)
    worker, viewer = key(keyed, Role.WORKER), key(keyed, Role.VIEWER)
    keyed.publisher(operator).create_topic(name=topic())
    keyed.subscriber(operator).create_subscription(name=subscription(), topic=topic())
    keyed.publisher(worker).publish(topic(), b"x").result(10)
    pulled = keyed.subscriber(worker).pull(subscription=subscription(), max_messages=1)
    assert len(pulled.received_messages) == 1
    assert keyed.publisher(viewer).get_topic(topic=topic()).name == topic()
    with pytest.raises(exceptions.PermissionDenied):
        keyed.publisher(worker).create_topic(name=topic("more"))
    with pytest.raises(exceptions.PermissionDenied):
        keyed.subscriber(viewer).pull(subscription=subscription(), max_messages=1)


def test_a_bound_key_sees_only_its_project(keyed: Wire) -> None:
    """Another customer's project, and that of no customer, look as if they did not exist."""
    operator = key(keyed, Role.OPERATOR)
    for project in ("acme", "globex", "penstock"):
        keyed.publisher(operator).create_topic(name=topic(project=project))
    own = key(keyed, Role.OPERATOR, "acme")
    publisher = keyed.publisher(own)
    assert publisher.get_topic(topic=topic()).name == topic()
    for project in ("globex", "penstock", "nothing"):
        with pytest.raises(exceptions.NotFound):
            publisher.get_topic(topic=topic(project=project))
        with pytest.raises(exceptions.NotFound):
            list(publisher.list_topics(project=f"projects/{project}"))
        with pytest.raises(exceptions.NotFound):
            publisher.publish(topic(project=project), b"x").result(10)
        with pytest.raises(exceptions.NotFound):
            publisher.create_topic(name=topic("more", project=project))


def test_the_own_project_has_the_topics_of_no_customer(wire: Wire) -> None:
    """Built-in topics, and those that Penstock's own clients declare, are there."""
    publisher, subscriber = wire.publisher(), wire.subscriber()
    name = topic("penstock.alerts", project="penstock")
    subscriber.create_subscription(name=subscription(project="penstock"), topic=name)
    assert [one.name for one in publisher.list_topics(project="projects/penstock")] == [name]
    assert wire.client.subscriptions.get("billing").subscription.topic == "penstock.alerts"


def test_streams_are_counted_per_caller(open_store: OpenStore, clock: VirtualClock) -> None:
    """One more than allowed is refused."""
    with served(open_store(), clock, caller_streams_max=0) as wire:
        publisher, subscriber = wire.publisher(), wire.subscriber()
        publisher.create_topic(name=topic())
        subscriber.create_subscription(name=subscription(), topic=topic())
        with pytest.raises(exceptions.ResourceExhausted):
            list(subscriber.streaming_pull(iter([{"subscription": subscription()}]), retry=None))


def test_the_port_is_on_loopback_unless_keys_are_required(
    open_store: OpenStore,
) -> None:
    """An open port without keys is refused before anything is served."""
    from penstock.client import Client  # beside its only use

    client = Client(open_store())
    assert build_pubsub(client, load({})) is None
    given = {"PENSTOCK_PUBSUB_PORT": "0", "PENSTOCK_PUBSUB_HOST": "0.0.0.0"}
    with pytest.raises(SettingsError, match="pubsub_host"):
        build_pubsub(client, load(given))
    assert build_pubsub(client, load({**given, "PENSTOCK_PUBSUB_KEYS": "required"})) is not None
