"""Facts for `bus.why`: a message or a subscription with its deliveries, read in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.bus.store.backlog import COUNT_MAX, STATES, backlog, message_states
from penstock.bus.store.bindings import customer_name
from penstock.bus.store.messages import MessageRow
from penstock.bus.store.topics import (
    SYSTEM,
    SubscriptionFilter,
    SubscriptionRow,
    subscription_list,
)
from penstock.bus.why import AlertFact, DeliveryFact, MessageFact, SubscriptionFact
from penstock.core.filters import attributes as filters
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Row, Tx, one

SUBSCRIPTIONS_MAX: Final = 200
NAMED_MAX: Final = 3
"""Maximum number of deliveries listed per state."""


def message_fact(tx: Tx, message: MessageRow, customer_key: CustomerKey | None) -> MessageFact:
    """Load a message with its deliveries in the subscriptions that the customer may see."""
    wanted = SubscriptionFilter(
        customer=customer_key, topic=message.topic_key, limit=SUBSCRIPTIONS_MAX
    )
    subs = subscription_list(tx, wanted)
    facts = _subscriptions(tx, subs)
    found = _deliveries_of(tx, message, [sub.subscription_key for sub in subs])
    return MessageFact(
        message_id=message.message_id,
        topic=message.topic_name,
        published_at=message.published_at,
        deliveries=tuple(
            (fact, found.get(sub.subscription_key), _matches(sub, message))
            for sub, fact in zip(subs, facts, strict=True)
        ),
    )


def subscription_fact(tx: Tx, sub: SubscriptionRow) -> SubscriptionFact:
    """Load a subscription with its backlog and the oldest deliveries of each state."""
    number = sub.subscription_key
    (fact,) = _subscriptions(tx, [sub])
    counted = backlog(tx, number)
    rows: list[Row] = []
    for state, count in enumerate(counted[:4]):
        if count:
            params = {"subscription": number, "state": state, "n": NAMED_MAX}
            rows += tx.rows("bus_why_oldest", params)
    dead = one(tx.rows("bus_why_dead_count", {"subscription": number, "bound": COUNT_MAX}))
    return SubscriptionFact(
        name=fact.name,
        customer=fact.customer,
        kind=fact.kind,
        topic=fact.topic,
        is_topic_deleted=fact.is_topic_deleted,
        is_paused=fact.is_paused,
        filter=fact.filter,
        created_at=fact.created_at,
        alerts=fact.alerts,
        counts=(counted.ready, counted.leased, counted.delayed, counted.behind),
        oldest_at=counted.oldest_at,
        waiting=tuple(_open(tx, row) for row in rows),
        dead_letters=int(dead[0]),
    )


def _subscriptions(tx: Tx, subs: Sequence[SubscriptionRow]) -> list[SubscriptionFact]:
    ids = [sub.subscription_key for sub in subs]
    rows = tx.rows("bus_why_alerts", {"subscriptions": ids}) if ids else []
    deleted = {row[0] for row in rows if row[1] is not None}
    names = {
        key: None if key == SYSTEM else customer_name(tx, key)
        for key in {sub.customer_key for sub in subs}
    }
    return [
        SubscriptionFact(
            name=sub.name,
            customer=names[sub.customer_key],
            kind=sub.kind,
            topic=sub.topic_name,
            is_topic_deleted=sub.subscription_key in deleted,
            is_paused=bool(sub.is_paused),
            filter=sub.filter,
            created_at=sub.created_at,
            alerts=tuple(
                AlertFact(message=row[2], since=row[3])
                for row in rows
                if row[0] == sub.subscription_key and row[2] is not None
            ),
        )
        for sub in subs
    ]


def _deliveries_of(tx: Tx, message: MessageRow, ids: list[int]) -> dict[int, DeliveryFact]:
    """Return the last generation of a message in each subscription."""
    if not ids:
        return {}
    params = {"message_id": message.message_id, "subscriptions": ids}
    dead = {row[0]: (encode("dl", row[1]), row[2]) for row in tx.rows("bus_why_dead", params)}
    found: dict[int, DeliveryFact] = {}
    for state in message_states(tx, message.message_id, message.topic_key):
        key = state.subscription_key
        dead_letter = dead.get(key) if state.state == "dead_lettered" else None
        found[key] = DeliveryFact(
            message_id=message.message_id,
            state=state.state,
            attempts=state.attempts,
            at=state.at,
            last_error=None if dead_letter is None else dead_letter[1],
            dead_letter_id=None if dead_letter is None else dead_letter[0],
        )
    for row in tx.rows("bus_why_message", params):
        found[row[0]] = _open(tx, row)
    return found


def _open(tx: Tx, row: Row) -> DeliveryFact:
    subscription, message_id, state, attempts, due_at, until_at, holder, error, key, head = row
    ahead = None
    if head is not None:
        params = {"message_id": head, "subscriptions": [subscription]}
        ahead = next((_open(tx, found) for found in tx.rows("bus_why_message", params)), None)
    return DeliveryFact(
        message_id=message_id,
        state=STATES[state],
        attempts=attempts,
        at=due_at if until_at is None else until_at,
        holder=holder,
        last_error=error,
        ordering_key=key,
        head=ahead,
    )


def _matches(sub: SubscriptionRow, message: MessageRow) -> bool:
    return sub.filter is None or filters.parse(sub.filter)(message.attributes)
