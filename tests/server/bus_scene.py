"""Topics, subscriptions and messages of a customer, and one call of every bus route."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.bus.message import NewMessage
from penstock.bus.records import NewSnapshot, Schema, Subscription, Topic
from penstock.core.ids import encode
from penstock.db.store import Tx
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.limits import limit_get
from penstock.limits.store.rows import GrantInput, LeaseRequest
from tests.kits.client_harness import Harness


@dataclass(frozen=True, slots=True)
class BusThings:
    """Names and ids of one customer's bus resources; by default none of them exists."""

    customer: str = "acme"
    topic: str = "none_00000000"
    spare_topic: str = "none_00000000"
    subscription: str = "none_00000000"
    spare_subscription: str = "none_00000000"
    message: str = "100000000"
    ack_ids: tuple[str, ...] = ("00000000",) * 3
    snapshot: str = "none_00000000"
    schema: str = "none_00000000"
    revision_id: str = "00000000"
    limit: str = "none_00000000"
    lease: str = "lease_00000000"

    def at(self, path: str, query: str = "") -> str:
        """Return a path with this customer as parameter."""
        return f"{path}?customer_id={self.customer}{query}"


def bus_things(harness: Harness, customer: str) -> BusThings:
    """Create two topics, two subscriptions, and ready and leased messages for a customer."""
    client = harness.client
    for name in ("events", "spare-topic"):
        client.topics.create(Topic(name=name), customer=customer)
    for name in ("reader", "spare-reader"):
        wanted = Subscription(name=name, topic="events")
        client.subscriptions.declare(wanted, customer=customer)
    messages = [NewMessage(data=b"%d" % n, attributes={"whose": customer}) for n in range(5)]
    ids = client.topics.publish("events", messages, customer=customer).message_ids
    held = client.subscriptions.pull("reader", max_messages=3, customer=customer)
    snapshot = NewSnapshot(name="monday", subscription="reader")
    client.snapshots.create(snapshot, customer=customer)
    schema = client.schemas.create(Schema(name="roster", definition=AVRO), customer=customer)
    limit = f"bq:{customer}"
    client.limits.declare(limit, capacity=3)
    lease = harness.write(lambda tx: _slot(tx, limit))
    return BusThings(
        customer=customer,
        topic="events",
        spare_topic="spare-topic",
        subscription="reader",
        spare_subscription="spare-reader",
        message=ids[0],
        ack_ids=tuple(one.ack_id for one in held),
        snapshot="monday",
        schema=schema.name,
        revision_id=schema.revision_id,
        limit=limit,
        lease=encode("lease", lease),
    )


def _slot(tx: Tx, name: str) -> int:
    """Acquire a slot of a limit."""
    limit = limit_get(tx, name)
    assert limit is not None
    grant_input = GrantInput(broker="b", requests=[LeaseRequest(request="r", holder="other")])
    return limit_grant(tx, limit.limit_id, grant_input).leases["r"].lease_id


DATA = "eyJuIjogMX0="
AVRO = '{"type": "record", "name": "Roster", "fields": [{"name": "team", "type": "string"}]}'

