"""Push and bound subscriptions with ready deliveries, and the owners of push e-mail addresses."""

from __future__ import annotations

from typing import NamedTuple

from penstock.bus.push.push_config import parse_stored_push
from penstock.bus.store.topics import SubscriptionRow, subscription_of_row
from penstock.core.errors import InvalidInput
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx


class PushReady(NamedTuple):
    """A subscription with ready deliveries; `customer_id` is empty for the system."""

    subscription: SubscriptionRow
    customer_id: str


def push_ready(tx: Tx, *, kind: str = "push", after: int = 0, limit: int = 500) -> list[PushReady]:
    """Return unpaused subscriptions of a kind with ready deliveries, by key."""
    rows = tx.rows("push_ready", {"kind": kind, "after": after, "limit": limit})
    return [PushReady(subscription_of_row(row[:-1]), row[-1]) for row in rows]


def push_email_own(tx: Tx, push: str, customer_key: CustomerKey, *, is_bound: bool) -> None:
    """Assign a push e-mail address to its customer; raise InvalidInput if another customer uses it.

    Receivers accept tokens by address and audience, so a caller bound to a customer may only use
    addresses of that customer. An address that an operator uses for several customers then belongs
    to the system.
    """
    oidc = parse_stored_push(push).oidc
    if oidc is None:
        return
    params = {"email": oidc.email.lower(), "customer": customer_key}
    if not is_bound:
        tx.run("push_email_share", params)
        return
    if tx.rows("push_email_own", params) or tx.rows("push_email_get", params):
        return
    raise InvalidInput(
        "push.oidc_token.service_account_email",
        "an address that no other customer uses",
        oidc.email,
        "Use your own address: receivers accept tokens by address.",
    )
