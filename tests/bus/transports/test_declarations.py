"""Every transport: declarations can be read back, and differences are found and fixed."""

from dataclasses import replace

import pytest

from penstock.bus.message import SubscriptionSpec, TopicSpec
from penstock.bus.transports.drift import differences
from penstock.core.clock import DAY, SECOND
from penstock.core.errors import InvalidInput
from tests.bus.transports.rig import Rig

TOPICS = [
    TopicSpec(name="orders", retention_us=3 * DAY),
    TopicSpec(name="orders.dlq"),
]
PLAIN = SubscriptionSpec(name="orders-plain", topic="orders")
FULL = SubscriptionSpec(
    name="orders-full",
    topic="orders",
    ack_deadline_us=30 * SECOND,
    min_backoff_us=2 * SECOND,
    max_backoff_us=20 * SECOND,
    max_attempts=7,
    dead_letter_topic="orders.dlq",
    retention_us=2 * DAY,
    filter='attributes.region = "eu"',
)


def test_a_declaration_is_read_back(rig: Rig) -> None:
    """Every setting comes back as it was declared; what does not exist is None."""
    assert rig.bus.read_topic("orders") is None
    assert rig.bus.read_subscription("orders-full") is None
    ordered = replace(FULL, name="orders-in-order", is_ordered=True, filter=None)
    declared = [PLAIN, FULL, *([ordered] if rig.can.ordering_keys else [])]
    rig.bus.declare(TOPICS, declared)
    assert [rig.other.read_topic(topic.name) for topic in TOPICS] == TOPICS
    assert [rig.other.read_subscription(one.name) for one in declared] == declared
    assert differences(rig.other, TOPICS, declared) == []


def test_drift_is_found_and_fixed(rig: Rig) -> None:
    """Missing resources and changed settings are listed by name; declaring again fixes them."""
    missing = differences(rig.bus, TOPICS, [FULL])
    assert [(one.kind, one.name, one.field) for one in missing] == [
        ("topic", "orders", ""), ("topic", "orders.dlq", ""), ("subscription", "orders-full", ""),
    ]  # fmt: skip
    rig.bus.declare(TOPICS, [FULL])
    wanted = replace(FULL, ack_deadline_us=45 * SECOND, max_attempts=9, dead_letter_topic=None)
    shorter = [replace(TOPICS[0], retention_us=2 * DAY), TOPICS[1]]
    found = differences(rig.other, shorter, [wanted])
    assert [(one.name, one.field, one.actual) for one in found] == [
        ("orders", "retention_us", 3 * DAY),
        ("orders-full", "ack_deadline_us", 30 * SECOND),
        ("orders-full", "max_attempts", 7),
        ("orders-full", "dead_letter_topic", "orders.dlq"),
    ]
    assert str(found[2]) == "subscription orders-full: max_attempts is 7, not 9"
    rig.other.declare(shorter, [wanted])
    assert differences(rig.bus, shorter, [wanted]) == []


def test_immutable_settings(rig: Rig) -> None:
    """The topic of a subscription is immutable: the difference says so, and declaring refuses."""
    rig.bus.declare(TOPICS, [PLAIN])
    moved = replace(PLAIN, topic="orders.dlq")
    (found,) = differences(rig.bus, [], [moved])
    assert not found.is_mendable
    assert "recreate it" in str(found)
    with pytest.raises(InvalidInput, match="topic"):
        rig.bus.declare([], [moved])
