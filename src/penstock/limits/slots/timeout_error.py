"""The message of a LimitTimeout: the holders of the limit, and the number of waiting requests."""

from __future__ import annotations

from typing import Any

from penstock.core.clock import SECOND, format_duration
from penstock.core.errors import PenstockError
from penstock.db.store import Transactions
from penstock.limits.slots.limit_state import SlotWaiter
from penstock.limits.store.reads import limit_holders, limit_list, limit_queue

NAMED_MAX = 5


def timeout_message(
    store: Transactions, waiter: SlotWaiter, timeout_us: int
) -> tuple[str, dict[str, Any]]:
    """Return the message and the details of a LimitTimeout. Store errors are included in the
    message.
    """
    limit = waiter.limit_state.limit
    detail: dict[str, Any] = {"limit": limit.name, "timeout_seconds": timeout_us / SECOND}
    if waiter.reason == "full":
        text = f"the queue of limit {limit.name} is full ({limit.queue_max} already waiting)"
        return f"{text}: try again later, or raise its queue_max.", detail
    if waiter.reason == "rate":
        text = f"limit {limit.name} allows {limit.rate:g} per second"
        waited = format_duration(timeout_us)
        return f"{text}, and the wait for a token would exceed {waited}.", detail
    text = f"no slot of limit {limit.name} became free within {format_duration(timeout_us)}"
    try:
        usage, more = _usage(store, limit.limit_id, limit.name)
    except PenstockError as error:
        return f"{text}, and its holders could not be read from the store: {error}", detail
    if waiter.limit_state.last_error is not None and not more["holders"]:
        usage = f"; the store failed in the meantime: {waiter.limit_state.last_error}"
    return f"{text}{usage}.", detail | more


def _usage(store: Transactions, limit_id: int, name: str) -> tuple[str, dict[str, Any]]:
    def read(tx: Any) -> tuple[Any, ...]:
        views = limit_list(tx, name=name, n=10)
        view = next((v for v in views if v.limit.limit_id == limit_id), None)
        return view, limit_holders(tx, limit_id, NAMED_MAX), limit_queue(tx, limit_id, 1_000)

    view, holders, queue = store.read(read)
    names = [lease.holder for lease in holders]
    more = {"holders": names, "waiting": len(queue)}
    if view is None:
        return "", more
    more |= {"held": view.held, "capacity": view.limit.capacity, "effective": view.limit.effective}
    if view.limit.capacity == 0:
        opens = f"`penstock limits set {name} --capacity 1` opens it"
        return f": it is closed (capacity 0), {len(queue)} waiting; {opens}", more
    rest = f" and {view.holders - len(names)} more" if view.holders > len(names) else ""
    learned = ""
    if view.limit.effective != view.limit.capacity:
        learned = f" (lowered from {view.limit.capacity} by quota errors)"
    holders_text = f"held by {', '.join(names)}{rest}" if names else "held"
    used = f"{view.held} of {view.limit.effective}{learned} {holders_text}"
    return f": {used}; {len(queue)} waiting", more
