"""Commands that alerts about subscriptions print."""

from __future__ import annotations

import shlex

from penstock.access.store.customers import customer_rows
from penstock.bus.store.topics import SYSTEM, SubscriptionRow
from penstock.db.store import Tx


def subscription_command(tx: Tx, verb: str, sub: SubscriptionRow) -> str:
    """Return a command of `penstock subscriptions` about a subscription, with its owner."""
    words = ["penstock", "subscriptions", verb, sub.name]
    if sub.customer_key != SYSTEM:
        found = customer_rows(tx, [sub.customer_key])
        words += ["--customer", *(one.customer_id for one in found.values())]
    return shlex.join(words)
