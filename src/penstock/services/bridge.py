"""The bridge: sends local topics to an external transport, and receives topics from it.

Sending is a subscription to the local topic: while the broker is down, messages wait in the store,
in the order of their keys, and no attempt is counted. A message that is sent again has the same
dedupe id or, on a broker without dedupe ids, the same attribute, which the bridge of another
installation uses to recognize it (only with the topic and the content for which it was made:
consumers copy attributes). Receiving publishes to the local topic under the message's id,
then acks: a crash between the two repeats the message, and its dedupe id prevents a second effect.
A message that one side cannot accept becomes a dead letter, never an error of the service. Any
number of processes may run it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from penstock.access.store.registry import processor_list
from penstock.bus.incoming.store import incoming_publish, topic_for_incoming, unusable_keep
from penstock.bus.message import (
    BUILTIN_TOPICS,
    DEAD_LETTER_SUFFIX,
    ERROR_KIND,
    ERROR_MESSAGE,
    ERROR_TYPE,
    PHASE_TOPICS,
    SOURCE_DELIVERY_COUNT,
    SOURCE_SUBSCRIPTION,
    Delivery,
    ErrorKind,
    Nack,
    NewMessage,
    TopicSpec,
)
from penstock.bus.rules import body_hash, check_outgoing
from penstock.bus.store.topics import subscription_get, topic_list
from penstock.bus.transports.bridges import BridgeSettings
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.bus.transports.protocol import Transport
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import DuplicateRequest, InvalidInput, NotFound
from penstock.db.store import StoreView, Tx

_Bad: TypeAlias = tuple[Delivery, str, str]
"""A delivery that cannot be published, the type of its error, and the reason."""
BATCH: Final = 200
STEPS: Final = 20
PREPARE_SECONDS: Final = 30.0
TOPICS_MAX: Final = 10_000
UNUSABLE: Final = "UNUSABLE_MESSAGE"
REASON_MAX: Final = 1_000
SENT_ID: Final = "bridge_message_id"
"""Attribute with the stable id of a message, on brokers that have no dedupe ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeCounts:
    """Counts of one `run_once` of a bridge."""

    sent: int = 0
    received: int = 0
    dead_letters: int = 0