BUS_CALLS: Mapping[str, Callable[[BusThings], tuple[str, Any]]] = {
    "POST /api/v1/topics": lambda b: (b.at("/topics"), {"name": "new-topic"}),
    "GET /api/v1/topics": lambda b: (b.at("/topics"), None),
    "GET /api/v1/topics/{topic}": lambda b: (b.at(f"/topics/{b.topic}"), None),
    "DELETE /api/v1/topics/{topic}": lambda b: (b.at(f"/topics/{b.spare_topic}"), None),
    "POST /api/v1/topics/{topic}/publish": lambda b: (
        b.at(f"/topics/{b.topic}/publish"),
        {"messages": [{"data": DATA, "attributes": {"league": "nba"}}]},
    ),
    "GET /api/v1/messages/{message_id}/why": lambda b: (f"/messages/{b.message}/why", None),
    "GET /api/v1/messages/{message_id}": lambda b: (f"/messages/{b.message}", None),
    "GET /api/v1/subscriptions": lambda b: (b.at("/subscriptions"), None),
    "POST /api/v1/subscriptions": lambda b: (
        b.at("/subscriptions"),
        {"name": "new-reader", "topic": b.topic},
    ),
    "GET /api/v1/subscriptions/{name}": lambda b: (
        b.at(f"/subscriptions/{b.subscription}"),
        None,
    ),
    "GET /api/v1/subscriptions/{name}/why": lambda b: (
        b.at(f"/subscriptions/{b.subscription}/why"),
        None,
    ),
    "DELETE /api/v1/subscriptions/{name}": lambda b: (
        b.at(f"/subscriptions/{b.spare_subscription}"),
        None,
    ),
    "POST /api/v1/subscriptions/{name}/pull": lambda b: (
        b.at(f"/subscriptions/{b.subscription}/pull"),
        {"max_messages": 1},
    ),
    "POST /api/v1/subscriptions/{name}/ack": lambda b: (
        b.at(f"/subscriptions/{b.subscription}/ack"),
        {"ack_ids": [b.ack_ids[0]]},
    ),
    "POST /api/v1/subscriptions/{name}/nack": lambda b: (
        b.at(f"/subscriptions/{b.subscription}/nack"),
        {"nacks": [{"ack_id": b.ack_ids[1], "error": "later"}]},
    ),
    "POST /api/v1/subscriptions/{name}/extend": lambda b: (
        b.at(f"/subscriptions/{b.subscription}/extend"),
        {"ack_ids": [b.ack_ids[2]], "ack_deadline_seconds": 60},
    ),
    "POST /api/v1/subscriptions/{name}/release": lambda b: (
        b.at(f"/subscriptions/{b.subscription}/release"),
        {"ack_ids": [b.ack_ids[2]]},
    ),
    "POST /api/v1/subscriptions/{name}/pause": lambda b: (
        b.at(f"/subscriptions/{b.spare_subscription}/pause"),
        {"is_paused": True},
    ),
    "POST /api/v1/subscriptions/{name}/seek": lambda b: (
        b.at(f"/subscriptions/{b.spare_subscription}/seek"),
        {"time": "2025-01-01T00:00:00Z"},
    ),
    "POST /api/v1/subscriptions/{name}/detach": lambda b: (
        b.at(f"/subscriptions/{b.spare_subscription}/detach"),
        None,
    ),
    "GET /api/v1/snapshots": lambda b: (b.at("/snapshots"), None),
    "POST /api/v1/snapshots": lambda b: (
        b.at("/snapshots"),
        {"name": "tuesday", "subscription": b.subscription},
    ),
    "GET /api/v1/snapshots/{name}": lambda b: (b.at(f"/snapshots/{b.snapshot}"), None),
    "POST /api/v1/snapshots/{name}/seek": lambda b: (
        b.at(f"/snapshots/{b.snapshot}/seek"),
        {"subscription": b.subscription},
    ),
    "DELETE /api/v1/snapshots/{name}": lambda b: (b.at(f"/snapshots/{b.snapshot}"), None),
    "GET /api/v1/schemas": lambda b: (b.at("/schemas"), None),
    "POST /api/v1/schemas": lambda b: (
        b.at("/schemas"),
        {"name": "new-schema", "definition": AVRO},
    ),
    "GET /api/v1/schemas/{name}": lambda b: (b.at(f"/schemas/{b.schema}"), None),
    "GET /api/v1/schemas/{name}/revisions": lambda b: (
        b.at(f"/schemas/{b.schema}/revisions"),
        None,
    ),
    "POST /api/v1/schemas/{name}/revisions": lambda b: (
        b.at(f"/schemas/{b.schema}/revisions"),
        {"definition": AVRO},
    ),
    "POST /api/v1/schemas/{name}/rollback": lambda b: (
        b.at(f"/schemas/{b.schema}/rollback"),
        {"revision_id": b.revision_id},
    ),
    "DELETE /api/v1/schemas/{name}": lambda b: (b.at(f"/schemas/{b.schema}"), None),
    "GET /api/v1/limits": lambda _: ("/limits", None),
    "GET /api/v1/limits/detail": lambda b: (f"/limits/detail?name={b.limit}", None),
    "POST /api/v1/limits": lambda b: ("/limits", {"name": b.limit, "capacity": 2}),
    "POST /api/v1/limits/release": lambda b: (
        "/limits/release",
        {"lease_id": b.lease, "reason": "stuck"},
    ),
    "POST /api/v1/subscriptions/{name}/purge": lambda b: (
        b.at(f"/subscriptions/{b.spare_subscription}/purge"),
        None,
    ),
}
