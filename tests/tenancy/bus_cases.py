"""Use cases of the bus and of dead letters with another customer's objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.bus.message import Nack, NewMessage
from penstock.bus.records import NewSnapshot, Schema, Subscription, Topic
from penstock.client import Client
from penstock.core.clock import to_datetime
from penstock.core.ids import encode
from penstock.dead_letters.records import DiscardRequest, ReplayRequest
from tests.tenancy.tenants import Things

Call = Callable[[Client, Things], Any]
TOPIC = Topic(name="events")
READER = Subscription(name="reader", topic="events", has_dead_letters=False)
MESSAGE = NewMessage(data=b"x")
SNAPSHOT = NewSnapshot(name="monday", subscription="reader")
SCHEMA = Schema(
    name="roster", definition='{"type": "record", "name": "Roster", "fields": []}', kind="avro"
)


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
    "topics.add": [lambda c, t: c.topics.add(TOPIC, customer=t.customer_id)],
    "topics.change": [
        lambda c, t: c.topics.change("events", lambda one: one, customer=t.customer_id)
    ],
    "subscriptions.add": [
        lambda c, t: c.subscriptions.add(READER, customer=t.customer_id),
        lambda c, _: c.subscriptions.add(READER),
    ],
    "subscriptions.change": [
        lambda c, t: c.subscriptions.change("reader", lambda one: one, customer=t.customer_id)
    ],
    "subscriptions.detach": [lambda c, t: c.subscriptions.detach("reader", customer=t.customer_id)],
    "snapshots.create": [lambda c, t: c.snapshots.create(SNAPSHOT, customer=t.customer_id)],
    "snapshots.get": [lambda c, t: c.snapshots.get("monday", customer=t.customer_id)],
    "snapshots.list": [lambda c, t: c.snapshots.list(customer=t.customer_id)],
    "snapshots.change": [
        lambda c, t: c.snapshots.change(
            "monday", lambda labels, end: (labels, end), customer=t.customer_id
        )
    ],
    "snapshots.delete": [lambda c, t: c.snapshots.delete("monday", customer=t.customer_id)],
    "snapshots.seek": [lambda c, t: c.snapshots.seek("monday", "reader", customer=t.customer_id)],
    "schemas.create": [lambda c, t: c.schemas.create(SCHEMA, customer=t.customer_id)],
    "schemas.commit": [lambda c, t: c.schemas.commit(SCHEMA, customer=t.customer_id)],
    "schemas.rollback": [
        lambda c, t: c.schemas.rollback("roster", "00000000", customer=t.customer_id)
    ],
    "schemas.get": [lambda c, t: c.schemas.get("roster", customer=t.customer_id)],
    "schemas.list": [lambda c, t: c.schemas.list(customer=t.customer_id)],
    "schemas.revisions": [lambda c, t: c.schemas.revisions("roster", customer=t.customer_id)],
    "schemas.delete": [lambda c, t: c.schemas.delete("roster", customer=t.customer_id)],
    "dead_letters.list": [
        lambda c, t: c.dead_letters.list(customer=t.customer_id),
        lambda c, t: c.dead_letters.list(customer=t.customer_id, group="delivery/reader/SCHEMA"),
    ],
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
    "dead_letters.discard_matching": [
        lambda c, t: c.dead_letters.discard_matching(
            DiscardRequest(customer=t.customer_id, reason="x")
        )
    ],
    "dead_letters.discard": [lambda c, t: c.dead_letters.discard(dead_letter(t), "x")],
}

BUS_OWN: dict[str, Callable[[Client], Any]] = {
    "topics.list": lambda c: c.topics.list().items,
    "subscriptions.list": lambda c: c.subscriptions.list().items,
    "snapshots.list": lambda c: c.snapshots.list().items,
    "schemas.list": lambda c: c.schemas.list().items,
    "dead_letters.list": lambda c: c.dead_letters.list().items,
    "dead_letters.groups": lambda c: c.dead_letters.groups(),
    "dead_letters.count": lambda c: [None] * c.dead_letters.count(),
}

SYSTEM_LISTS = (
    "topics.list", "subscriptions.list", "snapshots.list", "schemas.list", "dead_letters.groups",
)  # fmt: skip
"""Lists without all customers' rows for a tenant: system rows, or groups."""
