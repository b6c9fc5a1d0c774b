"""Grant transaction of a limit (release, leave, read, grant): the only code that changes holders.

A grant transaction locks the limit's row with its first statement and reads in later statements,
because a statement that waited for the lock still sees the state before it. Grants follow the
queue: tickets by number, then new requests. A ticket of another process is granted with a short
lease, which that process extends to a full one when it is notified; so a process that died while
waiting costs seconds, not a whole lease.

A run that is snoozed keeps its ticket until it uses the slot or ends: a slot granted to it is lost
if no worker executes the run soon, and its ticket may expire first. The ticket then cannot be
granted, but its place and the time of its first request are there when the run requests the slot
again. The ticket of a run that is paused is dropped, so that the pause is not counted as a wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import penstock.limits.rules as rules
import penstock.limits.token_bucket as token_bucket
from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import NotFound
from penstock.db.store import PendingResult, Tx, first
from penstock.limits.store.rows import (
    Abandon,
    GrantInput,
    GrantResult,
    LeaseRequest,
    LeaseRow,
    LimitRow,
    Release,
    TicketRow,
)

TICKET_US: Final = 15 * SECOND
"""Time after which tickets that a broker has not renewed are dropped."""
SNOOZED: Final = ""
"""Broker id of runs that wait without a worker."""
SNOOZE_US: Final = 30 * SECOND
"""Wait after which a run releases its worker; its ticket is kept."""
SNOOZED_HOLD_US: Final = MINUTE
"""How long a slot is reserved for a snoozed run until a worker executes it."""
RUNNING_HOLD_US: Final = 4 * MINUTE
"""How much longer it is reserved if the run is running and has not reached the slot yet."""
KEPT_US: Final = 5 * MINUTE
"""Interval between checks whether the run of a kept ticket has ended or is paused."""
KEEPS_TICKET: Final = 0
"""No ticket: that of a snoozed run is kept until the run uses the slot."""
TICKET_PAGE: Final = 64
_GRANT: Final = (
    "ticket", "limit_id", "customer", "weight", "broker", "holder", "request", "run_id",
    "is_taken", "asked_at", "lease_us", "hold_us", "wait_us",
)  # fmt: skip


class _Released(NamedTuple):
    weight: int
    token: int
    since_at: int


class _Usage(NamedTuple):
    held: int
    first_until_at: int | None
    now: int
    has_runs: bool
    has_tickets: bool


def limit_lock(tx: Tx, limit_id: int) -> LimitRow | None:
    """Return a limit, locked for the rest of the transaction."""
    row = first(tx.rows("limit_lock", {"limit_id": limit_id}))
    return None if row is None else LimitRow._make(row)


def limit_grant(tx: Tx, limit_id: int, grant: GrantInput) -> GrantResult:
    """Run one grant transaction: lock, release, leave, read, grant in ticket order.

    Statements that need no intermediate result are sent together with the lock. Each of them still
    takes its own snapshot, after the lock was granted.
    """
    is_plain = not grant.abandons and not any(want.is_repeated for want in grant.requests)
    if is_plain and tx.engine == "sqlite":
        return _serve_sqlite(tx, limit_id, grant)
    lock = tx.later("limit_lock", {"limit_id": limit_id})
    released = _releasing(tx, limit_id, grant.releases, "released")
    early = _query_usage(tx, limit_id, with_queue=grant.collect) if is_plain else None
    row = first(lock.rows())
    if row is None:
        raise NotFound("limit", limit_id)
    return _serve(tx, LimitRow._make(row), grant, _released(released), early)


def _serve_sqlite(tx: Tx, limit_id: int, grant: GrantInput) -> GrantResult:
    """Grant on SQLite, where the transaction is the lock: read limit and usage in one statement."""
    released = _releasing(tx, limit_id, grant.releases, "released")
    query = _query_usage(tx, limit_id, with_queue=grant.collect, verb="limit_get_with_usage")
    row = first(query.usage.rows())
    if row is None:
        raise NotFound("limit", limit_id)
    limit = LimitRow._make(row[len(_Usage._fields) :])
    return _serve(tx, limit, grant, _released(released), query)


def grant_locked(tx: Tx, limit: LimitRow, grant: GrantInput) -> GrantResult:
    """Run a grant transaction for a limit whose row is already locked."""
    released = _releasing(tx, limit.limit_id, grant.releases, "released")
    return _serve(tx, limit, grant, _released(released), None)


def _serve(
    tx: Tx,
    limit: LimitRow,
    grant: GrantInput,
    released: Sequence[_Released],
    early: _UsageQuery | None,
) -> GrantResult:
    served = GrantResult(limit=limit, released=len(released))
    if grant.abandons:
        _leave(tx, limit, grant.abandons)
    wants = _adopt(tx, limit, grant, served)
    query = early or _query_usage(tx, limit.limit_id, with_queue=grant.collect)
    usage = _read_usage(query)
    if usage.first_until_at is not None and usage.first_until_at + limit.grace_us <= usage.now:
        served.expired = _expire(tx, limit)
        query = _query_usage(tx, limit.limit_id, with_queue=grant.collect)
        usage = _read_usage(query)
    served.now = usage.now
    served.limit = limit = _learn_success(tx, limit, grant, released, usage)
    queue = None
    if wants or usage.has_tickets or usage.has_runs:
        queue = _Queue(limit, grant.broker, usage, served)
        _grant(tx, queue, wants, query.queue)
    collected = None
    if grant.collect:
        params = {"limit_id": limit.limit_id, "broker": grant.broker}
        collected = tx.later("limit_collect", params)
    if queue is not None:
        queue.report()
    for row in collected.rows() if collected is not None else ():
        _add_lease(served, LeaseRow._make(row))
    return served


def _add_lease(served: GrantResult, lease: LeaseRow) -> None:
    """Add a lease granted by another process to the result; a rate may delay its use."""
    served.add(lease)
    if served.limit.rate is not None:
        served.waits[lease.request] = max(0, lease.since_at - served.now)


def _releasing(
    tx: Tx, limit_id: int, releases: Sequence[Release | tuple[int, int]], outcome: str
) -> PendingResult | None:
    """Delete leases by (lease, token) and record them in the history."""
    if not releases:
        return None
    params: dict[str, Any] = {"limit_id": limit_id, "outcome": outcome}
    if len(releases) == 1:
        params |= {"lease_id": releases[0][0], "token": releases[0][1]}
        return tx.later("limit_release_one", params)
    batch = [(release[0], release[1]) for release in releases]
    return tx.later("limit_release_many", params, batch)


def _released(result: PendingResult | None) -> list[_Released]:
    return [] if result is None else [_Released._make(row) for row in result.rows()]


def _leave(tx: Tx, limit: LimitRow, leaves: Sequence[Abandon]) -> None:
    batch = [(limit.limit_id, leave.request, leave.outcome) for leave in leaves]
    tx.rows("ticket_drop_many", batch=batch)
    params = {"limit_id": limit.limit_id, "requests": [leave.request for leave in leaves]}
    late = [(row[0], row[1]) for row in tx.rows("limit_leases_of_requests", params)]
    _releasing(tx, limit.limit_id, late, "abandoned")


def _expire(tx: Tx, limit: LimitRow) -> int:
    params = {"limit_id": limit.limit_id, "grace_us": limit.grace_us, "running_us": RUNNING_HOLD_US}
    gone = [(row[0], row[1]) for row in tx.rows("limit_expired", params)]
    return len(_released(_releasing(tx, limit.limit_id, gone, "expired")))


def _adopt(tx: Tx, limit: LimitRow, grant: GrantInput, served: GrantResult) -> list[LeaseRequest]:
    """Assign repeated requests their earlier leases and tickets. Return the others."""
    again = [want.request for want in grant.requests if want.is_repeated]
    if not again:
        return list(grant.requests)
    params = {"limit_id": limit.limit_id, "broker": grant.broker, "requests": again}
    if limit.rate is not None:
        served.now = tx.now()
    for row in tx.rows("limit_adopt_leases", params):
        _add_lease(served, LeaseRow._make(row))
    if served.leases:
        own = {"limit_id": limit.limit_id, "requests": list(served.leases)}
        tx.run("ticket_delete_many", own)
    for row in tx.rows("limit_adopt_tickets", {**params, "ticket_us": TICKET_US}):
        ticket = TicketRow._make(row)
        served.tickets[ticket.request] = (ticket.ticket, ticket.asked_at)
    known = served.leases.keys() | served.tickets.keys()
    return [want for want in grant.requests if want.request not in known]


class _UsageQuery(NamedTuple):
    usage: PendingResult
    queue: PendingResult | None


def _query_usage(
    tx: Tx, limit_id: int, *, with_queue: bool, verb: str = "limit_usage"
) -> _UsageQuery:
    """Query a limit's usage and, if requests are likely to wait, its queue."""
    usage = tx.later(verb, {"limit_id": limit_id})
    return _UsageQuery(usage, _page(tx, limit_id, 0) if with_queue else None)


