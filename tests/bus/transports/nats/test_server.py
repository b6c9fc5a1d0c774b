"""The NATS transport on a real server: dead letters, other clients, drift, restarts."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client as NatsClient

from penstock.bus.message import (
    ERROR_KIND,
    ERROR_TYPE,
    ORIGIN_MESSAGE_ID,
    SOURCE_DELIVERY_COUNT,
    ErrorKind,
    NewMessage,
    SubscriptionSpec,
)
from penstock.bus.transports.drift import differences
from penstock.bus.transports.nats.dead_letters import GivenUp
from penstock.bus.transports.nats.options import NatsOptions
from penstock.bus.transports.nats.transport import NatsTransport
from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput, TransportUnavailable
from tests.bus.transports.rig import NUMBERS, SPEED, Rig, bodies
from tests.kits.nats import NatsServer

QUICK: dict[str, Any] = {"min_backoff_us": SECOND, "max_backoff_us": SECOND}


def no_time(_: float) -> None:
    """Advance nothing: these tests wait for the server."""


@pytest.fixture
def prefix() -> str:
    """A first word of names that no other test uses."""
    return f"s{next(NUMBERS)}"


@pytest.fixture
def on_nats(nats_server: NatsServer, prefix: str) -> Iterator[Rig]:
    """A rig on the shared server."""
    options = NatsOptions(servers=(nats_server.url,), prefix=prefix, speed=SPEED)
    bus, other = (NatsTransport(options, jitter=lambda: 0.0) for _ in range(2))
    yield Rig(bus, other, no_time, is_virtual=False)
    bus.close()
    other.close()


def with_client(server: NatsServer, work: Any) -> Any:
    """Run a coroutine with another client of the server, like another program."""

    async def body() -> Any:
        client: NatsClient = await nats.connect(server.url)
        try:
            return await work(client, client.jetstream())
        finally:
            await client.close()

    made: Coroutine[Any, Any, Any] = body()
    return asyncio.run(made)


def test_a_crash_after_the_last_attempt_makes_one_dead_letter(on_nats: Rig) -> None:
    """The handler sees exactly the attempts of the policy; the next delivery is moved unseen."""
    topic = on_nats.declare(max_attempts=3, ack_deadline_us=10 * SECOND, **QUICK)
    (message_id,) = on_nats.publish(topic, "x", attributes={"a": "1"})
    assert [on_nats.one().attempt for _ in range(3)] == [1, 2, 3]
    assert on_nats.bus.pull("work", wait_seconds=2) == []
    dead = on_nats.one("work.dead")
    assert dead.attributes[SOURCE_DELIVERY_COUNT] == "3"
    assert dead.attributes[ERROR_TYPE] == "DEADLINE_EXCEEDED"
    assert (dead.attributes[ORIGIN_MESSAGE_ID], dead.attributes["a"]) == (message_id, "1")
    assert on_nats.is_empty()


def test_a_repeated_move_makes_one_dead_letter(on_nats: Rig) -> None:
    """The mover may be interrupted between copy and ack: the copy is stored once."""
    topic = on_nats.declare()
    on_nats.publish(topic, "x")
    got = on_nats.one()
    bus = on_nats.bus
    assert isinstance(bus, NatsTransport)
    failure = GivenUp(
        sequence=1, attempts=1, kind=ErrorKind.POISON, error_type="Boom", error="broken"
    )

    async def moved() -> list[bool]:
        facts = await bus._administration.subscription("work")
        return [await bus._mover.move(facts.spec, facts.topic, failure) for _ in range(3)]

    assert bus._connection.call(moved()) == [True] * 3
    assert bodies(on_nats.pull("work.dead")) == ["x"]
    assert bus.ack("work", [got.ack_id])


def test_what_another_client_terminates_is_a_dead_letter(
    on_nats: Rig, nats_server: NatsServer, prefix: str
) -> None:
    """A plain NATS client works with the streams; its `term` reaches the dead letters once."""
    topic = on_nats.declare()

    async def work(client: NatsClient, js: Any) -> None:
        ack = await js.publish(f"{prefix}.t.{topic}.any.m", b"foreign", headers={"region": "eu"})
        pull = await js.pull_subscribe_bind(consumer="work", stream=ack.stream)
        (message,) = await pull.fetch(1, timeout=5)
        await message.term()
        await client.flush()

    with_client(nats_server, work)
    bus = on_nats.bus
    assert isinstance(bus, NatsTransport)
    for _ in range(50):
        bus.move_dead_letters()
        if dead := bus.pull("work.dead", wait_seconds=0.1):
            break
    assert [(one.data, one.attributes["region"]) for one in dead] == [(b"foreign", "eu")]
    assert dead[0].attributes[ERROR_KIND] == "poison"
    assert bus.move_dead_letters() == 0
    assert on_nats.is_empty("work.dead")


def test_an_unreadable_message_is_a_dead_letter(
    on_nats: Rig, nats_server: NatsServer, prefix: str
) -> None:
    """Headers that Penstock cannot read do not stop the subscription."""
    topic = on_nats.declare()

    async def work(_: NatsClient, js: Any) -> None:
        broken = {"Penstock-Attributes": "%%%"}
        await js.publish(f"{prefix}.t.{topic}.any.m", b"broken", headers=broken)
        await js.publish(f"{prefix}.t.{topic}.any.m", b"good")

    with_client(nats_server, work)
    assert bodies(on_nats.pull()) == ["good"]
    dead = on_nats.one("work.dead")
    assert (dead.data, dead.attributes[ERROR_KIND]) == (b"broken", "poison")
    assert dead.attributes[ERROR_TYPE] == "UNREADABLE_HEADERS"


def test_changes_with_other_tools_are_drift(
    on_nats: Rig, nats_server: NatsServer, prefix: str
) -> None:
    """A consumer that was changed on the server is reported, and fixed by declaring."""
    topic = on_nats.declare()
    spec = SubscriptionSpec(name="work", topic=topic, dead_letter_topic="work.dlq")
    assert differences(on_nats.bus, [], [spec]) == []

    async def work(_: NatsClient, js: Any) -> None:
        config = (await js.consumer_info(f"{prefix}_{topic}", "work")).config
        config.max_deliver, config.ack_wait = 2, 30.0
        await js.add_consumer(f"{prefix}_{topic}", config)

    with_client(nats_server, work)
    found = differences(on_nats.bus, [], [spec])
    assert [(one.field, one.actual) for one in found] == [
        ("ack_deadline_us", int(30 * SPEED - 10) * SECOND), ("max_attempts", 2),
    ]  # fmt: skip
    on_nats.declare()
    assert differences(on_nats.bus, [], [spec]) == []


def test_oversized_messages_are_refused_by_name(tmp_path: Path) -> None:
    """A message above the server's max_payload is refused before anything is sent."""
    server = NatsServer(tmp_path, payload=1_000_000).start()
    try:
        bus = NatsTransport(server.url)
        rig = Rig(bus, bus, no_time, is_virtual=False)
        topic = rig.declare()
        with pytest.raises(InvalidInput, match=r"messages\[1\].*max_payload"):
            bus.publish(topic, [NewMessage(data=b"x"), NewMessage(data=b"x" * 1_000_000)])
        assert rig.is_empty()
        bus.close()
    finally:
        server.kill()


