"""Commands that alerts about subscriptions print."""

from __future__ import annotations

import shlex

from penstock.access.store.customers import customer_list
from penstock.bus.store.topics import SYSTEM, SubscriptionRow
from penstock.db.store import Tx


def subscription_command(tx: Tx, verb: str, sub: SubscriptionRow) -> str:
    """Return a command of `penstock subscriptions` about a subscription, with its owner."""
    words = ["penstock", "subscriptions", verb, sub.name]
    if sub.customer_key != SYSTEM:
        found = customer_list(tx, customer_key=sub.customer_key, limit=1)
        words += ["--customer", *(one.customer_id for one in found)]
    return shlex.join(words)
