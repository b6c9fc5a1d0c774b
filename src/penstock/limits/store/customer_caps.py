"""The maximum number of runs of a customer: a limit that all its runs hold.

Runs of a customer with a maximum are inserted as LIMITED and take the limit `customer:<id>` with
those of their processor (`run_queue`). This module applies a changed maximum to runs that are
already live: those in progress hold the limit, those that wait are queued for it.
"""

from __future__ import annotations

from typing import Final

from penstock.core.clock import MINUTE
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first
from penstock.limits.store.run_queue import (
    ADMIT,
    HEADS_LOCKED,
    limit_ids,
    queue_admit,
    queue_leave,
)
from penstock.pipelines.declare.limit_needs import (
    CUSTOMER_LIMIT,
    customer_limit,
    limit_name_for_run,
)

REPEAT_US: Final = MINUTE
"""Time after which a change is applied again, for runs of transactions that began before it.
"""
RUNS_MAX: Final = 5_000


def caps_apply(tx: Tx, after: int) -> tuple[int, int] | None:
    """Apply the changed maximum of the next customer after the given one to its live runs.

    Return the customer and how many of its runs changed, or None if there is no such customer. If
    runs changed, there may be more.
    """
    row = first(tx.rows("cap_changed", {"after": after}))
    if row is None:
        return None
    customer, customer_id, concurrency, age_us = row
    name = limit_name_for_run(CUSTOMER_LIMIT, {"customer": customer_id})
    changed = 0
    if concurrency is None:
        removed = tx.rows("cap_remove", {"customer": customer, "name": name})
        if queue_admit(tx, [row[0] for row in removed]).more:
            tx.wake([ADMIT])
    else:
        changed = _apply(tx, customer, name, concurrency)
    if not changed and (concurrency is None or age_us >= REPEAT_US):
        tx.run("cap_applied", {"customer": customer})
    return customer, changed


def _apply(tx: Tx, customer: CustomerKey, name: str, concurrency: int) -> int:
    key = (customer, name)
    limit_id = limit_ids(tx, [(key, customer_limit(concurrency))])[key]
    tx.rows("queue_lock", {"ids": [limit_id], "window": HEADS_LOCKED})
    params = {"customer": customer, "limit_id": limit_id, "n": RUNS_MAX}
    unheld = [(row[0], encode("run", row[0])) for row in tx.rows("cap_unheld", params)]
    if unheld:
        tx.run("cap_hold_many", {"customer": customer, "limit_id": limit_id}, batch=unheld)
    waiting = [row[0] for row in tx.rows("cap_waiting", params)]
    if waiting:
        tx.run("queue_return", {"ids": waiting})
        queue_leave(tx, waiting)
        tx.wake([ADMIT])
    if queue_admit(tx, [limit_id]).more:
        tx.wake([ADMIT])
    return len(unheld) + len(waiting)