class Bridge:
    """Service that transfers messages between the store and one external transport."""

    def __init__(
        self,
        store: StoreView,
        settings: BridgeSettings,
        connect: Callable[[], Transport],
        *,
        clock: Clock | None = None,
    ) -> None:
        """Prepare a bridge; `connect` is called by the first step."""
        self.name = f"bridge {settings.name}"
        self._store = store
        self._settings = settings
        self._connect = connect
        self._clock = clock or SystemClock()
        self._actor = f"bridge.{settings.name}"
        self._local = EmbeddedBus(store, actor=self._actor)
        self._remote: Transport | None = None
        self._sent: dict[str, str] = {}
        """Prefix of the ids of sent messages, by topic; unique to each installation."""
        self._prepare_at = float("-inf")

    def run_once(self) -> BridgeCounts:
        """Transfer a bounded number of ready messages in both directions."""
        remote = self._prepared()
        sent = dead = received = 0
        for topic in self._sent:
            for _ in range(STEPS):
                done = self._send(remote, topic)
                sent, dead = sent + done[0], dead + done[1]
                if sum(done) < BATCH:
                    break
        for topic in self._settings.receive:
            for _ in range(STEPS):
                done = self._receive(remote, topic)
                received, dead = received + done[0], dead + done[1]
                if not sum(done):
                    break
        return BridgeCounts(sent=sent, received=received, dead_letters=dead)

    def close(self) -> None:
        """Close the external transport."""
        if self._remote is not None:
            self._remote.close()
            self._remote = None

    def drain(self, seconds: float = 25.0) -> bool:
        """Close the external transport when the process stops; nothing is in progress then."""
        del seconds
        self.close()
        return True

    def _prepared(self) -> Transport:
        """Declare both sides at intervals, so that new pipelines and changes take effect."""
        if self._remote is None:
            self._remote = self._connect()
        if self._clock.monotonic() >= self._prepare_at:
            known = self._store.read(_known_topics)
            topics = self._settings.sent(known)
            self._declare_remote(topics)
            self._store.write(self._declare_received)
            self._sent = {topic: self._declare_local(topic) for topic in topics}
            self._prepare_at = self._clock.monotonic() + PREPARE_SECONDS
        return self._remote

    def _declare_remote(self, sent: Sequence[str]) -> None:
        assert self._remote is not None
        topics, subscriptions = self._settings.incoming()
        # A topic that exists keeps its retention: it may belong to others.
        missing = [
            topic
            for topic in [*(TopicSpec(name=name) for name in sent), *topics]
            if self._remote.read_topic(topic.name) is None
        ]
        new = [one for one in subscriptions if self._remote.read_subscription(one.name) is None]
        if missing or new:
            self._remote.declare(missing, new)

    def _declare_received(self, tx: Tx) -> None:
        for topic in self._settings.receive:
            topic_for_incoming(tx, topic, self._actor)

    def _declare_local(self, topic: str) -> str:
        spec = self._settings.outgoing(topic)
        assert spec.dead_letter_topic is not None
        self._local.declare([TopicSpec(name=spec.dead_letter_topic)], [])
        try:
            self._local.declare([], [spec])
        except NotFound:
            self._local.declare([TopicSpec(name=topic)], [spec])
        return self._store.read(lambda tx: _installation(tx, spec.name))

    # -- sending ---------------------------------------------------------------------------------

    def _send(self, remote: Transport, topic: str) -> list[int]:
        """Send a batch; return how many were sent, and how many became dead letters."""
        name = self._settings.subscription(topic)
        deliveries = self._local.pull(name, max_messages=BATCH)
        if not deliveries:
            return [0, 0]
        try:
            dead = self._publish(remote, topic, name, deliveries)
        except Exception:
            # The broker is down: the messages wait here, and no attempt is counted.
            self._local.release(name, [one.ack_id for one in deliveries])
            raise
        return [len(deliveries) - dead, dead]

    def _publish(
        self, remote: Transport, topic: str, name: str, deliveries: Sequence[Delivery]
    ) -> int:
        messages = [self._outgoing(remote, topic, one) for one in deliveries]
        try:
            remote.publish(topic, messages)
        except (InvalidInput, DuplicateRequest):
            return self._publish_each(remote, topic, name, deliveries)
        self._local.ack(name, [one.ack_id for one in deliveries])
        return 0

    def _publish_each(
        self, remote: Transport, topic: str, name: str, deliveries: Sequence[Delivery]
    ) -> int:
        """Send messages one by one; those that the broker rejects become dead letters here."""
        dead = 0
        for one in deliveries:
            try:
                remote.publish(topic, [self._outgoing(remote, topic, one)])
            except (InvalidInput, DuplicateRequest) as error:
                dead += 1
                reason = Nack(
                    ack_id=one.ack_id,
                    kind=ErrorKind.POISON,
                    error_type=UNUSABLE,
                    error=str(error)[:REASON_MAX],
                )
                self._local.nack(name, [reason])
            else:
                self._local.ack(name, [one.ack_id])
        return dead

    def _outgoing(self, remote: Transport, topic: str, one: Delivery) -> NewMessage:
        sent_id = f"{self._sent[topic]}/{one.message_id}"
        has_dedupe = remote.capabilities.publish_dedupe
        marked = {SENT_ID: f"{sent_id}/{_mark(topic, one.data)}"}
        return NewMessage(
            data=one.data,
            attributes=one.attributes if has_dedupe else {**one.attributes, **marked},
            ordering_key=one.ordering_key,
            dedupe_id=sent_id if has_dedupe else None,
        )

    # -- receiving -------------------------------------------------------------------------------

    def _receive(self, remote: Transport, topic: str) -> list[int]:
        """Receive a batch; return how many were published, and how many became dead letters."""
        name = self._settings.subscription(topic)
        deliveries = remote.pull(name, max_messages=BATCH)
        if not deliveries:
            return [0, 0]
        good: list[NewMessage] = []
        bad: list[_Bad] = []
        taken: list[Delivery] = []
        trusts = not remote.capabilities.publish_dedupe
        for one in deliveries:
            message = self._incoming(one, topic if trusts else None)
            try:
                check_outgoing(message)
            except InvalidInput as error:
                bad.append((one, *_reason(one, error)))
            else:
                good.append(message)
                taken.append(one)
        try:
            self._store.write(lambda tx: self._store_received(tx, topic, good, bad))
        except DuplicateRequest:
            dead = sum(self._receive_one(topic, *pair) for pair in zip(taken, good, strict=True))
            self._store.write(lambda tx: self._store_received(tx, topic, [], bad))
        else:
            dead = 0
        remote.ack(name, [one.ack_id for one in deliveries])
        return [len(good) - dead, len(bad) + dead]

    def _receive_one(self, topic: str, one: Delivery, message: NewMessage) -> bool:
        """Store one message of a batch in which an id is used twice. Return whether it is bad.

        An id that its publisher copied belongs to another message: the broker's own id is unique.
        """
        for unique in (message, self._incoming(one)):
            try:
                self._store.write(lambda tx, m=unique: self._store_received(tx, topic, [m], []))  # type: ignore[misc]
            except DuplicateRequest:
                continue
            return False
        bad = (one, UNUSABLE, f"message_id {one.message_id}: already used for another message.")
        self._store.write(lambda tx: self._store_received(tx, topic, [], [bad]))
        return True

    def _store_received(
        self, tx: Tx, topic: str, good: Sequence[NewMessage], bad: Sequence[_Bad]
    ) -> None:
        if good:
            incoming_publish(tx, topic_for_incoming(tx, topic, self._actor), good)
        for one, error_type, reason in bad:
            kept = topic_for_incoming(tx, topic + DEAD_LETTER_SUFFIX, self._actor)
            attributes = _kept_attributes(one, error_type, reason)
            message = NewMessage(data=one.data, attributes=attributes)
            # Its content is part of the id: two messages under one id are both kept.
            kept_id = f"{self._incoming(one).dedupe_id}/{body_hash(message)}"
            message = msgspec.structs.replace(message, dedupe_id=kept_id)
            detail = {
                "bridge": self._settings.name,
                "subscription": one.attributes.get(SOURCE_SUBSCRIPTION, one.subscription),
                "message_id": one.message_id,
                "attempts": one.attributes.get(SOURCE_DELIVERY_COUNT, ""),
                "reason": reason,
            }
            unusable_keep(tx, kept, message, error_type, detail)

    def _incoming(self, one: Delivery, topic: str | None = None) -> NewMessage:
        """Return the message to publish, under the broker's id.

        topic: use the sender's id instead, if it was made for this topic and content. Consumers
        copy attributes to the messages that they publish.
        """
        sent_id = one.attributes.get(SENT_ID, "")
        is_own = topic is not None and sent_id.rpartition("/")[2] == _mark(topic, one.data)
        return NewMessage(
            data=one.data,
            attributes=one.attributes,
            ordering_key=one.ordering_key,
            dedupe_id=f"{self._actor}/{sent_id if is_own else one.message_id}",
        )