def test_a_restart_of_the_server(tmp_path: Path) -> None:
    """While the server is down calls fail; afterwards everything continues, nothing is lost."""
    server = NatsServer(tmp_path).start()
    options = NatsOptions(servers=(server.url,), request_seconds=1.0, publish_seconds=0.5)
    bus = NatsTransport(options)
    try:
        rig = Rig(bus, bus, no_time, is_virtual=False)
        topic = rig.declare()
        rig.publish(topic, "before")
        got = rig.one()
        server.kill()
        with pytest.raises(TransportUnavailable):
            rig.publish(topic, "lost?", dedupe_id="d1")
        with pytest.raises(TransportUnavailable):
            bus.ack("work", [got.ack_id])
        server.start()
        again = NatsTransport(NatsOptions(servers=(server.url,)))
        for message in (NewMessage(data=b"lost?", dedupe_id="d1"),) * 2:
            again.publish(topic, [message])
        assert again.ack("work", [got.ack_id]) != []
        assert bodies(rig.pull()) == ["lost?"]
        again.close()
    finally:
        bus.close()
        server.kill()


def test_no_server() -> None:
    """Without a server the first call fails, and says what was tried."""
    bus = NatsTransport("nats://127.0.0.1:1")
    with pytest.raises(TransportUnavailable, match="connecting"):
        bus.read_topic("orders")
    bus.close()
    bus.close()
