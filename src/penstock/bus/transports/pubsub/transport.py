"""Google Pub/Sub as a transport; also works with an emulator and with Penstock's own front end.

The service handles attempts, backoff and dead letters. Without exactly-once delivery it does not
validate ack ids, so this process rejects those that it knows to be stale. A nack on the service has
neither reason nor delay: this module copies poison messages to the dead-letter topic, and
implements a longer delay as an extension that lapses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from penstock.bus import rules
from penstock.bus.message import (
    Delivery,
    Handled,
    Nack,
    NewMessage,
    ServiceRevision,
    SettleResult,
    SubscriptionSpec,
    TopicSpec,
)
from penstock.bus.transports.capabilities import PUBSUB, TransportCapabilities
from penstock.bus.transports.pubsub import tickets
from penstock.bus.transports.pubsub.connection import PubsubConnection
from penstock.bus.transports.pubsub.options import PubsubOptions, parse_pubsub_url
from penstock.bus.transports.pubsub.poison import PoisonCopies
from penstock.bus.transports.pubsub.resources import Resources
from penstock.bus.transports.pubsub.settling import PubsubSettling
from penstock.bus.transports.pubsub.streaming import MessageStream
from penstock.bus.transports.pubsub.tickets import PubsubTicket, Tickets
from penstock.core.clock import SECOND, Clock, SystemClock
from penstock.core.errors import InvalidInput

PULL_MAX: Final = 1_000
WAIT_MAX: Final = 60.0
RUNS_MAX: Final = 16
"""Number of requests up to which the order of the batch is kept; each has one ordering key."""


class PubsubTransport:
    """Transport over Google Pub/Sub; see `docs/how-to/google-pubsub.md`."""

    def __init__(self, where: str | PubsubOptions, *, clock: Clock | None = None) -> None:
        """Prepare a transport; it connects on first use.

        where: a URL such as `pubsub://my-project`, or options.
        """
        options = parse_pubsub_url(where) if isinstance(where, str) else where
        self._options = options
        self._clock = clock or SystemClock()
        self._timer = SystemClock()
        self._connection = PubsubConnection(options)
        self._resources = Resources(self._connection)
        self._tickets = Tickets()
        self._poison = PoisonCopies(self._publish)
        self._settling = PubsubSettling(
            self._connection, self._resources, self._tickets, self._poison, self._clock
        )
        self._streams: dict[str, MessageStream] = {}

    @property
    def capabilities(self) -> TransportCapabilities:
        """The transport's guarantees."""
        return PUBSUB

    def declare(
        self, topics: Sequence[TopicSpec], subscriptions: Sequence[SubscriptionSpec]
    ) -> None:
        """Create or update topics and subscriptions as described; idempotent."""
        self._resources.declare(topics, subscriptions)

    def read_topic(self, name: str) -> TopicSpec | None:
        """Return a topic as the service has it; None if there is none."""
        return self._resources.read_topic(name)

    def read_subscription(self, name: str) -> SubscriptionSpec | None:
        """Return a subscription as the service has it; None if there is none."""
        return self._resources.read_subscription(name)

    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[str]:
        """Store messages durably; return their ids in order.

        A request contains messages of one ordering key, as the service requires. A call that raises
        may have published some messages.
        """
        rules.check_batch(list(messages))
        for index, message in enumerate(messages):
            if message.dedupe_id is not None:
                raise InvalidInput(
                    f"messages[{index}].dedupe_id", "none: Pub/Sub does not deduplicate",
                    message.dedupe_id, "Let the consumer deduplicate.",
                )  # fmt: skip
        return self._publish(topic, [(m.data, m.attributes, m.ordering_key) for m in messages])

    def _publish(self, topic: str, bodies: Sequence[tuple[Any, Any, str | None]]) -> list[str]:
        """Publish (data, attributes, ordering key) without checks; return ids in order."""
        from google.pubsub_v1 import types  # an optional dependency

        path = self._resources.path("topics", topic)
        ids: dict[int, str] = {}
        for part in _parts([body[2] or "" for body in bodies]):
            request = types.PublishRequest(
                topic=path,
                messages=[
                    types.PubsubMessage(
                        data=bodies[n][0],
                        attributes=dict(bodies[n][1]),
                        ordering_key=bodies[n][2] or "",
                    )
                    for n in part
                ],
            )
            done = self._connection.call(self._connection.publisher().publish, request, path)
            ids.update(zip(part, done.message_ids, strict=True))
        return [ids[n] for n in range(len(bodies))]

    def pull(
        self, subscription: str, *, max_messages: int = 100, wait_seconds: float = 0.0
    ) -> list[Delivery]:
        """Lease up to `max_messages`, waiting up to `wait_seconds` for the first."""
        if not 1 <= max_messages <= PULL_MAX:
            raise InvalidInput("max_messages", f"1 to {PULL_MAX}", max_messages)
        facts = self._resources.facts(subscription)
        wait = min(wait_seconds, WAIT_MAX)
        if self._options.prefetch:
            received: Sequence[Any] = self._stream(facts).take(max_messages, wait)
        else:
            received = self._pull(facts, max_messages, wait)
        return [self._delivery(facts, one) for one in received]

    def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> list[SettleResult]:
        """Move the deadline to `seconds` from now; 0 nacks the message."""
        if rules.check_extension(seconds) == 0:
            return self.nack(subscription, [Nack(ack_id=ack_id) for ack_id in ack_ids])
        return self._settling.extend(subscription, ack_ids, seconds)

    def ack(
        self,
        subscription: str,
        ack_ids: Sequence[str],
        *,
        handled: Sequence[Handled] = (),
        by: ServiceRevision | None = None,
    ) -> list[SettleResult]:
        """Ack deliveries; an ack id that is stale in this process is reported as STALE.

        With exactly-once delivery the service reports which ack ids are stale.
        """
        del handled, by  # the service cannot store them
        return self._settling.ack(subscription, ack_ids)

    def nack(
        self, subscription: str, nacks: Sequence[Nack], *, by: ServiceRevision | None = None
    ) -> list[SettleResult]:
        """Nack deliveries; poison is copied to the dead-letter topic and acked."""
        del by  # as above
        for nack in nacks:
            rules.check_nack(nack)
        return self._settling.nack(subscription, nacks)

    def release(self, subscription: str, ack_ids: Sequence[str]) -> list[SettleResult]:
        """Return deliveries that no handler has seen; the service counts an attempt."""
        return self.extend(subscription, ack_ids, 0)

    def close(self) -> None:
        """End streams, return their unprocessed messages, and close the connection; idempotent."""
        streams, self._streams = self._streams, {}
        for name, stream in streams.items():
            left = stream.close()
            if left:
                self._settling.modify(name, left, 0)
        self._connection.close()

    # -- receiving --------------------------------------------------------------------------------

    def _pull(self, facts: SubscriptionSpec, n: int, wait: float) -> Sequence[Any]:
        from google.pubsub_v1 import types  # an optional dependency

        path = self._resources.path("subscriptions", facts.name)
        stub = self._connection.subscriber().pull
        request = types.PullRequest(subscription=path, max_messages=n, return_immediately=True)
        found = self._connection.call(stub, request, path).received_messages
        until = self._timer.monotonic() + wait
        while not found and (left := until - self._timer.monotonic()) > 0:
            request = types.PullRequest(subscription=path, max_messages=n)
            # The service returns shortly before the call's deadline if there is nothing.
            found = self._connection.call(stub, request, path, seconds=left + 1).received_messages
        return list(found)

    def _stream(self, facts: SubscriptionSpec) -> MessageStream:
        stream = self._streams.get(facts.name)
        if stream is None:
            seconds = facts.ack_deadline_us // SECOND

            def extend(raws: list[str]) -> None:
                self._settling.modify(facts.name, raws, seconds)

            path = self._resources.path("subscriptions", facts.name)
            stream = MessageStream(self._connection, path, deadline_s=seconds, extend=extend)
            self._streams[facts.name] = stream
        return stream

    def _delivery(self, facts: SubscriptionSpec, received: Any) -> Delivery:
        message = received.message
        ticket = PubsubTicket(facts.name, message.message_id, received.ack_id)
        now = self._clock.now()
        until = now + facts.ack_deadline_us
        attempt = self._tickets.add(
            ticket,
            attempt=received.delivery_attempt,
            now=now,
            deadline_us=facts.ack_deadline_us,
            key=(message.ordering_key or None) if facts.is_ordered else None,
        )
        at = message.publish_time
        made = Delivery(
            ack_id=tickets.encode(ticket),
            message_id=message.message_id,
            subscription=facts.name,
            topic=facts.topic,
            data=message.data,
            attributes=dict(message.attributes),
            ordering_key=message.ordering_key or None,
            publish_time=round(at.timestamp() * SECOND) if at is not None else now,
            attempt=attempt,
            deadline=until,
            has_dead_letters=facts.dead_letter_topic is not None,
        )
        self._poison.remember(received.ack_id, made)
        return made


def _parts(keys: Sequence[str]) -> Iterator[list[int]]:
    """Divide a batch into requests of one ordering key each, in the order of the batch.

    If the key changes too often, all messages of a key form one request, which keeps the order
    within a key.
    """
    runs = [list(group) for _, group in groupby(range(len(keys)), key=lambda n: keys[n])]
    if len(runs) <= RUNS_MAX:
        yield from runs
        return
    by_key: dict[str, list[int]] = {}
    for n, key in enumerate(keys):
        by_key.setdefault(key, []).append(n)
    yield from by_key.values()