def _read_usage(query: _UsageQuery) -> _Usage:
    held, first_until_at, now, has_runs, has_tickets = query.usage.rows()[0][: len(_Usage._fields)]
    return _Usage(int(held), first_until_at, now, bool(has_runs), bool(has_tickets))


def _page(tx: Tx, limit_id: int, after: int) -> PendingResult:
    return tx.later("limit_tickets_next", {"limit_id": limit_id, "after": after, "n": TICKET_PAGE})


def _learn_success(
    tx: Tx, limit: LimitRow, grant: GrantInput, released: Sequence[_Released], usage: _Usage
) -> LimitRow:
    """Raise an adaptive capacity for successes while the limit was fully used."""
    if not limit.is_adaptive or limit.learned is None or limit.capacity is None or not released:
        return limit
    used = usage.held + sum(lease.weight for lease in released)
    if used < (limit.effective or 0):
        return limit
    good = {release.token for release in grant.releases if release.is_success}
    count = sum(
        1 for lease in released if lease.token in good and lease.since_at >= (limit.learned_at or 0)
    )
    if not count:
        return limit
    learned = rules.raised_capacity(limit.capacity, limit.learned, limit.floor, count)
    params = {"limit_id": limit.limit_id, "learned": learned, "learned_at": limit.learned_at}
    tx.later("limit_learn", params)
    raised = limit._replace(learned=learned)
    capacity_note(tx, limit, raised, "success", usage.now)
    return raised


