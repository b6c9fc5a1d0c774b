"""The backlog of each subscription in a list."""

from __future__ import annotations

from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from tests.kits.client_harness import Harness


def test_of_each_subscription(harness: Harness) -> None:
    """A list returns the backlogs of its page on request, of one customer only."""
    client = harness.client
    published_at = client.now()
    for customer in (None, "acme"):
        client.topics.create(Topic(name="orders"), customer=customer)
        for name in ("busy", "quiet"):
            client.subscriptions.declare(
                Subscription(name=name, topic="orders", filter=f'attributes.kind = "{name}"'),
                customer=customer,
            )
        several = [NewMessage(data=b"x", attributes={"kind": "busy"})] * (3 if customer else 5)
        client.topics.publish("orders", several, customer=customer)
        harness.clock.advance(seconds=60)
    client.subscriptions.pull("busy", max_messages=2, customer="acme")

    def listed(customer: str | None) -> dict[str, tuple[int, int, bool]]:
        found = {}
        for one in client.subscriptions.list(customer=customer, has_backlog=True).items:
            assert one.backlog is not None
            waits = one.backlog
            found[one.name] = (waits.ready, waits.leased, waits.oldest_at is not None)
        return found

    assert listed("acme") == {"busy": (1, 2, True), "quiet": (0, 0, False)}
    assert listed(None) == {"busy": (5, 0, True), "quiet": (0, 0, False)}
    busy = client.subscriptions.list(has_backlog=True, limit=1).items[0].backlog
    assert busy is not None
    assert busy.oldest_at is not None
    assert busy.oldest_at.timestamp() * 1e6 == published_at
    assert {one.backlog for one in client.subscriptions.list().items} == {None}
    bound = client.scoped("acme").subscriptions.list(has_backlog=True).items[0].backlog
    assert bound is not None
    assert (bound.ready, bound.leased) == (1, 2)
