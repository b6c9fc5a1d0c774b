"""Use cases of the bus and of dead letters with another customer's objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.bus.message import Nack, NewMessage, SubscriptionSpec
from penstock.client import Client
from penstock.dead_letters.client.dead_letters import DeadLetterFilter
from tests.tenancy.tenants import Things

Call = Callable[[Client, Things], Any]
SPEC = SubscriptionSpec(name="reader", topic="events")
MESSAGE = NewMessage(data=b"x")

BUS_FOREIGN: dict[str, list[Call]] = {
    "topics.create": [lambda c, t: c.topics.create("events", customer=t.customer_id)],
    "topics.page": [lambda c, t: c.topics.page(customer=t.customer_id)],
    "topics.get": [
        lambda c, t: c.topics.get("events", customer=t.customer_id),
        lambda c, _: c.topics.get("events"),
    ],
    "topics.delete": [lambda c, t: c.topics.delete("events", customer=t.customer_id)],
    "topics.publish": [
        lambda c, t: c.topics.publish("events", [MESSAGE], customer=t.customer_id),
        lambda c, _: c.topics.publish("events", [MESSAGE]),
    ],
    "topics.message": [lambda c, t: c.topics.message(1, customer=t.customer_id)],
    "subscriptions.declare": [
        lambda c, t: c.subscriptions.declare(SPEC, customer=t.customer_id),
        lambda c, _: c.subscriptions.declare(SPEC),
    ],
    "subscriptions.page": [lambda c, t: c.subscriptions.page(customer=t.customer_id)],
    "subscriptions.get": [lambda c, t: c.subscriptions.get("reader", customer=t.customer_id)],
    "subscriptions.delete": [lambda c, t: c.subscriptions.delete("reader", customer=t.customer_id)],
    "subscriptions.pause": [
        lambda c, t: c.subscriptions.pause("reader", True, customer=t.customer_id)
    ],
    "subscriptions.seek": [lambda c, t: c.subscriptions.seek("reader", 0, customer=t.customer_id)],
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
    "dead_letters.find": [
        lambda c, t: c.dead_letters.find(DeadLetterFilter(customer=t.customer_id))
    ],
    "dead_letters.groups": [
        lambda c, t: c.dead_letters.groups(DeadLetterFilter(customer=t.customer_id))
    ],
    "dead_letters.count": [
        lambda c, t: c.dead_letters.count(DeadLetterFilter(customer=t.customer_id))
    ],
    "dead_letters.get": [lambda c, t: c.dead_letters.get(t.dead_letter)],
    "dead_letters.of_run": [lambda c, t: c.dead_letters.of_run(t.dead, customer=t.customer_id)],
    "dead_letters.replay": [lambda c, t: c.dead_letters.replay(t.dead_letter)],
    "dead_letters.replay_matching": [
        lambda c, t: c.dead_letters.replay_matching(DeadLetterFilter(customer=t.customer_id))
    ],
    "dead_letters.discard": [lambda c, t: c.dead_letters.discard([t.dead_letter], "x")],
}

BUS_OWN: dict[str, Callable[[Client], Any]] = {
    "topics.page": lambda c: c.topics.page(),
    "subscriptions.page": lambda c: c.subscriptions.page(),
    "dead_letters.find": lambda c: c.dead_letters.find(),
    "dead_letters.groups": lambda c: c.dead_letters.groups(),
    "dead_letters.count": lambda c: [None] * c.dead_letters.count(),
}
