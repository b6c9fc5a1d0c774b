"""Publishing: sends every message under a `Nats-Msg-Id` until the server has stored it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.bus.message import NewMessage
from penstock.bus.rules import body_hash
from penstock.bus.transports.nats import headers, naming
from penstock.bus.transports.nats.administration import Administration, StreamFacts
from penstock.bus.transports.nats.connection import NatsConnection
from penstock.core.clock import Clock
from penstock.core.errors import DuplicateRequest, InvalidInput, TransportUnavailable
from penstock.core.ids import new_secret

if TYPE_CHECKING:
    from nats.js.api import PubAck

RETRY_SECONDS: Final = 0.2
CONCURRENT_MAX: Final = 256
HEADERS_BYTES: Final = 2_048


class Publisher:
    """Publishes the messages of one connection."""

    def __init__(
        self, connection: NatsConnection, administration: Administration, clock: Clock
    ) -> None:
        self._connection = connection
        self._administration = administration
        self._clock = clock

    async def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[str]:
        """Store messages; return their ids. Messages of one ordering key keep their order."""
        facts = await self._administration.topic(topic)
        _check_twins(messages)
        await self._check_sizes(messages)
        queues: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            own = f"#{index}" if message.dedupe_id is None else f"={message.dedupe_id}"
            queues.setdefault(own if message.ordering_key is None else f"k{message.ordering_key}",
                              []).append(index)  # fmt: skip
        limit = asyncio.Semaphore(CONCURRENT_MAX)
        ids: dict[int, str] = {}

        async def one_after_the_other(indexes: list[int]) -> None:
            async with limit:
                for index in indexes:
                    ids[index] = await self._publish(topic, facts, messages[index])

        await asyncio.gather(*(one_after_the_other(queue) for queue in queues.values()))
        return [ids[index] for index in range(len(messages))]

    async def _publish(self, topic: str, facts: StreamFacts, message: NewMessage) -> str:
        message_id = message.dedupe_id or f"penstock/{new_secret()}"
        shard = naming.shard_of(message.ordering_key, facts.shards)
        prefix = self._connection.options.prefix
        subject = naming.subject_of(prefix, topic, shard, "m")
        ack = await self._stored(subject, message.data, headers.headers_of(message, message_id))
        if ack.duplicate and message.dedupe_id is not None:
            await self._check_same(topic, ack.seq, message)
        return naming.message_id_of(facts.epoch, ack.seq)

    async def _stored(self, subject: str, data: bytes, made: dict[str, str]) -> PubAck:
        """Publish until the server replies; it stores a repeated message once."""
        js = await self._connection.jetstream()
        until = self._clock.monotonic() + self._connection.options.publish_seconds
        while True:
            try:
                async with self._connection.errors("publishing"):
                    return await js.publish(subject, data, headers=made)
            except TransportUnavailable:
                if self._clock.monotonic() >= until:
                    raise
                await self._connection.pause(RETRY_SECONDS)

    async def _check_same(self, topic: str, sequence: int, message: NewMessage) -> None:
        """Raise DuplicateRequest unless the message that was stored first has the same content."""
        import nats.js.errors  # optional dependency, imported on use

        js = await self._connection.jetstream()
        stream = naming.stream_of(self._connection.options.prefix, topic)
        async with self._connection.errors("publishing"):
            try:
                stored = await js.get_msg(stream, sequence, direct=True)
            except nats.js.errors.NotFoundError:
                return
        before = (stored.headers or {}).get(headers.BODY_HASH)
        if before is not None and before != body_hash(message):
            raise _other_body(message)

    async def _check_sizes(self, messages: Sequence[NewMessage]) -> None:
        client = await self._connection.client()
        most = client.max_payload - HEADERS_BYTES
        for index, message in enumerate(messages):
            size = len(message.data) + sum(len(k) + len(v) for k, v in message.attributes.items())
            if size > most:
                raise InvalidInput(
                    f"messages[{index}].data", f"at most {most} bytes", f"{size} bytes",
                    "Raise max_payload in the configuration of the NATS servers.",
                )  # fmt: skip


def _check_twins(messages: Sequence[NewMessage]) -> None:
    first: dict[str, str] = {}
    for message in messages:
        if message.dedupe_id is not None:
            found = body_hash(message)
            if first.setdefault(message.dedupe_id, found) != found:
                raise _other_body(message)


def _other_body(message: NewMessage) -> DuplicateRequest:
    return DuplicateRequest(
        f"dedupe id {message.dedupe_id} was used for a message with other content"
    )
