"""Bound subscriptions: the configs that a topic starts, and automatic replay."""

from __future__ import annotations

from penstock.bus.message import BUILTIN_TOPICS
from penstock.bus.store.topics import SubscriptionRow, TopicRow, subscription_of_row
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, one


def topics_unbound(tx: Tx, n: int) -> list[TopicRow]:
    """Return topics of active configs that have no bound subscription yet."""
    return [TopicRow._make(row) for row in tx.rows("topics_unbound", {"n": n})]


def topics_awaited(tx: Tx) -> list[str]:
    """Return the built-in topics that active configs wait for and that were not created yet."""
    return [row[0] for row in tx.rows("topics_awaited", batch=[(n,) for n in BUILTIN_TOPICS])]


def config_event_list(
    tx: Tx,
    topic: str,
    *,
    customer_key: CustomerKey | None,
    customer_id: str | None,
    after: int,
    limit: int,
) -> list[tuple[int, str | None]]:
    """Return (config, filter) of active configs that a topic starts, in order."""
    params = {
        "topic": topic,
        "customer": customer_key,
        "customer_id": customer_id,
        "after": after,
        "limit": limit,
    }
    return [(row[0], row[1]) for row in tx.rows("config_event_list", params)]


def config_skip_event(tx: Tx, config_id: int) -> None:
    """Record that a message did not start a config because its previous run has not ended."""
    tx.run("config_skip_event", {"config_id": config_id})


def subscriptions_auto_replay(tx: Tx, n: int, after: int = 0) -> list[SubscriptionRow]:
    """Return subscriptions with automatic replay and open dead letters, by key."""
    rows = tx.rows("subscriptions_auto", {"n": n, "after": after})
    return [subscription_of_row(row) for row in rows]


def customer_name(tx: Tx, customer_key: CustomerKey) -> str:
    """Return a customer's name."""
    return str(one(tx.rows("customer_name", {"customer": customer_key}))[0])
