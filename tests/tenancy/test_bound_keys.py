"""Keys that are bound to a customer work on every route that they may use, on both engines.

On PostgreSQL the transactions of such a key run as the tenant role, so a right that a migration
forgot is an error of the server. Every role calls every route of its permissions; the deeper paths,
which the calls of the scene do not reach, are walked by hand.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.access.api_keys import Permission, Role
from tests.conftest import ENGINES
from tests.kits.served import Serve
from tests.server.access_table import ALL_CUSTOMERS, ROUTES
from tests.server.kit import Client, ServedApi
from tests.server.scene import CALLS, Scene, method_of, scene

A = "acme"
METHODS = ("GET", "POST", "PATCH", "DELETE")
SEEK = {"time": "2025-01-01T00:00:00Z"}


class Bound:
    """A customer with every kind of resource, and a client with one of its keys."""

    def __init__(self, served: ServedApi, role: Role) -> None:
        self.served, self.role = served, role
        self.scene: Scene = scene(served.harness, A)
        self.by: Client = served.by(f"{A}-{role}")

    def routes(self) -> list[str]:
        """Routes that the key may use: reads first, deletions last."""
        allowed = [
            name
            for name, permission in ROUTES.items()
            if self.role.has_permission(permission)
            and permission is not Permission.ADMINISTER
            and name not in ALL_CUSTOMERS
        ]
        return sorted(allowed, key=lambda name: METHODS.index(method_of(name)))


@pytest.fixture(params=ENGINES)
def served(request: pytest.FixtureRequest, serve: Serve) -> Iterator[ServedApi]:
    with serve(request.param) as made:
        yield made


@pytest.mark.parametrize("role", list(Role))
def test_every_route_of_the_role(served: ServedApi, role: Role) -> None:
    """Each call succeeds; none is refused by the database."""
    bound = Bound(served, role)
    replies = {}
    for route in bound.routes():
        path, body = CALLS[route](bound.scene)
        reply = bound.by.call(method_of(route), path, body)
        replies[route] = (reply.status, reply.body[:300])
    refused = [(route, *got) for route, got in replies.items() if not 200 <= got[0] < 300]
    assert refused == []
    assert len(replies) > 5


class TestDeeperPaths:
    """What a bound operator does after the first call."""

    @pytest.fixture
    def by(self, served: ServedApi) -> Client:
        self.scene = scene(served.harness, A)
        return served.by(f"{A}-operator")

    def pull(self, by: Client, n: int = 100) -> list[Any]:
        reply = by.ok("POST", "/subscriptions/reader/pull", {"max_messages": n})
        return list(reply["received_messages"])

    def test_seek_delivers_again(self, by: Client) -> None:
        """Messages that were acked, also those of an ordering key, come again after a seek."""
        ordered = {"name": "in-order", "topic": "events", "enable_message_ordering": True}
        by.ok("POST", "/subscriptions", ordered)
        messages = [{"data": "MQ==", "ordering_key": "k"} for _ in range(3)]
        by.ok("POST", "/topics/events/publish", {"messages": messages})
        for name in ("reader", "in-order"):
            path = f"/subscriptions/{name}"
            while found := by.ok("POST", f"{path}/pull", {})["received_messages"]:
                by.ok("POST", f"{path}/ack", {"ack_ids": [one["ack_id"] for one in found]})
            assert by.ok("POST", f"{path}/seek", SEEK)["delivered_again"] >= 3
            assert by.ok("POST", f"{path}/pull", {})["received_messages"]

    def test_dead_deliveries(self, by: Client) -> None:
        """Poison becomes a dead letter, which is replayed as it is, edited, by filter."""
        found = self.pull(by, 2)
        nacks = [{"ack_id": one["ack_id"], "kind": "poison"} for one in found]
        by.ok("POST", "/subscriptions/reader/nack", {"nacks": nacks})
        listed = by.ok("GET", "/dead-letters?kind=delivery")["items"]
        first, second = (one["dead_letter_id"] for one in listed)
        by.ok("GET", f"/dead-letters/{first}")
        by.ok("POST", f"/dead-letters/{first}/replay")
        by.ok("POST", f"/dead-letters/{second}/replay", {"attributes": {"fixed": "yes"}})
        again = self.pull(by)
        assert len(again) >= 2
        nacks = [{"ack_id": one["ack_id"], "kind": "poison"} for one in again]
        by.ok("POST", "/subscriptions/reader/nack", {"nacks": nacks})
        done = by.ok("POST", "/dead-letters/replay", {"kind": "delivery", "rate": 10})
        assert len(done["replayed"]) == len(again)
        assert done["refused"] == []

    def test_purge_and_delete(self, by: Client) -> None:
        """The backlog is purged, and the subscription deleted."""
        assert by.ok("POST", "/subscriptions/reader/purge")["purged"] > 0
        by.ok("DELETE", "/subscriptions/reader")
