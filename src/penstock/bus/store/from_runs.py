"""Messages that runs publish, in the transaction that completes the runs.

Messages of many runs are published together, topic by topic. A topic name refers to the customer's
topic or, if there is none, to the system's.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.bus.message import NewMessage
from penstock.bus.rules import check_outgoing
from penstock.bus.store.messages import message_publish_to
from penstock.bus.store.topics import SYSTEM, OpenTopic, topic_open_find, topic_open_named
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.runs.action_records import RunMessage


def run_messages_check(tx: Tx, customer_key: CustomerKey, messages: Sequence[RunMessage]) -> None:
    """Raise unless the messages are valid and their topics exist."""
    for message in messages:
        check_outgoing(_new(message))
    for topic in sorted({message.topic for message in messages}):
        _open(tx, customer_key, topic)


def run_messages_publish(tx: Tx, messages: Sequence[tuple[CustomerKey, RunMessage]]) -> list[int]:
    """Publish messages of runs; return their ids in order."""
    topics: dict[tuple[CustomerKey, str], list[int]] = {}
    for index, (customer_key, message) in enumerate(messages):
        topics.setdefault((customer_key, message.topic), []).append(index)
    ids: dict[int, int] = {}
    wake: set[str] = set()
    # Ordered by topic, so that all transactions lock ordering keys in the same order.
    for (customer_key, topic), indexes in sorted(topics.items()):
        opened = _open(tx, customer_key, topic)
        done = message_publish_to(tx, opened, [_new(messages[index][1]) for index in indexes])
        ids |= dict(zip(indexes, done.message_ids, strict=True))
        wake |= done.wake
    if wake:
        tx.wake(sorted(wake))
    return [ids[index] for index in range(len(messages))]


def _open(tx: Tx, customer_key: CustomerKey, topic: str) -> OpenTopic:
    own = topic_open_find(tx, topic, customer_key)
    return own or topic_open_named(tx, topic, SYSTEM)


def _new(message: RunMessage) -> NewMessage:
    return NewMessage(
        data=message.data,
        attributes=message.attributes,
        ordering_key=message.ordering_key,
        dedupe_id=message.dedupe_id,
    )
