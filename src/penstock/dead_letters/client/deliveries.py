"""Dead letters of deliveries: the message of a dead letter, and its redelivery.

The original message is delivered unchanged. Once retention has removed it, the copy in the
dead-letter topic replaces it, without the attributes that the bus added. An edited message is a new
message that only this subscription receives, as the next generation of the failed delivery.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.bus import rules
from penstock.bus.message import NewMessage
from penstock.bus.store.messages import MessageRow, message_get, message_publish_to
from penstock.bus.store.replay import delivery_replay, delivery_replayable
from penstock.bus.store.topics import SubscriptionRow, subscription_get_by_key, topic_open
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.db.store import Transactions, Tx
from penstock.dead_letters.records import DeadLetterEdit
from penstock.dead_letters.store import DeadLetterRow

ADDED_PREFIXES = ("cloudpubsub", "penstock-")
"""Prefixes of the attributes that the bus adds to a dead letter."""


def message_of(tx: Tx, dead_letter: DeadLetterRow) -> MessageRow | None:
    """Return the message of a failed delivery as published; None if retention removed it."""
    if dead_letter.message_id is not None:
        found = message_get(tx, dead_letter.message_id)
        if found is not None:
            return found
    copy = message_get(tx, dead_letter.subject)
    if copy is None:
        return None
    own = {k: v for k, v in copy.attributes.items() if not k.lower().startswith(ADDED_PREFIXES)}
    return copy._replace(attributes=own)


def delivery_redeliver(
    tx: Tx,
    store: Transactions,
    dead_letter: DeadLetterRow,
    edit: DeadLetterEdit | None,
    *,
    actor: str,
    at: int | None,
) -> str:
    """Redeliver the message of a dead letter to its own subscription; return the message id."""
    if edit is not None and edit.parameters is not None:
        raise InvalidInput("parameters", "data or attributes for a message", "parameters")
    sub, message, message_id = _target(tx, dead_letter)
    content = None
    if edit is not None or message.message_id != message_id:
        # Check first: an error after publishing would leave the copy behind.
        delivery_replayable(tx, sub, message_id)
        content = _publish_copy(tx, sub, message, edit or DeadLetterEdit())
    done = delivery_replay(tx, sub, message_id, actor, content_id=content, due_at=at)
    tx.after_commit(lambda: store.wake(sorted(done.wake)))
    return str(message_id)


def delivery_check(tx: Tx, dead_letter: DeadLetterRow) -> None:
    """Raise the error that a redelivery of the dead letter would raise now."""
    sub, _, message_id = _target(tx, dead_letter)
    delivery_replayable(tx, sub, message_id)


def _target(tx: Tx, dead_letter: DeadLetterRow) -> tuple[SubscriptionRow, MessageRow, int]:
    """Return the subscription, the message and its id; raise if one of them is gone."""
    name = encode("dl", dead_letter.dead_letter_id)
    if dead_letter.subscription_key is None or dead_letter.message_id is None:
        raise Conflict(f"{name} is a report without a subscription: send the report again.")
    sub = subscription_get_by_key(tx, dead_letter.subscription_key)
    if sub is None:
        raise Conflict(f"{name}: its subscription is deleted; recreate it and publish again.")
    message = message_of(tx, dead_letter)
    if message is None:
        raise NotFound("message", str(dead_letter.message_id))
    return sub, message, dead_letter.message_id


def _publish_copy(tx: Tx, sub: SubscriptionRow, message: MessageRow, edit: DeadLetterEdit) -> int:
    """Publish the edited content as a message that no subscription receives; return its id."""
    wanted = NewMessage(
        data=message.data if edit.data is None else edit.data,
        attributes=dict(message.attributes if edit.attributes is None else edit.attributes),
        ordering_key=message.ordering_key,
    )
    rules.check_outgoing(wanted, "edit")
    topic = topic_open(tx, sub.topic_key)
    if topic is None:
        raise Conflict(f"the topic of {sub.name} is deleted: recreate it to replay.")
    return message_publish_to(tx, replace(topic, subscribers=()), [wanted]).message_ids[0]
