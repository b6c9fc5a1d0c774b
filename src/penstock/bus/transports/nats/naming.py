"""Names on the server: streams, consumers, subjects, message ids and ack ids. Pure.

A topic is the stream `<prefix>_<topic>` with the subjects `<prefix>.t.<topic>.<shard>.…`; messages
without an ordering key are in the shard `any`, others in one of the numbered shards. Dots, which
separate the words of a subject, are written as `=`, which no name contains. A subscription is a
consumer of the same name; an ordered one has an additional consumer, `<name>@<shard>`, for every
numbered shard.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import InvalidInput

ANY: Final = "any"
NAME_MAX: Final = 200
_CHECK_BYTES: Final = 4


def token(name: str) -> str:
    """Return a name as one word of a subject."""
    if len(name) > NAME_MAX:
        raise InvalidInput("name", f"at most {NAME_MAX} characters on NATS", f"{len(name)}")
    return name.replace(".", "=")


def name_of(word: str) -> str:
    """Return the name that `token` encoded."""
    return word.replace("=", ".")


def stream_of(prefix: str, topic: str) -> str:
    """Return the stream of a topic."""
    return f"{prefix}_{token(topic)}"


def shard_of(key: str | None, shards: int) -> str:
    """Return the shard of an ordering key: always the same one, because the hash is fixed."""
    return ANY if key is None else str(binascii.crc32(key.encode()) % shards)


def subject_of(prefix: str, topic: str, shard: str, *rest: str) -> str:
    """Return a subject of a topic."""
    return ".".join((prefix, "t", token(topic), shard, *rest))


def consumer_of(subscription: str, shard: str) -> str:
    """Return the consumer of one shard of a subscription."""
    return token(subscription) if shard == ANY else f"{token(subscription)}@{shard}"


def subscription_of(consumer: str) -> str:
    """Return the subscription that a consumer belongs to."""
    return name_of(consumer.partition("@")[0])


@dataclass(frozen=True, slots=True)
class Ticket:
    """One delivery: the subject that settles it, and the facts encoded in that subject."""

    subscription: str
    reply: str

    @property
    def place(self) -> tuple[str, int]:
        """Stream and sequence of the message; the same for every delivery of it."""
        return self._words[-7], int(self._words[-4])

    @property
    def attempt(self) -> int:
        """Number of the delivery, counted from 1."""
        return int(self._words[-5])

    @property
    def published_ns(self) -> int:
        """When the message was stored, in nanoseconds since the epoch."""
        return int(self._words[-2])

    @property
    def _words(self) -> list[str]:
        words = self.reply.split(".")
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<consumer sequence>.<time>.<pending>;
        # servers with a domain insert its name and the account before <stream> and append a random
        # word.
        return words[:-1] if len(words) > 9 else words


def encode_ack_id(ticket: Ticket) -> str:
    """Return the ack id of a delivery."""
    body = f"{ticket.subscription}\n{ticket.reply}".encode()
    return urlsafe_b64encode(_check(body) + body).decode("ascii")


def decode_ack_id(ack_id: object, field: str) -> Ticket:
    """Return the delivery of an ack id; raise InvalidInput if it is malformed."""
    expected = "an ack id exactly as it was delivered"
    if not isinstance(ack_id, str) or not ack_id or len(ack_id) % 4 or not ack_id.isascii():
        raise InvalidInput(field, expected, ack_id)
    try:
        raw = urlsafe_b64decode(ack_id)
        body = raw[_CHECK_BYTES:]
        if _check(body) != raw[:_CHECK_BYTES] or urlsafe_b64encode(raw).decode() != ack_id:
            raise ValueError
        subscription, _, reply = body.decode().partition("\n")
    except ValueError:
        raise InvalidInput(field, expected, ack_id) from None
    return Ticket(subscription, reply)


def _check(body: bytes) -> bytes:
    return binascii.crc32(body).to_bytes(_CHECK_BYTES, "big")


def message_id_of(epoch: str, sequence: int) -> str:
    """Return the id of a message; `epoch` differs when a stream was deleted and created again."""
    return f"{epoch}-{sequence}"