def _mark(topic: str, data: bytes) -> str:
    """Return the end of a sent message's id, by which the receiver knows what it was made for."""
    return hashlib.sha256(f"{topic}\0".encode() + data).hexdigest()[:16]


def _reason(one: Delivery, error: InvalidInput) -> tuple[str, str]:
    """Return error type and text; a dead letter of the broker has its own."""
    if SOURCE_SUBSCRIPTION in one.attributes:
        kind = one.attributes.get(ERROR_TYPE) or "DEAD_LETTER"
        return kind[:100], one.attributes.get(ERROR_MESSAGE, "")[:REASON_MAX]
    return UNUSABLE, str(error)[:REASON_MAX]


def _kept_attributes(one: Delivery, error_type: str, reason: str) -> dict[str, str]:
    return {
        ERROR_KIND: one.attributes.get(ERROR_KIND, ErrorKind.POISON.value),
        ERROR_TYPE: error_type,
        ERROR_MESSAGE: reason,
        SOURCE_SUBSCRIPTION: one.attributes.get(SOURCE_SUBSCRIPTION, one.subscription),
    }


def _known_topics(tx: Tx) -> set[str]:
    """Return the topics that patterns may match: built-in ones, and those that exist."""
    stems = {f"{row.pipeline}.{row.phase}" for row in processor_list(tx) if row.is_current}
    phases = {stem + ending for stem in stems for ending in PHASE_TOPICS}
    return phases | BUILTIN_TOPICS | {row.name for row in topic_list(tx, limit=TOPICS_MAX)}


def _installation(tx: Tx, subscription: str) -> str:
    row = subscription_get(tx, subscription)
    return f"penstock-{row.created_at:x}-{row.subscription_key}"
