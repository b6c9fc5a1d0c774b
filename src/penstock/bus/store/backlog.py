"""Message states and backlog counts; the reads take no locks and every count is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.core.naming import SubscriptionKey, TopicKey
from penstock.db.store import Tx, one

COUNT_MAX: Final = 10_000
STATES: Final = ("ready", "leased", "delayed", "behind")


class MessageState(NamedTuple):
    """The state of one generation of a message in one subscription.

    `state`: ready, leased, delayed or behind (an earlier message of its ordering key); or how the
    generation ended: acked, dead_lettered, expired, purged. `at`: due time, deadline, or end time.
    """

    subscription_key: SubscriptionKey
    name: str
    state: str
    generation: int
    attempts: int
    epoch: int
    replays: int
    at: int
    last_error: str | None = None


def message_states(tx: Tx, message_id: int, topic_key: TopicKey) -> list[MessageState]:
    """Return every generation of a message, each in exactly one state, by subscription."""
    ever = [row[0] for row in tx.rows("bus_subscriptions_ever", {"topic": topic_key})]
    params = {"message_id": message_id, "subscriptions": ever}
    found = [
        MessageState(
            number, name, STATES[state] if until_at is None else "leased", count, attempt, epoch,
            replays, due_at if until_at is None else until_at, last_error,
        )
        for number, name, state, count, attempt, epoch, replays, due_at, until_at, last_error
        in tx.rows("bus_states_open", params)
    ]  # fmt: skip
    ended = tx.rows("bus_states_settled", {"message_id": message_id})
    found += [MessageState(*row) for row in ended]
    return sorted(found, key=lambda row: (row.subscription_key, row.generation))


class BacklogRow(NamedTuple):
    """Deliveries that wait in a subscription; each count stops at `COUNT_MAX`."""

    ready: int
    leased: int
    delayed: int
    behind: int
    oldest_at: int | None


def backlog(tx: Tx, subscription_key: SubscriptionKey) -> BacklogRow:
    """Return the counts of waiting deliveries of a subscription, and the time of the oldest."""
    return backlogs(tx, [subscription_key])[subscription_key]


def backlogs(
    tx: Tx, subscription_keys: Sequence[SubscriptionKey]
) -> dict[SubscriptionKey, BacklogRow]:
    """Return the same of several subscriptions, by their keys, in one statement."""
    if not subscription_keys:
        return {}
    params = {"subscriptions": sorted(set(subscription_keys)), "bound": COUNT_MAX}
    rows = tx.rows("bus_backlogs", params)
    return {SubscriptionKey(key): BacklogRow._make(counts) for key, *counts in rows}


class DeliveryCountersRow(NamedTuple):
    """Counters of a subscription since a given hour."""

    accepted: int
    delivered: int
    acked: int
    nacked: int
    lapsed: int
    dead_lettered: int
    expired: int
    purged: int
    replayed: int


def delivery_counters(
    tx: Tx, subscription_key: SubscriptionKey, since: int = 0
) -> DeliveryCountersRow:
    """Return the counters of a subscription since a given hour."""
    params = {"subscription": subscription_key, "since": since}
    return DeliveryCountersRow._make(int(n or 0) for n in one(tx.rows("bus_sums_read", params)))
