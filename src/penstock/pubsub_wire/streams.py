"""Streaming pull: messages are sent as they become ready, within the client's flow control.

Each stream has two tasks: one reads the client's requests (acks, deadlines, keep-alives), the other
pulls and sends messages. A stream that waits for messages or for acks needs no thread. Messages
that were leased but could not be sent are released without counting an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

import grpc.aio
from google.pubsub_v1 import types

from penstock.bus.message import Delivery
from penstock.bus.store.topics import SubscriptionRow, channel
from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput
from penstock.pubsub_wire.calls import WireCaller
from penstock.pubsub_wire.errors import Code, WireError
from penstock.pubsub_wire.handlers import FrontEnd
from penstock.pubsub_wire.messages import delivery_size, received_message
from penstock.pubsub_wire.names import parse_name
from penstock.pubsub_wire.outstanding import StreamWindow
from penstock.pubsub_wire.settling import ack_now, check_pullable, extend_now, note_extended
from penstock.server.polling.poll_hub import PollKey

BATCH: Final = 250
"""Maximum number of messages per response."""
BATCH_BYTES: Final = 4_000_000
WINDOW: Final = 5_000
"""Maximum number of outstanding messages of any client, and the default."""
WINDOW_BYTES: Final = 100_000_000
IDLE_SECONDS: Final = 20.0
"""Seconds without messages after which a keep-alive is sent."""
FULL_SECONDS: Final = 1.0
"""Seconds after which a stream that reached its limits checks for passed deadlines."""
DEADLINES: Final = (10, 600)
Response: Any = types.StreamingPullResponse.pb()


async def streaming_pull(front: FrontEnd, caller: WireCaller, context: Any) -> None:
    """Serve one stream until the client or an error ends it."""
    request = await context.read()
    if request is grpc.aio.EOF:
        raise InvalidInput("subscription", "a first request that names a subscription", None)
    stream = _Stream(front, caller, context, request)
    reader = asyncio.ensure_future(stream.read_all(request))
    sender = asyncio.ensure_future(stream.send_all())
    try:
        await asyncio.wait({reader, sender}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sender, reader):
            if task.done():
                await task  # raises the error that ended the stream
    finally:
        for task in (reader, sender):
            task.cancel()
        await asyncio.gather(reader, sender, return_exceptions=True)
        stream.close()


class _Stream:
    """One stream."""

    def __init__(self, front: FrontEnd, caller: WireCaller, context: Any, request: Any) -> None:
        self._front = front
        self._caller = caller
        self._context = context
        self._project, self._name = parse_name(
            request.subscription, "subscriptions", "subscription"
        )
        self._deadline_s = _deadline(request.stream_ack_deadline_seconds)
        self._window = StreamWindow(
            front.outstanding,
            _limit(request.max_outstanding_messages, WINDOW, "max_outstanding_messages"),
            _limit(request.max_outstanding_bytes, WINDOW_BYTES, "max_outstanding_bytes"),
        )
        self._sends_idle = request.protocol_version >= 1
        self._writing = asyncio.Lock()
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Drop the outstanding messages; their leases expire."""
        self._window.close()
        if not self._gone.done():
            self._gone.set_result(None)

    # -- what the client sends --------------------------------------------------------------------

    async def read_all(self, request: Any) -> None:
        """Process requests until the client ends the stream."""
        await self._process(request)
        while True:
            request = await self._context.read()
            if request is grpc.aio.EOF:
                return
            if request.subscription:
                raise InvalidInput(
                    "subscription", "only in the first request", request.subscription
                )
            if request.stream_ack_deadline_seconds:
                self._deadline_s = _deadline(request.stream_ack_deadline_seconds)
            await self._process(request)

    async def _process(self, request: Any) -> None:
        if request.ack_ids:
            await self._ack(list(request.ack_ids))
        ids, seconds = list(request.modify_deadline_ack_ids), list(request.modify_deadline_seconds)
        if len(ids) != len(seconds):
            expected = "as many as modify_deadline_ack_ids"
            raise InvalidInput("modify_deadline_seconds", expected, len(seconds))
        for one in sorted(set(seconds)):
            await self._extend([i for i, s in zip(ids, seconds, strict=True) if s == one], one)

    async def _ack(self, ack_ids: list[str]) -> None:
        found = await self._front.run(
            lambda: ack_now(self._caller, self._project, self._name, ack_ids)
        )
        self._front.outstanding.settled(ack_ids)
        if found.is_exactly_once:
            confirmed = Response()
            confirmed.acknowledge_confirmation.ack_ids.extend(found.done)
            confirmed.acknowledge_confirmation.invalid_ack_ids.extend(found.stale)
            await self._write(confirmed)

    async def _extend(self, ack_ids: list[str], seconds: int) -> None:
        found = await self._front.run(
            lambda: extend_now(self._caller, self._project, self._name, ack_ids, seconds)
        )
        note_extended(self._front, ack_ids, seconds)
        if found.is_exactly_once:
            confirmed = Response()
            confirmed.modify_ack_deadline_confirmation.ack_ids.extend(found.done)
            confirmed.modify_ack_deadline_confirmation.invalid_ack_ids.extend(found.stale)
            await self._write(confirmed)

    # -- what the client receives -----------------------------------------------------------------

    async def send_all(self) -> None:
        """Pull and send until the stream ends."""
        sub, found = await self._front.lease(self._pull, self._return)
        await self._send(sub, found, greets=True)
        found = []
        question = PollKey(
            channel(sub.subscription_key), customer=self._project, keep_listening=False
        )
        while not self._front.waiting.is_stopping:
            if found:
                await self._send(sub, found)
            self._window.expire(self._front.clock.monotonic())
            if self._window.free_messages < 1:
                await self._window.wait(FULL_SECONDS)
                found = []
                continue
            pulled = await self._front.waiting.until(
                question, IDLE_SECONDS, self._attempt, self._gone
            )
            if pulled:
                ((sub, found),) = pulled
            else:
                found = []
                if self._sends_idle:
                    await self._write(Response())
        raise WireError(Code.UNAVAILABLE, "The server is stopping; connect again.")

    async def _attempt(self) -> list[tuple[SubscriptionRow, list[Delivery]]]:
        sub, found = await self._front.lease(self._pull, self._return)
        return [(sub, found)] if found else []

    def _pull(self) -> tuple[SubscriptionRow, list[Delivery]]:
        self._front.check_again(self._caller)
        sub, found = self._caller.bus(self._project).pull_bounded(
            self._name,
            max_messages=max(1, min(BATCH, self._window.free_messages)),
            max_bytes=max(1, min(BATCH_BYTES, self._window.free_bytes)),
            deadline_us=self._deadline_s * SECOND,
        )
        check_pullable(sub)
        return sub, found

    def _return(self, pulled: tuple[SubscriptionRow, list[Delivery]]) -> None:
        """Return what was leased while the client disconnected."""
        if found := pulled[1]:
            self._caller.bus(self._project).release(self._name, [one.ack_id for one in found])

    async def _send(
        self, sub: SubscriptionRow, found: Sequence[Delivery], *, greets: bool = False
    ) -> None:
        """Send messages; `greets`: after a response that has the properties only."""
        left = list(found)
        until = self._front.clock.monotonic() + self._deadline_s
        try:
            if greets:
                await self._write(_properties(sub))
            for part in _parts(found):
                response = _properties(sub)
                for one in part:
                    self._window.add(one.ack_id, delivery_size(one), until)
                response.received_messages.extend(
                    received_message(one, self._project) for one in part
                )
                await self._write(response)
                del left[: len(part)]
        finally:
            if left:
                await asyncio.shield(self._release([one.ack_id for one in left]))

    async def _release(self, ack_ids: list[str]) -> None:
        """Return messages that were leased but not sent."""
        bus = self._caller.bus(self._project)
        await self._front.run(lambda: bus.release(self._name, ack_ids))

    async def _write(self, response: Any) -> None:
        async with self._writing:
            await self._context.write(response)


def _parts(found: Sequence[Delivery]) -> Iterator[list[Delivery]]:
    """Divide deliveries into responses of a bounded size."""
    part: list[Delivery] = []
    size = 0
    for one in found:
        own = delivery_size(one)
        if part and size + own > BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append(one)
        size += own
    if part:
        yield part


def _properties(sub: SubscriptionRow) -> Any:
    """Return a response with the properties that clients adapt to."""
    made = Response()
    made.subscription_properties.exactly_once_delivery_enabled = sub.is_exactly_once
    made.subscription_properties.message_ordering_enabled = sub.is_ordered
    return made


def _deadline(seconds: int) -> int:
    if not DEADLINES[0] <= seconds <= DEADLINES[1]:
        expected = f"{DEADLINES[0]} to {DEADLINES[1]}"
        raise InvalidInput("stream_ack_deadline_seconds", expected, seconds)
    return seconds


def _limit(given: int, most: int, field: str) -> int:
    """Return a limit of the client; 0 or less is no limit."""
    if given < 0 and field == "max_outstanding_messages":
        return most
    return most if given <= 0 else min(given, most)
