"""Messages: published in batches and fanned out to all matching subscriptions, in one transaction.

A repeated dedupe id returns the id of the first message published under it. A different body under
the same id is refused and nothing is written. Messages of one ordering key are published under the
key's lock, so that ids follow commit order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from penstock.bus import rules
from penstock.bus.message import CORRELATION, NewMessage
from penstock.bus.store.schemas import schema_attributes
from penstock.bus.store.topics import (
    SYSTEM,
    FanOutTarget,
    OpenTopic,
    channels,
    topic_open_named,
)
from penstock.core.errors import DuplicateRequest, StoreBusy
from penstock.core.filters import attributes as filters
from penstock.core.naming import CustomerKey, TopicKey
from penstock.db.store import Tx, first

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a publish: message ids in order, the number of new ones, channels to wake.

    subscriptions: number of the topic's subscriptions, even those whose filters do not match.
    """

    message_ids: list[int]
    new: int
    wake: set[str]
    subscriptions: int = 0


class ContentCopy(NamedTuple):
    """A message that reuses the stored content of another one."""

    content_id: int
    content_at: int
    attributes: dict[str, str]
    ordering_key: str | None


class _Written(NamedTuple):
    message_id: int
    attributes: dict[str, str]
    ordering_key: str | None


def attributes_text(attributes: dict[str, str]) -> str:
    """Encode attributes as stored."""
    return _encode(attributes).decode() if attributes else "{}"


def attributes_of(text: str) -> dict[str, str]:
    """Decode stored attributes."""
    return {} if text == "{}" else _decode(text)


def message_publish(
    tx: Tx, topic: str, messages: Sequence[NewMessage], customer_key: CustomerKey = SYSTEM
) -> Published:
    """Publish messages to a topic by name. Raises NotFound if the topic does not exist."""
    batch = list(messages)
    rules.check_batch(batch)
    return message_publish_to(tx, topic_open_named(tx, topic, customer_key), batch)


def message_publish_to(tx: Tx, topic: OpenTopic, messages: Sequence[NewMessage]) -> Published:
    """Publish validated messages to an open topic."""
    if not messages:
        return Published([], 0, set())
    added: Sequence[Mapping[str, str]] = ()
    if topic.schema_settings is not None:
        added = schema_attributes(tx, topic.schema_settings, topic.customer_key, messages)
    lock_keys(tx, topic.topic_key, (message.ordering_key for message in messages))
    ids, at = _take_ids(tx, len(messages))
    published_ids, fresh = _deduplicate(tx, topic, messages, ids, at)
    written = [
        _Written(
            ids[n],
            {**messages[n].attributes, **added[n]} if added else dict(messages[n].attributes),
            messages[n].ordering_key or None,
        )
        for n in fresh
    ]
    rows = [
        (one.message_id, messages[n].data, attributes_text(one.attributes), one.ordering_key,
         one.attributes.get(CORRELATION))
        for n, one in zip(fresh, written, strict=True)
    ]  # fmt: skip
    tx.run("bus_messages_put", _message_params(topic, at), batch=rows)
    wake = _fan_out(tx, topic, written, at)
    return Published(published_ids, len(fresh), wake, len(topic.subscribers))


def message_copy_to(tx: Tx, topic: OpenTopic, copies: Sequence[ContentCopy]) -> Published:
    """Publish messages that reuse the content of others (dead letters)."""
    if not copies:
        return Published([], 0, set())
    lock_keys(tx, topic.topic_key, (copy.ordering_key for copy in copies))
    ids, at = _take_ids(tx, len(copies))
    pairs = list(zip(ids, copies, strict=True))
    rows = [
        (
            n,
            c.content_id,
            c.content_at,
            attributes_text(c.attributes),
            c.attributes.get(CORRELATION),
        )
        for n, c in pairs
    ]
    count = tx.run("bus_messages_copy", _message_params(topic, at), batch=rows)
    assert count == len(copies), f"{len(copies) - count} contents are missing"
    written = [_Written(n, copy.attributes, copy.ordering_key) for n, copy in pairs]
    return Published(ids, len(copies), _fan_out(tx, topic, written, at))


def lock_keys(tx: Tx, topic_key: TopicKey, keys: Iterable[str | None]) -> None:
    """Lock ordering keys against concurrent publishers and acks. Call it before locking any row."""
    wanted = sorted({key for key in keys if key})
    if wanted:
        tx.run("bus_keys_lock", {"topic": topic_key}, batch=[(key,) for key in wanted])


def _take_ids(tx: Tx, n: int) -> tuple[list[int], int]:
    rows = tx.rows("bus_message_ids", {"n": n})
    return sorted(row[0] for row in rows), rows[0][1]


