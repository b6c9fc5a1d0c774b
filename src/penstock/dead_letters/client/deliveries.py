"""Dead letters of deliveries: the message behind one, and delivering it again.

The original message is delivered as it was; once retention has removed it, the copy in the
dead-letter topic stands in, without what the bus added to it. An edited message is a new one that
only this subscription is given, as the next round of the one that died.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.bus import rules
from penstock.bus.message import Outgoing
from penstock.bus.store.messages import Message, message_get, message_publish_to
from penstock.bus.store.replay import delivery_replay, delivery_replayable
from penstock.bus.store.topics import Subscription, subscription_read, topic_open
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.db.store import Store, Tx
from penstock.dead_letters.store import DeadLetter

ADDED = ("cloudpubsub", "penstock-")
"""How attributes begin that the bus adds to a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What is changed before a replay: a run's parameters, or a message's bytes and attributes."""

    parameters: Mapping[str, Any] | None = None
    data: bytes | None = None
    attributes: Mapping[str, str] | None = None


def message_of(tx: Tx, letter: DeadLetter) -> Message | None:
    """The message of a dead delivery as it was published; None once retention removed it."""
    if letter.message_id is not None:
        found = message_get(tx, letter.message_id)
        if found is not None:
            return found
    copy = message_get(tx, letter.subject)
    if copy is None:
        return None
    own = {k: v for k, v in copy.attributes.items() if not k.lower().startswith(ADDED)}
    return copy._replace(attributes=own)


def delivery_again(
    tx: Tx, store: Store, letter: DeadLetter, edit: Edit | None, *, actor: str, at: int | None
) -> str:
    """Deliver a dead delivery's message again, to its own subscription only; its message id."""
    name = encode("dl", letter.dead_letter_id)
    if letter.subscription_number is None or letter.message_id is None:
        raise Conflict(f"{name} is a report that belongs to no subscription: send it anew.")
    sub = subscription_read(tx, letter.subscription_number)
    if sub is None:
        raise Conflict(f"{name}: its subscription is deleted; make it again and publish anew.")
    if edit is not None and edit.parameters is not None:
        raise InvalidInput("parameters", "data or attributes, because a message died", "parameters")
    message = message_of(tx, letter)
    if message is None:
        raise NotFound("message", str(letter.message_id))
    content = None
    if edit is not None or message.message_id != letter.message_id:
        delivery_replayable(tx, sub, letter.message_id)  # or a refusal would leave the copy behind
        content = _stand_in(tx, sub, message, edit or Edit())
    done = delivery_replay(tx, sub, letter.message_id, actor, content_id=content, due_at=at)
    tx.after_commit(lambda: store.wake(sorted(done.wake)))
    return str(letter.message_id)


def _stand_in(tx: Tx, sub: Subscription, message: Message, edit: Edit) -> int:
    """A message that nobody takes by himself, with the edited content."""
    wanted = Outgoing(
        data=message.data if edit.data is None else edit.data,
        attributes=dict(message.attributes if edit.attributes is None else edit.attributes),
        ordering_key=message.ordering_key,
    )
    rules.check_outgoing(wanted, "edit")
    topic = topic_open(tx, sub.topic)
    if topic is None:
        raise Conflict(f"the topic of {sub.name} is deleted: make it again to replay.")
    return message_publish_to(tx, replace(topic, takers=()), [wanted]).message_ids[0]
