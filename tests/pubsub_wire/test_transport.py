"""The Pub/Sub transport beyond the conformance suite: streams, exactly-once, drift, URLs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.bus.message import (
    ErrorKind,
    Nack,
    NewMessage,
    SettleResult,
    SubscriptionSpec,
    TopicSpec,
)
from penstock.bus.transports.drift import differences
from penstock.bus.transports.pubsub.options import PubsubOptions, parse_pubsub_url
from penstock.bus.transports.pubsub.transport import PubsubTransport
from penstock.cli.root import cli
from penstock.core.clock import SECOND
from penstock.core.errors import Forbidden, InvalidInput, SettingsError, TransportUnavailable
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore
from tests.pubsub_wire.kit import Wire, served

TOPICS = [TopicSpec(name="orders"), TopicSpec(name="work.dlq")]
WORK = SubscriptionSpec(
    name="work", topic="orders", dead_letter_topic="work.dlq", is_exactly_once=True,
    labels={"team": "web"},
)  # fmt: skip
DEAD = SubscriptionSpec(name="dead", topic="work.dlq")
DONE, STALE = SettleResult.DONE, SettleResult.STALE


@pytest.fixture(params=["sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    """One engine: the front end is tested on both."""
    return str(request.param)


@pytest.fixture
def bus(wire: Wire, clock: VirtualClock) -> Iterator[PubsubTransport]:
    """A transport to the front end, with one subscription."""
    made = PubsubTransport(PubsubOptions(project="acme", endpoint=wire.server.address), clock=clock)
    made.declare(TOPICS, [WORK, DEAD])
    yield made
    made.close()


def messages(*bodies: str, key: str | None = None) -> list[NewMessage]:
    """Return messages to publish."""
    return [NewMessage(data=body.encode(), ordering_key=key) for body in bodies]


def test_exactly_once_is_asked_of_the_service(wire: Wire, bus: PubsubTransport) -> None:
    """Another process learns that an ack id is stale; this one need not remember it."""
    bus.publish("orders", messages("a", "b"))
    first, second = bus.pull("work")
    wire.pass_seconds(61)
    wire.pass_seconds(20)
    assert len(bus.pull("work")) == 2
    other = PubsubTransport(PubsubOptions(project="acme", endpoint=wire.server.address))
    assert other.ack("work", [first.ack_id, second.ack_id]) == [STALE, STALE]
    other.close()


def test_poison_is_copied_with_its_reason(bus: PubsubTransport) -> None:
    """The copy says why; the message is acked and does not come again."""
    bus.publish("orders", [NewMessage(data=b"bad", attributes={"a": "1"})])
    (got,) = bus.pull("work")
    nack = Nack(ack_id=got.ack_id, kind=ErrorKind.POISON, error_type="SCHEMA", error="no team")
    assert bus.nack("work", [nack]) == [DONE]
    (dead,) = bus.pull("dead")
    assert dead.data == b"bad"
    assert dead.attributes == {
        "a": "1",
        "dead_letter_subscription": "work",
        "dead_letter_attempts": "1",
        "dead_letter_message_id": got.message_id,
        "dead_letter_error_type": "SCHEMA",
        "dead_letter_error": "no team",
    }
    assert bus.pull("work") == []


def test_a_stream_holds_messages_ahead(wire: Wire, bus: PubsubTransport) -> None:
    """At most `prefetch`; closing returns what the consumer did not take."""
    bus.publish("orders", messages(*"abcdefgh"))
    options = PubsubOptions(project="acme", endpoint=wire.server.address, prefetch=3)
    stream = PubsubTransport(options)
    (first,) = stream.pull("work", max_messages=1, wait_seconds=30)
    assert wire.client.subscriptions.get("work", customer="acme").backlog.leased <= 3
    taken = [first.data]
    assert stream.ack("work", [first.ack_id]) == [DONE]
    while len(taken) < 6:
        for one in stream.pull("work", max_messages=1, wait_seconds=30):
            taken.append(one.data)
            stream.ack("work", [one.ack_id])
    assert taken == [b"a", b"b", b"c", b"d", b"e", b"f"]
    stream.close()
    left: set[bytes] = set()
    while len(left) < 2:  # the server may have leased one while the stream closed
        wire.pass_seconds(60)
        for one in bus.pull("work"):
            left.add(one.data)
            bus.ack("work", [one.ack_id])
    assert left == {b"g", b"h"}


def test_a_stream_reports_what_is_wrong(wire: Wire, bus: PubsubTransport) -> None:
    """A deleted subscription is an error of the next pull, not a silent wait."""
    assert bus.read_subscription("work") == WORK
    options = PubsubOptions(project="acme", endpoint=wire.server.address, prefetch=3)
    stream = PubsubTransport(options)
    assert stream.pull("work") == []
    wire.client.subscriptions.delete("work", customer="acme")
    with pytest.raises(Exception, match="no subscription work"):
        stream.pull("work", wait_seconds=30)
    stream.close()


def test_drift_is_found_and_fixed(wire: Wire, bus: PubsubTransport) -> None:
    """What was changed in the service is named; declaring again restores it."""
    assert differences(bus, TOPICS, [WORK, DEAD]) == []
    subscriber = wire.subscriber()
    name = subscriber.subscription_path("acme", "work")
    subscriber.update_subscription(
        subscription={"name": name, "ack_deadline_seconds": 30, "labels": {}},
        update_mask={"paths": ["ack_deadline_seconds", "labels", "retry_policy"]},
    )
    found = differences(bus, TOPICS, [WORK, DEAD])
    assert [one.field for one in found] == [
        "ack_deadline_us", "min_backoff_us", "max_backoff_us", "labels",
    ]  # fmt: skip
    bus.declare(TOPICS, [WORK, DEAD])
    assert differences(bus, TOPICS, [WORK, DEAD]) == []
    with pytest.raises(InvalidInput, match="filter"):
        bus.declare([], [replace(WORK, filter="attributes:x")])
    with pytest.raises(InvalidInput, match="max_attempts"):
        bus.declare([], [replace(WORK, max_attempts=4)])


def test_commands_show_and_fix_drift(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`diff` exits with 1 and names what differs, `apply` fixes it, `doctor` reports it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "declared_bus.py").write_text(
        "from penstock.bus import SubscriptionSpec, TopicSpec\n"
        "topics = [TopicSpec(name='orders'), TopicSpec(name='work.dlq')]\n"
        "work = SubscriptionSpec(name='work', topic='orders', dead_letter_topic='work.dlq')\n"
    )
    monkeypatch.setenv("PENSTOCK_TRANSPORT_URL", f"pubsub://acme?endpoint={wire.server.address}")
    monkeypatch.setenv("PENSTOCK_DECLARATIONS", "declared_bus.py")
    run = CliRunner().invoke
    shown = run(cli, ["subscriptions", "diff"])
    assert (shown.exit_code, "subscription work: missing" in shown.output) == (1, True)
    assert "topic orders: missing" in run(cli, ["doctor"]).output
    assert run(cli, ["subscriptions", "apply", "--yes"]).exit_code == 0
    shown = run(cli, ["subscriptions", "diff", "--json"])
    assert shown.exit_code == 0
    assert "missing" not in shown.output


def test_keys_and_absent_servers(open_store: OpenStore, clock: VirtualClock) -> None:
    """A missing key is Forbidden; a server that is away is TransportUnavailable."""
    with served(open_store(), clock, needs_key=True) as keyed:
        options = PubsubOptions(project="acme", endpoint=keyed.server.address)
        with pytest.raises(Forbidden):
            PubsubTransport(options).read_topic("orders")
        key = keyed.client.keys.create("k", "operator").key
        trusted = PubsubTransport(replace(options, api_key=key))
        assert trusted.read_topic("orders") is None
        trusted.close()
    away = PubsubTransport(replace(options, call_seconds=0.2))
    with pytest.raises(TransportUnavailable):
        away.publish("orders", messages("x"))
    away.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("pubsub://acme", PubsubOptions(project="acme")),
        (
            "pubsub://example.com:acme?endpoint=localhost:8085&prefetch=50",
            PubsubOptions(project="example.com:acme", endpoint="localhost:8085", prefetch=50),
        ),
    ],
)
def test_urls(url: str, expected: PubsubOptions) -> None:
    """A URL names the project, and optionally an endpoint."""
    assert parse_pubsub_url(url) == expected


@pytest.mark.parametrize(
    "url",
    ["pubsub://", "nats://x", "pubsub://a/b", "pubsub://a?key=x", "pubsub://a?endpoint=x",
     "pubsub://a?prefetch=-1"],
)  # fmt: skip
def test_bad_urls(url: str) -> None:
    """What a URL may not contain is refused; a key is never part of it."""
    with pytest.raises(SettingsError):
        parse_pubsub_url(url)


def test_ack_deadline_is_the_subscriptions(bus: PubsubTransport) -> None:
    """Deliveries name their deadline, and whether there are dead letters."""
    bus.publish("orders", messages("x"))
    (got,) = bus.pull("work")
    assert got.deadline - got.publish_time == 60 * SECOND
    assert got.has_dead_letters
