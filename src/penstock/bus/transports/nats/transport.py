"""NATS JetStream as a transport.

The server manages leases: it redelivers an unsettled message after its deadline and the backoff of
its attempt. It also counts attempts. This module settles messages that must not reach a handler
(too many attempts, unreadable, older than the retention, not matched by the filter).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.bus import rules
from penstock.bus.message import (
    Delivery,
    ErrorKind,
    Handled,
    Nack,
    NewMessage,
    ServiceRevision,
    SettleResult,
    SubscriptionSpec,
    TopicSpec,
)
from penstock.bus.transports.capabilities import NATS, TransportCapabilities
from penstock.bus.transports.nats import headers, naming
from penstock.bus.transports.nats.administration import Administration, SubscriptionFacts
from penstock.bus.transports.nats.connection import NatsConnection
from penstock.bus.transports.nats.dead_letters import Mover
from penstock.bus.transports.nats.fetching import (
    SHARD_SECONDS,
    SHARD_WAIT_SECONDS,
    WAIT_SECONDS,
    Fetcher,
)
from penstock.bus.transports.nats.options import NatsOptions, parse_nats_url
from penstock.bus.transports.nats.publishing import Publisher
from penstock.bus.transports.nats.settling import Held, Settling
from penstock.core.clock import SECOND, Clock, SystemClock
from penstock.core.errors import InvalidInput
from penstock.core.filters import attributes as filters

if TYPE_CHECKING:
    from nats.aio.msg import Msg

PULL_MAX: Final = 1_000
WAIT_MAX: Final = 60.0
MOVE_EVERY_SECONDS: Final = 10.0
DEADLINE_EXCEEDED: Final = "DEADLINE_EXCEEDED"
UNREADABLE: Final = "UNREADABLE_HEADERS"


class NatsTransport:
    """Transport over NATS JetStream; see `docs/how-to/nats.md`."""

    def __init__(
        self,
        where: str | NatsOptions,
        *,
        clock: Clock | None = None,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        """Prepare a transport; it connects on first use.

        where: a URL such as `nats://one:4222,two:4222?replicas=3`, or options.
        """
        options = parse_nats_url(where) if isinstance(where, str) else where
        self._options = options
        self._clock = clock or SystemClock()
        made = jitter or random.Random().random  # noqa: S311 - spreads retries
        self._connection = NatsConnection(options)
        self._administration = Administration(self._connection, self._clock)
        self._publisher = Publisher(self._connection, self._administration, self._clock)
        self._mover = Mover(self._connection, self._administration)
        self._settling = Settling(self._connection, self._mover, self._clock, made)
        self._fetchers: dict[tuple[str, str], Fetcher] = {}
        self._moved_at = 0.0
        self._first_shard = 0

    @property
    def capabilities(self) -> TransportCapabilities:
        """The transport's guarantees."""
        return NATS

    def declare(
        self, topics: Sequence[TopicSpec], subscriptions: Sequence[SubscriptionSpec]
    ) -> None:
        """Create or update streams and consumers as described; idempotent."""
        self._connection.call(self._administration.declare(topics, subscriptions))

    def read_topic(self, name: str) -> TopicSpec | None:
        """Return a topic as the server has it; None if there is none."""
        found = self._connection.call(self._administration.find_topic(name))
        return None if found is None else found.spec

    def read_subscription(self, name: str) -> SubscriptionSpec | None:
        """Return a subscription as the server has it; None if there is none."""
        found = self._connection.call(self._administration.find_subscription(name))
        return None if found is None else found.spec

    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[str]:
        """Store messages durably; return their ids in order.

        A message without a reply is sent again under the same `Nats-Msg-Id`, so it is stored
        once; messages of one ordering key are sent one after the other.
        """
        rules.check_batch(list(messages))
        return self._connection.call(self._publisher.publish(topic, messages))

    def pull(
        self, subscription: str, *, max_messages: int = 100, wait_seconds: float = 0.0
    ) -> list[Delivery]:
        """Lease up to `max_messages`, waiting up to `wait_seconds` for the first."""
        if not 1 <= max_messages <= PULL_MAX:
            raise InvalidInput("max_messages", f"1 to {PULL_MAX}", max_messages)
        return self._connection.call(self._pull(subscription, max_messages, wait_seconds))

    def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> list[SettleResult]:
        """Move the deadline to `seconds` from now; 0 nacks the message."""
        if rules.check_extension(seconds) == 0:
            return self.nack(subscription, [Nack(ack_id=ack_id) for ack_id in ack_ids])
        return self._settle_all(
            subscription, ack_ids, lambda held, _: self._settling.extend(held, seconds * SECOND)
        )

    def ack(
        self,
        subscription: str,
        ack_ids: Sequence[str],
        *,
        handled: Sequence[Handled] = (),
        by: ServiceRevision | None = None,
    ) -> list[SettleResult]:
        """Ack deliveries; an ack id that is stale in this process is reported as STALE."""
        del handled, by  # the server cannot store them
        settling = self._settling
        return self._settle_all(
            subscription, ack_ids, lambda held, _: settling.settle(held, settling.ack(held))
        )

    def nack(
        self, subscription: str, nacks: Sequence[Nack], *, by: ServiceRevision | None = None
    ) -> list[SettleResult]:
        """Nack deliveries; poison and the last attempt become dead letters immediately."""
        del by  # as above
        settling = self._settling
        ack_ids = [nack.ack_id for nack in nacks]
        for nack in nacks:
            rules.check_nack(nack)
        return self._settle_all(
            subscription,
            ack_ids,
            lambda held, index: settling.settle(held, settling.nack(held, nacks[index])),
        )

    def release(self, subscription: str, ack_ids: Sequence[str]) -> list[SettleResult]:
        """Return deliveries immediately; the server counts the attempt."""
        settling = self._settling
        return self._settle_all(
            subscription, ack_ids, lambda held, _: settling.settle(held, settling.delay(held, 0))
        )

    def move_dead_letters(self) -> int:
        """Move messages that servers stopped delivering to their dead-letter topics; return how
        many.

        A pull does it every ten seconds, so only other programs need to call it.
        """
        return self._connection.call(self._mover.run_once())

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._connection.close()
        self._fetchers.clear()

    # -- pulling ---------------------------------------------------------------------------------

    async def _pull(self, name: str, n: int, wait: float) -> list[Delivery]:
        until = self._clock.monotonic() + min(wait, WAIT_MAX)
        facts = await self._administration.subscription(name)
        await self._move_sometimes(facts)
        passes = 0
        while True:
            left = max(0.0, until - self._clock.monotonic())
            messages = await self._fetch(facts, n, left, is_idle=passes > 0)
            passes += 1
            found = [await self._received(facts, message) for message in messages]
            deliveries = [one for one in found if one is not None]
            if deliveries or self._clock.monotonic() >= until:
                return deliveries

    async def _fetch(
        self, facts: SubscriptionFacts, n: int, wait: float, *, is_idle: bool
    ) -> list[Msg]:
        plain = self._fetcher(facts, naming.ANY)
        if not facts.spec.is_ordered:
            messages = await plain.ready(n)
            if not messages and wait > 0:
                messages = await plain.one(min(wait, WAIT_SECONDS))
                if messages and n > 1:
                    messages += await plain.ready(n - 1)
            return messages
        seconds = min(wait, SHARD_WAIT_SECONDS) if is_idle else SHARD_SECONDS
        messages = await self._fetch_shards(facts, n, seconds)
        if len(messages) < n:
            messages += await plain.ready(n - len(messages))
        return sorted(messages, key=lambda message: message.metadata.sequence.stream)

    async def _fetch_shards(self, facts: SubscriptionFacts, n: int, seconds: float) -> list[Msg]:
        """Return at most one message per shard; the first shard rotates."""
        count = facts.topic.shards
        self._first_shard += 1
        order = [str((self._first_shard + index) % count) for index in range(count)]
        for start in range(0, count, n):
            shards = [self._fetcher(facts, shard) for shard in order[start : start + n]]
            parts = await asyncio.gather(*(shard.one(seconds) for shard in shards))
            found = [message for part in parts for message in part]
            if found:
                return found
        return []

    def _fetcher(self, facts: SubscriptionFacts, shard: str) -> Fetcher:
        stream = naming.stream_of(self._options.prefix, facts.spec.topic)
        key = (stream, naming.consumer_of(facts.spec.name, shard))
        if key not in self._fetchers:
            self._fetchers[key] = Fetcher(self._connection, *key)
        return self._fetchers[key]

    async def _received(self, facts: SubscriptionFacts, message: Msg) -> Delivery | None:
        """Return the delivery of a message; None if no handler may see it."""
        spec, attempt = facts.spec, message.metadata.num_delivered
        held = Held(facts, naming.Ticket(spec.name, message.reply))
        now = self._clock.now()
        published = held.ticket.published_ns // 1_000
        if spec.dead_letter_topic is not None and attempt > spec.max_attempts:
            await self._settling.give_up(held, ErrorKind.TRANSIENT, DEADLINE_EXCEEDED,
                             "not acked before its deadline")  # fmt: skip
            return None
        try:
            received = headers.read_headers(message.headers)
        except ValueError as error:
            if spec.dead_letter_topic is not None:
                await self._settling.give_up(held, ErrorKind.POISON, UNREADABLE, str(error))
                return None
            received = headers.Received({}, None)
        is_wanted = spec.filter is None or filters.parse(spec.filter)(received.attributes)
        if not is_wanted or (now - published) * self._options.speed > spec.retention_us:
            await self._settling.ack(held)
            return None
        await self._settling.hold(held)
        return Delivery(
            ack_id=naming.encode_ack_id(held.ticket),
            message_id=naming.message_id_of(facts.topic.epoch, held.ticket.place[1]),
            subscription=spec.name,
            topic=spec.topic,
            data=message.data,
            attributes=received.attributes,
            ordering_key=received.ordering_key,
            publish_time=published,
            attempt=attempt,
            deadline=now + int(spec.ack_deadline_us / self._options.speed),
            has_dead_letters=spec.dead_letter_topic is not None,
        )

    async def _move_sometimes(self, facts: SubscriptionFacts) -> None:
        now = self._clock.monotonic()
        if facts.spec.dead_letter_topic is not None and now - self._moved_at > MOVE_EVERY_SECONDS:
            self._moved_at = now
            await self._mover.run_once()

    # -- settling --------------------------------------------------------------------------------

    def _settle_all(
        self,
        subscription: str,
        ack_ids: Sequence[str],
        settle: Callable[[Held, int], Coroutine[Any, Any, SettleResult]],
    ) -> list[SettleResult]:
        tickets = _tickets(ack_ids)

        async def work() -> list[SettleResult]:
            facts = await self._administration.subscription(subscription)
            settled = (
                settle(Held(facts, ticket), index)
                if ticket.subscription == subscription
                else _stale()
                for index, ticket in enumerate(tickets)
            )
            return list(await asyncio.gather(*settled))

        return self._connection.call(work())


async def _stale() -> SettleResult:
    return SettleResult.STALE


def _tickets(ack_ids: Sequence[str]) -> list[naming.Ticket]:
    if len(ack_ids) > rules.BATCH_MAX:
        raise InvalidInput("ack_ids", f"at most {rules.BATCH_MAX} per call", len(ack_ids))
    return [naming.decode_ack_id(text, f"ack_ids[{index}]") for index, text in enumerate(ack_ids)]
