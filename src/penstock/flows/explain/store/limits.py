"""Facts about the limits a run waits for: holders, queue position, when capacity is available.

Read-only. A client scoped to one customer sees that customer's holders. About others it sees only
that they hold the rest, not their names, their number, or the length of the queue.
"""

from __future__ import annotations

from penstock.core.clock import SECOND
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.flows.explain.facts import RUNS_AHEAD_MAX, HolderFact, LimitFact
from penstock.limits.store.run_queue import Holder, QueuePosition, holders_of, queue_positions
from penstock.pipelines.declare.limit_needs import customer_of_limit

HOLDERS_MAX = 5
"""Maximum number of holders that are named, longest-held first."""


def limit_facts(tx: Tx, run_id: int, customer_key: CustomerKey | None) -> tuple[LimitFact, ...]:
    """Return the limits a waiting run needs; `customer_key` is the key of a scoped client's
    customer.

    With `customer_key` None, facts about all holders are included.
    """
    now = tx.now()
    return tuple(
        _fact(tx, stand, customer_key, now) for stand in queue_positions(tx, run_id, RUNS_AHEAD_MAX)
    )


def _fact(tx: Tx, stand: QueuePosition, customer_key: CustomerKey | None, now: int) -> LimitFact:
    capacity, most = stand.free_capacity, stand.capacity
    is_bound = customer_key is not None
    lacks = stand.is_waiting if is_bound else capacity.is_short_of(stand.weight) or (
        stand.is_waiting and stand.ahead > 0
    )  # fmt: skip
    wait_us = None if is_bound else capacity.wait_us(stand.weight)
    if wait_us and capacity.rate:
        wait_us += int(stand.ahead / capacity.rate * SECOND)
    is_full = lacks and most != 0 and not wait_us
    holders = holders_of(tx, stand.limit_id, customer_key, HOLDERS_MAX + 1) if is_full else []
    named = holders[:HOLDERS_MAX]
    own = sum(one.weight for one in holders)
    return LimitFact(
        name=stand.name,
        customer=customer_of_limit(stand.name) if stand.owner else None,
        weight=stand.weight,
        is_exhausted=lacks,
        is_waiting=stand.is_waiting,
        capacity=most,
        held=None if is_bound else capacity.held,
        waiters_ahead=None if is_bound else stand.ahead,
        holders=tuple(map(_holder, named)),
        has_others=is_full
        and (len(holders) > len(named) or (is_bound and most is not None and own < most)),
        tokens_at=now + wait_us if lacks and wait_us else None,
    )


def _holder(one: Holder) -> HolderFact:
    if one.run_id is None or one.state is None:
        doing = "holds it" if one.weight == 1 else "holds"
        return HolderFact(holder=one.holder, since=one.since_at, weight=one.weight, activity=doing)
    where = f" on {one.claimed_by}" if one.claimed_by else ""
    doing = f"runs{where} and holds" if one.state != "PENDING" else "waits for a worker, holding"
    return HolderFact(
        holder=encode("run", one.run_id),
        since=one.since_at,
        weight=one.weight,
        activity=f"{doing} {'it' if one.weight == 1 else ''}".rstrip(),
        until_at=one.timeout_at,
    )
