"""Subscriptions with ready deliveries that Penstock pushes or handles itself."""

from __future__ import annotations

from typing import NamedTuple

from penstock.bus.store.topics import SubscriptionRow, subscription_of_row
from penstock.db.store import Tx


class PushReady(NamedTuple):
    """A subscription with ready deliveries; `customer_id` is empty for the system."""

    subscription: SubscriptionRow
    customer_id: str


def push_ready(tx: Tx, *, kind: str = "push", after: int = 0, limit: int = 500) -> list[PushReady]:
    """Return unpaused subscriptions of a kind with ready deliveries, by key."""
    rows = tx.rows("push_ready", {"kind": kind, "after": after, "limit": limit})
    return [PushReady(subscription_of_row(row[:-1]), row[-1]) for row in rows]
