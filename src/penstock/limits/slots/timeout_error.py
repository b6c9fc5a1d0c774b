"""What somebody is told who waited in vain: who holds the limit, and who stands in front."""

from __future__ import annotations

from typing import Any

from penstock.core.clock import SECOND, format_duration
from penstock.core.errors import PenstockError
from penstock.db.store import Store
from penstock.limits.slots.limit_state import Waiter
from penstock.limits.store.reads import limit_holders, limit_page, limit_queue

NAMED_MAX = 5


def timeout_message(store: Store, waiter: Waiter, timeout_us: int) -> tuple[str, dict[str, Any]]:
    """The sentence of a LimitTimeout and its details; never fails, whatever the store does."""
    limit = waiter.desk.limit
    detail: dict[str, Any] = {"limit": limit.name, "timeout_seconds": timeout_us / SECOND}
    if waiter.reason == "full":
        text = f"the line of limit {limit.name} is full ({limit.queue_max} wait already)"
        return f"{text}: try again later, or raise its queue_max.", detail
    if waiter.reason == "rate":
        text = f"limit {limit.name} lets {limit.rate:g} go per second"
        waited = format_duration(timeout_us)
        return f"{text}, and it would take longer than {waited} to be one of them.", detail
    text = f"no slot of limit {limit.name} became free within {format_duration(timeout_us)}"
    try:
        told, more = _surroundings(store, limit.limit_id, limit.name)
    except PenstockError as error:
        return f"{text}, and the store cannot say who holds it: {error}", detail
    if waiter.desk.last_error is not None and not more["holders"]:
        told = f"; the store failed meanwhile: {waiter.desk.last_error}"
    return f"{text}{told}.", detail | more


def _surroundings(store: Store, limit_id: int, name: str) -> tuple[str, dict[str, Any]]:
    def look(tx: Any) -> tuple[Any, ...]:
        views = limit_page(tx, name=name, n=10)
        view = next((v for v in views if v.limit.limit_id == limit_id), None)
        return view, limit_holders(tx, limit_id, NAMED_MAX), limit_queue(tx, limit_id, 1_000)

    view, holders, queue = store.read(look)
    names = [lease.holder for lease in holders]
    more = {"holders": names, "waiting": len(queue)}
    if view is None:
        return "", more
    more |= {"held": view.held, "capacity": view.limit.capacity, "effective": view.limit.effective}
    if view.limit.capacity == 0:
        opens = f"`penstock limits set {name} --capacity 1` opens it"
        return f": it is closed (capacity 0) and {len(queue)} wait; {opens}", more
    rest = f" and {view.holders - len(names)} more" if view.holders > len(names) else ""
    learned = ""
    if view.limit.effective != view.limit.capacity:
        learned = f" (lowered from {view.limit.capacity} by quota errors)"
    who = f"held by {', '.join(names)}{rest}" if names else "held by nobody"
    return f": {view.held} of {view.limit.effective}{learned} {who}; {len(queue)} wait", more
