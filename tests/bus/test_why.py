"""Why a message was not handled, and why a subscription makes no progress, on both engines."""

from datetime import timedelta

import pytest

from penstock.bus.message import ErrorKind, Nack, NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.errors import NotFound
from penstock.flows.explain.records import CauseEntry, CauseTree
from tests.kits.client_harness import Harness


class Scene:
    """Topic `orders` with an ordered, a filtered and a plain subscription."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.client = harness.client
        self.client.topics.create(Topic(name="orders"))
        for name, more in (
            ("ordered", {"is_ordered": True}),
            ("europe", {"filter": 'attributes.region = "eu"'}),
        ):
            self.client.subscriptions.declare(Subscription(name=name, topic="orders", **more))

    def publish(self, key: str | None = None, region: str = "us") -> str:
        """Publish a message; return its id."""
        message = NewMessage(data=b"{}", ordering_key=key, attributes={"region": region})
        return self.client.topics.publish("orders", [message]).message_ids[0]

    def pull(self, name: str) -> str:
        """Lease the next message of a subscription; return its ack id."""
        return self.client.subscriptions.pull(name, max_messages=1)[0].ack_id

    def why(self, message_id: str, depth: int = 1) -> dict[str, CauseEntry]:
        """Return the causes of a message at a depth, by kind."""
        return kinds(self.client.topics.why(message_id), depth)


def kinds(tree: CauseTree, depth: int) -> dict[str, CauseEntry]:
    """Return the causes at a depth, by kind."""
    return {cause.kind: cause for cause in tree.causes if cause.depth == depth}


@pytest.fixture
def scene(harness: Harness) -> Scene:
    """The scene on the engine under test."""
    return Scene(harness)


def test_ready_and_filtered(scene: Scene) -> None:
    found = scene.why(message_id := scene.publish())
    assert found["delivery"].text == "ordered: ready, never tried"
    assert 'do not match the filter attributes.region = "eu"' in found["filter"].text
    assert found["filter"].clears == "never"
    assert scene.why(message_id, 2)["consumer"].text == "no consumer has pulled it yet"


def test_a_topic_without_subscriptions(scene: Scene) -> None:
    scene.client.topics.create(Topic(name="lonely"))
    sent = scene.client.topics.publish("lonely", [NewMessage(data=b"x")]).message_ids[0]
    assert scene.why(sent)["topic"].text == "lonely has no subscription"


def test_a_subscription_created_later(scene: Scene) -> None:
    sent = scene.publish()
    scene.harness.clock.advance(seconds=60)
    scene.client.subscriptions.declare(Subscription(name="late", topic="orders"))
    assert "it was created later" in scene.why(sent)["subscription"].text


def test_lease_backoff_ack(scene: Scene) -> None:
    sent = scene.publish()
    ack_id = scene.pull("ordered")
    lease = scene.why(sent)["lease"]
    assert lease.clears == "event"
    assert lease.until is not None
    nack = Nack(ack_id=ack_id, error="busy", delay=timedelta(seconds=90))
    scene.client.subscriptions.nack("ordered", [nack])
    backoff = scene.why(sent)["backoff"]
    assert "attempt 2 is due" in backoff.text
    assert "busy" in backoff.text
    assert (backoff.clears, backoff.earliest_at is not None) == ("time", True)
    scene.harness.clock.advance(seconds=100)
    scene.client.subscriptions.ack("ordered", [scene.pull("ordered")])
    tree = scene.client.topics.why(sent)
    assert "ordered handled it" in kinds(tree, 1)["delivery"].text
    assert tree.causes[0].text.endswith("nothing is pending")
    assert tree.causes[0].clears == "never"


def test_behind_another_message_of_its_key(scene: Scene) -> None:
    first, second = scene.publish("k"), scene.publish("k")
    scene.pull("ordered")
    assert (
        f"waits behind message {first} (ordering key k)" in scene.why(second)["ordering_key"].text
    )
    assert f"message {first}:" in scene.why(second, 2)["lease"].text


def test_a_dead_letter_offers_its_replay(scene: Scene) -> None:
    sent = scene.publish()
    poison = Nack(ack_id=scene.pull("ordered"), kind=ErrorKind.POISON, error_type="SCHEMA")
    scene.client.subscriptions.nack("ordered", [poison])
    dead = scene.why(sent)["dead_letter"]
    assert dead.clears == "person"
    assert "SCHEMA" in dead.text
    assert dead.action is not None
    (kept,) = scene.client.dead_letters.list(kind="delivery").items
    assert dead.action.command == f"penstock dlq replay {kept.dead_letter_id}"
    whole = kinds(scene.client.subscriptions.why("ordered"), 1)
    assert whole["dead_letter"].text == "1 of its messages is a dead letter"


def test_a_paused_subscription(scene: Scene) -> None:
    sent = scene.publish(region="eu")
    scene.client.subscriptions.pause("europe", True)
    pause = scene.why(sent, 2)["pause"]
    assert pause.clears == "person"
    assert pause.action is not None
    assert pause.action.command == "penstock subscriptions resume europe"
    tree = scene.client.subscriptions.why("europe")
    assert "1 ready, 0 leased" in tree.causes[0].text
    assert kinds(tree, 1)["pause"].text == "europe is paused"
    assert f"message {sent}: ready" in kinds(tree, 1)["delivery"].text


def test_an_idle_subscription(scene: Scene) -> None:
    (cause,) = scene.client.subscriptions.why("europe").causes
    assert cause.text == "europe (pull, topic orders) has no waiting messages"
    assert cause.clears == "never"
    scene.client.topics.delete("orders")
    assert (
        "its topic was deleted" in kinds(scene.client.subscriptions.why("europe"), 1)["topic"].text
    )


def test_other_customers_get_not_found(scene: Scene) -> None:
    sent = scene.publish()
    scene.harness.config("acme")
    bound = scene.client.scoped("acme")
    with pytest.raises(NotFound):
        bound.topics.why(sent)
    with pytest.raises(NotFound):
        bound.subscriptions.why("europe")
    with pytest.raises(NotFound):
        scene.client.topics.why("none")