def _message_params(topic: OpenTopic, at: int) -> dict[str, int]:
    longest = max([topic.retention_us, *(taker.retention_us for taker in topic.subscribers)])
    return {
        "topic": topic.topic_key,
        "customer": topic.customer_key,
        "at": at,
        "expires_at": at + longest,
    }


def _deduplicate(
    tx: Tx, topic: OpenTopic, messages: Sequence[NewMessage], ids: list[int], at: int
) -> tuple[list[int], list[int]]:
    """Return the message ids in order, and the indexes of messages not published before."""
    published_ids = list(ids)
    first_index: dict[str, int] = {}
    repeats: list[tuple[int, int]] = []
    for n, message in enumerate(messages):
        if message.dedupe_id is None:
            continue
        earlier = first_index.setdefault(message.dedupe_id, n)
        if earlier != n:
            repeats.append((n, earlier))
    if not first_index:
        return published_ids, list(range(len(messages)))
    hashes = {key: rules.body_hash(messages[n]) for key, n in first_index.items()}
    for n, earlier in repeats:
        _check_same(messages[n], hashes[messages[earlier].dedupe_id or ""])
    rows = [(key, hashes[key], ids[n]) for key, n in first_index.items()]
    params = {"topic": topic.topic_key, "customer": topic.customer_key, "at": at}
    new = {row[0] for row in tx.rows("bus_dedupe_put", params, batch=rows)}
    old = sorted(set(first_index) - new)
    found = {} if not old else _marks(tx, topic.topic_key, old)
    for key in old:
        body_hash, message_id = found[key]
        _check_same(messages[first_index[key]], body_hash)
        published_ids[first_index[key]] = message_id
    for n, earlier in repeats:
        published_ids[n] = published_ids[earlier]
    skipped = {first_index[key] for key in old} | {n for n, _ in repeats}
    return published_ids, [n for n in range(len(messages)) if n not in skipped]


def _marks(tx: Tx, topic_key: TopicKey, keys: list[str]) -> dict[str, tuple[str, int]]:
    rows = tx.rows("bus_dedupe_get", {"topic": topic_key, "ids": keys})
    found = {row[0]: (row[1], row[2]) for row in rows}
    if len(found) < len(keys):
        raise StoreBusy("a dedupe id expired during the publish; publish again")
    return found


def _check_same(message: NewMessage, body_hash: str) -> None:
    if rules.body_hash(message) != body_hash:
        raise DuplicateRequest(
            f"dedupe_id {message.dedupe_id!r:.80}: a message with another body was published "
            "under it; nothing was written. Use a new id for a new message."
        )


def _fan_out(tx: Tx, topic: OpenTopic, written: Sequence[_Written], at: int) -> set[str]:
    """Insert a delivery for every subscription whose filter matches the message."""
    rows: list[tuple[int, int, str | None, bool]] = []
    sums: list[tuple[int, int, int, int, int, int]] = []
    matched: list[FanOutTarget] = []
    for taker in topic.subscribers:
        wanted = written
        if taker.filter is not None:
            matches = filters.parse(taker.filter)
            wanted = [message for message in written if matches(message.attributes)]
        if not wanted:
            continue
        seen: set[str] = set()
        for message in wanted:
            key = message.ordering_key if taker.is_ordered else None
            rows.append((taker.subscription_key, message.message_id, key, key in seen))
            if key is not None:
                seen.add(key)
        sums.append((taker.subscription_key, topic.customer_key, len(wanted), 0, 0, 0))
        matched.append(taker)
    if rows:
        tx.run("bus_deliveries_put", {"customer": topic.customer_key, "at": at}, batch=rows)
        tx.run("bus_sums_add", batch=sums)
    return channels(matched)


class MessageRow(NamedTuple):
    """A message with its content."""

    message_id: int
    topic_key: TopicKey
    topic_name: str
    customer_key: CustomerKey
    data: bytes
    attributes: dict[str, str]
    ordering_key: str | None
    published_at: int
    expires_at: int


def message_get(
    tx: Tx, message_id: int, customer_key: CustomerKey | None = None
) -> MessageRow | None:
    """Return a message by id, within its retention."""
    row = first(tx.rows("bus_message_get", {"message_id": message_id, "customer": customer_key}))
    if row is None:
        return None
    return MessageRow._make(row)._replace(data=bytes(row[4]), attributes=attributes_of(row[5]))


class MessageHeader(NamedTuple):
    """A message without its content."""

    message_id: int
    topic_key: TopicKey
    attributes: dict[str, str]
    published_at: int
    expires_at: int
    ordering_key: str | None


def message_headers(tx: Tx, ids: Sequence[int]) -> dict[int, MessageHeader]:
    """Return messages by id, without their content."""
    rows = tx.rows("bus_headers", {"ids": list(ids)}) if ids else []
    return {row[0]: MessageHeader(row[0], row[1], attributes_of(row[2]), *row[3:]) for row in rows}
