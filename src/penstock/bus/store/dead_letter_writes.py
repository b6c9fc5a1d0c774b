"""Dead letters of deliveries: the copy, the dead letter and the settled delivery commit together.

The copy has the message's content and attributes, plus Google's four attributes and Penstock's. If
the dead-letter topic was deleted, the delivery stays in the subscription and an alert is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.audit.rows import Entry, NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.audit.store.journal import journal_append_many
from penstock.bus.message import CORRELATION, ErrorKind
from penstock.bus.redelivery import DeadLetterCause, dead_letter_attributes
from penstock.bus.store.alert_commands import subscription_command
from penstock.bus.store.messages import ContentCopy, MessageHeader, message_copy_to, message_headers
from penstock.bus.store.topics import SubscriptionRow, topic_open
from penstock.core.naming import TopicKey
from penstock.db.store import Tx

PIPELINE, PARTITION = "pipeline", "partition"


class FailedDelivery(NamedTuple):
    """A leased delivery that is to become a dead letter."""

    message_id: int
    epoch: int
    generation: int
    attempt: int
    replays: int
    copy_id: int | None
    published_at: int
    ordering_key: str | None
    kind: ErrorKind
    error_type: str
    error: str


class DeadLetterWrite(NamedTuple):
    """Result of `write_dead_letters`: the deliveries that became dead letters, and those that could
    not, because the topic or the content to copy is missing.
    """

    written: list[FailedDelivery]
    left: list[FailedDelivery]
    wake: set[str]


def write_dead_letters(
    tx: Tx, sub: SubscriptionRow, failed: Sequence[FailedDelivery]
) -> DeadLetterWrite:
    """Copy leased deliveries to the dead-letter topic. The caller then settles them."""
    if not failed:
        return DeadLetterWrite([], [], set())
    topic = (
        None if sub.dead_letter_topic is None else topic_open(tx, TopicKey(sub.dead_letter_topic))
    )
    if topic is None:
        _alert_missing_topic(tx, sub)
        return DeadLetterWrite([], list(failed), set())
    contents = message_headers(tx, [d.copy_id or d.message_id for d in failed])
    # Without content, which retention deleted, nothing can be copied: the next pull ends these.
    left = [d for d in failed if (d.copy_id or d.message_id) not in contents]
    failed = [d for d in failed if (d.copy_id or d.message_id) in contents]
    if not failed:
        return DeadLetterWrite([], left, set())
    copies = [_copy(sub, d, contents[d.copy_id or d.message_id]) for d in failed]
    published = message_copy_to(tx, topic, copies)
    params = {
        "subscription": sub.subscription_key,
        "topic": sub.topic_key,
        "customer": sub.customer_key,
    }
    rows = [
        _dead_letter_row(d, copy_id, contents[d.copy_id or d.message_id].attributes)
        for d, copy_id in zip(failed, published.message_ids, strict=True)
    ]
    tx.run("bus_dead_letters_put", params, batch=rows)
    journal_append_many(
        tx,
        [
            Entry(
                "delivery", d.message_id, sub.customer_key or None, "dead_lettered", sub.name,
                "leased", "dead_lettered", why=d.error_type,
            )
            for d in failed
        ],
    )  # fmt: skip
    return DeadLetterWrite(failed, left, published.wake)


def _copy(sub: SubscriptionRow, d: FailedDelivery, content: MessageHeader) -> ContentCopy:
    death = DeadLetterCause(
        message_id=d.message_id,
        subscription=sub.name,
        attempts=d.attempt,
        replays=d.replays,
        published_at=d.published_at,
        kind=d.kind,
        error_type=d.error_type,
        error=d.error,
    )
    attributes = content.attributes | dead_letter_attributes(death)
    return ContentCopy(content.message_id, content.published_at, attributes, content.ordering_key)


def _dead_letter_row(
    d: FailedDelivery, copy_id: int, attributes: dict[str, str]
) -> tuple[object, ...]:
    return (
        copy_id, d.message_id, d.generation, d.error_type, d.kind.value, d.error, d.attempt,
        attributes.get(PARTITION), attributes.get(CORRELATION), attributes.get(PIPELINE),
    )  # fmt: skip


def _alert_missing_topic(tx: Tx, sub: SubscriptionRow) -> None:
    """Open an alert that messages cannot be dead-lettered and stay in the subscription."""
    alert_open(
        tx,
        NewAlert(
            rule="dead_letter_topic_missing",
            dedupe_key=f"dead_letter_topic_missing:{sub.subscription_key}",
            severity="CRITICAL",
            customer_key=sub.customer_key or None,
            subject_kind="subscription",
            subject=sub.subscription_key,
            message=(
                f"The dead-letter topic of subscription {sub.name} was deleted: messages that "
                "should be dead letters stay and are retried. Declare the subscription with "
                "another dead-letter topic."
            ),
            detail={"subscription": sub.name, "fix": subscription_command(tx, "show", sub)},
        ),
    )
