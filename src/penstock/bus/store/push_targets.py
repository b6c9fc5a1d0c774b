"""Which subscriptions have something to be posted, or to be served here, and whose they are."""

from __future__ import annotations

from typing import NamedTuple

from penstock.bus.store.topics import Subscription, subscription_of_row
from penstock.db.store import Tx


class PushReady(NamedTuple):
    """A subscription with something ready; the house's customer has an empty id."""

    subscription: Subscription
    customer_id: str


def push_ready(tx: Tx, *, kind: str = "push", after: int = 0, limit: int = 500) -> list[PushReady]:
    """Subscriptions of a kind with something ready, by number; paused ones are left out."""
    rows = tx.rows("push_ready", {"kind": kind, "after": after, "limit": limit})
    return [PushReady(subscription_of_row(row[:-1]), row[-1]) for row in rows]
