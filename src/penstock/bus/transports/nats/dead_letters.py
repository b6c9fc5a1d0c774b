"""The dead-letter mover: copies a message to the dead-letter topic, exactly once.

The copy has its own subject and is stored only if that subject is empty, so a repeated move
changes nothing, however much later it happens; `Nats-Msg-Id` catches repeats in flight. Only then
is the delivery acked. The next delivery recovers from a crash between the two: its attempt number
exceeds the maximum, and the transport moves it instead of delivering it.

The captured advisories report messages that the server itself stopped delivering (another client
terminated them, or `max_deliver` was set with other tools).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.bus.message import ErrorKind, SubscriptionSpec
from penstock.bus.redelivery import DeadLetterCause, dead_letter_attributes
from penstock.bus.transports.nats import headers, naming
from penstock.bus.transports.nats.administration import (
    ADVISORIES,
    Administration,
    StreamFacts,
    mover_of,
)
from penstock.bus.transports.nats.connection import NatsConnection
from penstock.bus.transports.nats.fetching import Fetcher
from penstock.core.clock import from_datetime
from penstock.core.errors import NotFound

if TYPE_CHECKING:
    from nats.aio.msg import Msg

MOVE_MAX: Final = 100
TERMINATED: Final = "TERMINATED"
MAX_DELIVERIES: Final = "MAX_DELIVERIES"
_WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """Why a message becomes a dead letter."""

    sequence: int
    attempts: int
    kind: ErrorKind
    error_type: str
    error: str


class Mover:
    """Moves messages of one connection to their dead-letter topics."""

    def __init__(self, connection: NatsConnection, administration: Administration) -> None:
        self._connection = connection
        self._administration = administration
        self._advisories = Fetcher(connection, ADVISORIES, mover_of(connection.options.prefix))

    async def move(self, spec: SubscriptionSpec, topic: StreamFacts, failure: GivenUp) -> bool:
        """Copy a message to the dead-letter topic; return False if it is no longer stored."""
        import nats.js.errors  # optional dependency, imported on use

        assert spec.dead_letter_topic is not None
        prefix = self._connection.options.prefix
        js = await self._connection.jetstream()
        async with self._connection.errors("moving a dead letter"):
            try:
                stored = await js.get_msg(
                    naming.stream_of(prefix, spec.topic), failure.sequence, direct=True
                )
            except nats.js.errors.NotFoundError:
                return False  # retention removed it
            message_id = naming.message_id_of(topic.epoch, failure.sequence)
            made = _headers(stored.headers or {}, spec, failure, message_id, stored.time)
            received = _ordering_key(stored.headers or {})
            target = await self._administration.topic(spec.dead_letter_topic)
            subject = naming.subject_of(
                prefix, spec.dead_letter_topic, naming.shard_of(received, target.shards),
                "d", naming.token(spec.name), message_id,
            )  # fmt: skip
            try:
                await js.publish(subject, stored.data or b"", headers=made)
            except nats.js.errors.APIError as error:
                if error.err_code not in _WRONG_LAST_SEQUENCE:
                    raise
        return True

    async def run_once(self) -> int:
        """Move messages that servers stopped delivering, as their advisories report; return how
        many.
        """
        moved = 0
        for advisory in await self._advisories.ready(MOVE_MAX):
            moved += await self._from_advisory(advisory)
            async with self._connection.errors("moving a dead letter"):
                await advisory.ack_sync(timeout=self._connection.options.request_seconds)
        return moved

    async def _from_advisory(self, advisory: Msg) -> int:
        try:
            body: dict[str, Any] = msgspec.json.decode(advisory.data)
            stream, consumer = str(body["stream"]), str(body["consumer"])
            sequence, deliveries = int(body["stream_seq"]), int(body["deliveries"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            log.warning("a NATS advisory could not be read: %r", advisory.data[:200])
            return 0
        if not stream.startswith(f"{self._connection.options.prefix}_"):
            return 0
        try:
            facts = await self._administration.subscription(naming.subscription_of(consumer))
        except NotFound:
            return 0
        if facts.spec.dead_letter_topic is None:
            return 0
        is_terminated = "terminated" in str(body.get("type", ""))
        failure = GivenUp(
            sequence=sequence,
            attempts=deliveries,
            kind=ErrorKind.POISON if is_terminated else ErrorKind.TRANSIENT,
            error_type=TERMINATED if is_terminated else MAX_DELIVERIES,
            error=str(body.get("reason", "")) or "abandoned by the server",
        )
        return int(await self.move(facts.spec, facts.topic, failure))


def _headers(
    stored: dict[str, str],
    spec: SubscriptionSpec,
    failure: GivenUp,
    message_id: str,
    published: Any,
) -> dict[str, str]:
    """Return the headers of the copy: those of the message, and the failure report."""
    cause = DeadLetterCause(
        message_id=message_id,
        subscription=spec.name,
        attempts=failure.attempts,
        replays=0,
        published_at=from_datetime(published),
        kind=failure.kind,
        error_type=failure.error_type or failure.kind.value.upper(),
        error=failure.error,
    )
    try:
        attributes = headers.read_headers(stored).attributes
    except ValueError:
        attributes = {}
    made = headers.attribute_headers(attributes | dead_letter_attributes(cause))
    if headers.ORDERING_KEY in stored:
        made[headers.ORDERING_KEY] = stored[headers.ORDERING_KEY]
    made[headers.MESSAGE_ID] = f"dead/{spec.name}/{message_id}"
    made[headers.EXPECTED_LAST] = "0"
    return made


def _ordering_key(stored: dict[str, str]) -> str | None:
    try:
        return headers.read_headers(stored).ordering_key
    except ValueError:
        return None
