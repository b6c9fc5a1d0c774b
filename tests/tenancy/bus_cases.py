"""Use cases of the bus and of dead letters with another customer's objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.bus.message import Nack, NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.client import Client
from penstock.core.clock import to_datetime
from penstock.core.ids import encode
from penstock.dead_letters.records import ReplayRequest
from tests.tenancy.tenants import Things

Call = Callable[[Client, Things], Any]
TOPIC = Topic(name="events")
READER = Subscription(name="reader", topic="events", has_dead_letters=False)
MESSAGE = NewMessage(data=b"x")


def dead_letter(things: Things) -> str:
    """Return the id of the customer's dead letter."""
    return encode("dl", things.dead_letter)


BUS_FOREIGN: dict[str, list[Call]] = {
    "topics.create": [lambda c, t: c.topics.create(TOPIC, customer=t.customer_id)],
    "topics.list": [lambda c, t: c.topics.list(customer=t.customer_id)],
    "topics.get": [
        lambda c, t: c.topics.get("events", customer=t.customer_id),
        lambda c, _: c.topics.get("events"),
    ],
    "topics.delete": [lambda c, t: c.topics.delete("events", customer=t.customer_id)],
    "topics.publish": [
        lambda c, t: c.topics.publish("events", [MESSAGE], customer=t.customer_id),
        lambda c, _: c.topics.publish("events", [MESSAGE]),
    ],
    "topics.why": [lambda c, t: c.topics.why(str(t.message))],
    "topics.message": [lambda c, t: c.topics.message(str(t.message))],
    "subscriptions.declare": [
        lambda c, t: c.subscriptions.declare(READER, customer=t.customer_id),
        lambda c, _: c.subscriptions.declare(READER),
    ],
    "subscriptions.list": [lambda c, t: c.subscriptions.list(customer=t.customer_id)],
    "subscriptions.get": [lambda c, t: c.subscriptions.get("reader", customer=t.customer_id)],
    "subscriptions.why": [lambda c, t: c.subscriptions.why("reader", customer=t.customer_id)],
    "subscriptions.delete": [lambda c, t: c.subscriptions.delete("reader", customer=t.customer_id)],
    "subscriptions.pause": [
        lambda c, t: c.subscriptions.pause("reader", True, customer=t.customer_id)
    ],
    "subscriptions.seek": [
        lambda c, t: c.subscriptions.seek("reader", to_datetime(0), customer=t.customer_id)
    ],
    "subscriptions.purge": [lambda c, t: c.subscriptions.purge("reader", customer=t.customer_id)],
    "subscriptions.pull": [
        lambda c, t: c.subscriptions.pull("reader", customer=t.customer_id),
        lambda c, _: c.subscriptions.pull("reader"),
    ],
    "subscriptions.ack": [lambda c, t: c.subscriptions.ack("reader", [], customer=t.customer_id)],
    "subscriptions.nack": [
        lambda c, t: c.subscriptions.nack("reader", list[Nack](), customer=t.customer_id)
    ],
    "subscriptions.extend": [
        lambda c, t: c.subscriptions.extend("reader", [], 60, customer=t.customer_id)
    ],
    "subscriptions.release": [
        lambda c, t: c.subscriptions.release("reader", [], customer=t.customer_id)
    ],
    "subscriptions.channel": [
        lambda c, t: c.subscriptions.channel("reader", customer=t.customer_id)
    ],
    "dead_letters.list": [lambda c, t: c.dead_letters.list(customer=t.customer_id)],
    "dead_letters.groups": [lambda c, t: c.dead_letters.groups(customer=t.customer_id)],
    "dead_letters.count": [lambda c, t: c.dead_letters.count(customer=t.customer_id)],
    "dead_letters.get": [
        lambda c, t: c.dead_letters.get(dead_letter(t)),
        lambda c, t: c.dead_letters.get(encode("run", t.dead)),
    ],
    "dead_letters.replay": [lambda c, t: c.dead_letters.replay(dead_letter(t))],
    "dead_letters.replay_matching": [
        lambda c, t: c.dead_letters.replay_matching(ReplayRequest(customer=t.customer_id))
    ],
    "dead_letters.discard": [lambda c, t: c.dead_letters.discard(dead_letter(t), "x")],
}

BUS_OWN: dict[str, Callable[[Client], Any]] = {
    "topics.list": lambda c: c.topics.list().items,
    "subscriptions.list": lambda c: c.subscriptions.list().items,
    "dead_letters.list": lambda c: c.dead_letters.list().items,
    "dead_letters.groups": lambda c: c.dead_letters.groups(),
    "dead_letters.count": lambda c: [None] * c.dead_letters.count(),
}
