"""Inbound push: reads the envelope of a pushed message and publishes the message exactly once.

The caller has already authenticated the sender. If the sender has a dead-letter policy, invalid
(poison) messages are refused. Otherwise they are kept (their bytes in the dead-letter topic, an
entry in the inbox) and accepted, because the sender would retry them forever. The response is sent
after the commit, never before.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from penstock.access.store.registry import customer_get
from penstock.bus.envelope import Poison, PushedMessage, decode
from penstock.bus.incoming.inbound_push import IncomingPush
from penstock.bus.incoming.store import incoming_publish, topic_for_incoming, unusable_keep
from penstock.bus.message import (
    DEAD_LETTER_SUFFIX,
    ERROR_KIND,
    ERROR_MESSAGE,
    ERROR_TYPE,
    SOURCE_SUBSCRIPTION,
    ErrorKind,
    NewMessage,
)
from penstock.bus.store.topics import SYSTEM, OpenTopic
from penstock.core.errors import DuplicateRequest, SettingsError
from penstock.db.store import Transactions, Tx

ACTOR: Final = "push"
POISON: Final = "POISON_ENVELOPE"
REASON_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOutcome:
    """Outcome of a push: published, duplicate, kept (poison) or refused (poison)."""

    outcome: str
    message_id: str = ""
    field: str = ""
    reason: str = ""


def accept(store: Transactions, row: IncomingPush, body: bytes) -> PushOutcome:
    """Publish the message of a push; the outcome is durable when this returns."""
    read = decode(body, subscription=row.subscription)
    if isinstance(read, PushedMessage) and read.subscription is None:
        reason = f"subscription: expected {row.subscription}, got nothing."
        read = Poison(reason=reason, field="subscription", message_id=read.message_id)
    if isinstance(read, Poison):
        return _poison(store, row, body, read)
    try:
        return _publish(store, row, read)
    except DuplicateRequest:
        reason = "message.messageId: already used for another message."
        poison = Poison(reason=reason, field="message.messageId", message_id=read.message_id)
        return _poison(store, row, body, poison)


def _publish(store: Transactions, row: IncomingPush, pushed: PushedMessage) -> PushOutcome:
    message = NewMessage(
        data=pushed.data,
        attributes=pushed.attributes,
        ordering_key=pushed.ordering_key,
        dedupe_id=f"push/{row.name}/{pushed.message_id}",
    )

    done = store.write(lambda tx: incoming_publish(tx, _topic(tx, row, row.topic), [message]))
    outcome = "published" if done.new else "duplicate"
    return PushOutcome(outcome=outcome, message_id=pushed.message_id)


def _poison(store: Transactions, row: IncomingPush, raw: bytes, poison: Poison) -> PushOutcome:
    found = {"message_id": poison.message_id or "", "field": poison.field, "reason": poison.reason}
    if row.has_dead_letters or poison.attempt is not None:
        return PushOutcome(outcome="refused", **found)
    digest = hashlib.sha256(raw).hexdigest()
    message = NewMessage(
        data=raw,
        attributes={
            ERROR_KIND: ErrorKind.POISON.value,
            ERROR_TYPE: POISON,
            ERROR_MESSAGE: poison.reason[:REASON_MAX],
            SOURCE_SUBSCRIPTION: row.subscription,
        },
        dedupe_id=f"push/{row.name}/{digest}",
    )

    def body(tx: Tx) -> None:
        topic = _topic(tx, row, row.topic + DEAD_LETTER_SUFFIX)
        unusable_keep(tx, topic, message, POISON, {"subscription": row.name, **found})

    store.write(body)
    return PushOutcome(outcome="kept", **found)


def _topic(tx: Tx, row: IncomingPush, name: str) -> OpenTopic:
    """Return the topic named in the settings; create it if it is missing."""
    customer = SYSTEM
    if row.customer is not None:
        found = customer_get(tx, row.customer)
        if found is None:
            setting = f"incoming_push.{row.name}.customer"
            raise SettingsError(setting, "an existing customer", row.customer)
        customer = found
    return topic_for_incoming(tx, name, ACTOR, customer)