def capacity_note(tx: Tx, before: LimitRow, after: LimitRow, cause: str, now: int) -> None:
    """Record a change of a limit's effective capacity: set, or by a quota error or successes."""
    if before.effective != after.effective:
        params = {"limit_id": after.limit_id, "customer": after.customer_key,
                  "capacity": after.effective, "before": before.effective, "cause": cause,
                  "at": now}  # fmt: skip
        tx.later("limit_capacity_put", params)


class _Queue:
    """The queue during a grant transaction; `held` grows with every grant."""

    def __init__(self, limit: LimitRow, broker: str, usage: _Usage, served: GrantResult) -> None:
        self.limit = limit
        self.broker = broker
        self.usage = usage
        self.served = served
        self.held = usage.held
        self.effective = limit.effective
        self.rows: list[tuple[Any, ...]] = []
        self.waits: dict[str, int] = {}
        self.grants: PendingResult | None = None
        self.queued: PendingResult | None = None
        self.bucket = limit.bucket(usage.now)
        self.is_blocked = False
        self.tokens = 0

    def fitting(self, weights: Sequence[int]) -> int:
        """Return how many of the next requests can be granted now."""
        if self.is_blocked:
            return 0
        count = rules.grantable_count(
            weights, held=self.held, effective=self.effective, capacity=self.limit.capacity
        )
        self.held += sum(weights[:count])
        self.is_blocked = count < len(weights)
        return count

    def report(self) -> None:
        """Add the calling broker's grants and tickets to the result."""
        served = self.served
        for row in self.grants.rows() if self.grants is not None else ():
            lease = LeaseRow._make(row)
            if lease.broker == self.broker and lease.is_taken:
                served.add(lease)
                if self.waits.get(lease.request):
                    served.waits[lease.request] = self.waits[lease.request]
        for ticket, request, asked_at in self.queued.rows() if self.queued is not None else ():
            served.tickets[request] = (ticket, asked_at)

    def wait(self, weight: int, within: int | None = None) -> int | None:
        """Return the delay imposed by the rate; None if it exceeds `within`."""
        if self.bucket is None:
            return 0
        tokens = min(weight, self.limit.terms.burst_now)
        taken = token_bucket.take(self.bucket, tokens, self.usage.now, within)
        if taken is None:
            return None
        self.bucket = taken[0]
        self.tokens += tokens
        return taken[1]


def _grant(
    tx: Tx, queue: _Queue, wants: list[LeaseRequest], first_page: PendingResult | None
) -> None:
    """Grant tickets in order, then new requests; the rest get tickets."""
    limit, served = queue.limit, queue.served
    result = first_page
    after = 0
    while queue.usage.has_tickets and not queue.is_blocked:
        rows = (result or _page(tx, limit.limit_id, after)).rows()
        page = sorted(TicketRow._make(row) for row in rows)
        _grant_tickets(tx, queue, page)
        waiting = [ticket.ticket for ticket in page if ticket.kept_until is None]
        if len(waiting) < TICKET_PAGE:
            break
        after, result = waiting[-1], None
    late = _grant_wants(queue, wants)
    if queue.rows:
        queue.grants = _put(tx, queue.rows)
    if queue.tokens:
        assert queue.bucket is not None
        params = {"limit_id": limit.limit_id, "level": queue.bucket.level,
                  "level_at": queue.bucket.at, "tokens": queue.tokens,
                  "minute": queue.usage.now // MINUTE}  # fmt: skip
        tx.later("limit_level_put", params)
    if late:
        _enqueue(tx, queue, late)
    free = queue.effective is None or queue.held < queue.effective
    served.wakes_admitter = served.wakes_admitter or (
        queue.usage.has_runs and free and not queue.is_blocked
    )


def _put(tx: Tx, rows: Sequence[tuple[Any, ...]]) -> PendingResult:
    """Insert leases. The common case, a single lease without a ticket, has a cheaper statement."""
    if len(rows) == 1 and rows[0][0] is None:
        return tx.later("limit_grant_one", dict(zip(_GRANT, rows[0], strict=True)))
    return tx.later("limit_grant_many", batch=rows)


def _grant_tickets(tx: Tx, queue: _Queue, page: Sequence[TicketRow]) -> None:
    limit, served = queue.limit, queue.served
    live = _sort_tickets(tx, queue, page)
    going = live[: queue.fitting([ticket.weight for ticket in live])]
    snoozed = [ticket for ticket in going if ticket.broker == SNOOZED]
    for ticket in going:
        mine = ticket.broker == queue.broker and ticket.broker != SNOOZED
        hold, used = ticket.lease_us, ticket.ticket
        if ticket.broker == SNOOZED:
            hold, used = SNOOZED_HOLD_US, KEEPS_TICKET
        elif not mine:
            hold = min(hold, TICKET_US)
            served.brokers.add(ticket.broker)
        wait = queue.waits[ticket.request] = queue.wait(ticket.weight) or 0
        queue.rows.append(
            (used, limit.limit_id, limit.customer_key, ticket.weight, ticket.broker,
             ticket.holder, ticket.request, ticket.run_id, mine, ticket.asked_at,
             ticket.lease_us, hold, wait)
        )  # fmt: skip
    _keep(tx, snoozed)
    ids = [ticket.run_id for ticket in snoozed]
    if ids and tx.rows("limit_run_wake", {"ids": ids}):
        served.wakes_admitter = True


def _sort_tickets(tx: Tx, queue: _Queue, page: Sequence[TicketRow]) -> list[TicketRow]:
    """Return the tickets that can be granted. Drop the others, or keep them for their runs."""
    limit, served, now = queue.limit, queue.served, queue.usage.now
    ids = sorted({t.run_id for t in page if t.broker == SNOOZED and t.run_id is not None})
    alive = tx.rows("limit_run_alive", {"ids": ids}) if ids else []
    runs: dict[int | None, bool] = {run_id: bool(can_use) for run_id, can_use in alive}
    live: list[TicketRow] = []
    kept: list[TicketRow] = []
    gone: list[tuple[int, str, str]] = []
    for ticket in page:
        is_snoozed = ticket.broker == SNOOZED
        if limit.capacity and ticket.weight > limit.capacity:
            gone.append((limit.limit_id, ticket.request, "refused"))
            served.brokers |= set() if is_snoozed else {ticket.broker}
        elif is_snoozed and ticket.run_id in runs:
            is_live = ticket.kept_until is None and ticket.until_at > now and runs[ticket.run_id]
            (live if is_live else kept).append(ticket)
        elif is_snoozed or ticket.until_at <= now:
            gone.append((limit.limit_id, ticket.request, "abandoned"))
        else:
            live.append(ticket)
    if gone:
        tx.later("ticket_drop_many", batch=gone)
    _keep(tx, kept)
    return live


def _keep(tx: Tx, tickets: Sequence[TicketRow]) -> None:
    if tickets:
        batch = [(ticket.ticket,) for ticket in tickets]
        tx.later("ticket_keep_many", {"kept_us": KEPT_US}, batch)


def _grant_wants(queue: _Queue, wants: list[LeaseRequest]) -> list[LeaseRequest]:
    """Grant new requests after all tickets. Return those that must wait."""
    limit, served = queue.limit, queue.served
    valid: list[LeaseRequest] = []
    for want in wants:
        if limit.capacity and want.weight > limit.capacity:
            served.refused[want.request] = "weight"
        elif limit.rate is not None and want.weight > limit.terms.burst_now:
            served.refused[want.request] = "burst"
        else:
            valid.append(want)
    count = queue.fitting([want.weight for want in valid])
    for want in valid[:count]:
        wait = queue.wait(want.weight, want.max_wait_us)
        if wait is None:
            served.refused[want.request] = "rate"
            queue.held -= want.weight
            continue
        if limit.capacity is None and (want.run_id is None or wait <= SNOOZE_US):
            served.waits[want.request] = wait
            continue
        queue.waits[want.request] = wait
        lease_us = want.lease_us or limit.lease_us
        queue.rows.append(
            (None, limit.limit_id, limit.customer_key, want.weight, queue.broker, want.holder,
             want.request, want.run_id, True, want.asked_at, lease_us, lease_us, wait)
        )  # fmt: skip
    return valid[count:]


def _enqueue(tx: Tx, queue: _Queue, late: list[LeaseRequest]) -> None:
    limit, served = queue.limit, queue.served
    for want in late:
        if not want.waits:
            served.refused[want.request] = "busy"
    waiting = [want for want in late if want.waits]
    if limit.queue_max is not None and waiting:
        count = int(tx.rows("ticket_count", {"limit_id": limit.limit_id})[0][0])
        free = max(0, limit.queue_max - count)
        for want in waiting[free:]:
            served.refused[want.request] = "full"
        waiting = waiting[:free]
    batch = [
        (limit.limit_id, limit.customer_key, want.weight, queue.broker, want.holder, want.request,
         want.run_id, want.lease_us or limit.lease_us, want.asked_at, TICKET_US)
        for want in waiting
    ]  # fmt: skip
    queue.queued = tx.later("ticket_put_many", batch=batch)
