"""One turn of a limit: give back, leave, look, grant. The only place where holders change.

A turn holds the lock on the limit's row from its first statement on; what it judges, it reads in
later statements, because a statement that waited for the lock still sees what was before. Grants
follow the line: tickets by number, then those who ask just now. Somebody whose turn has come and
whose process is another one gets a short lease, which that process makes a full one when it learns
of it; so a process that died while waiting costs seconds, not a whole lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import NotFound
from penstock.db.store import Later, Tx, first
from penstock.limits import rules, token_bucket
from penstock.limits.store.rows import Lease, Leave, Limit, Release, Served, Ticket, Turn, Want

TICKET_US: Final = 15 * SECOND
"""A broker that does not answer for its waiters this long has left the line."""
SNOOZED: Final = ""
"""The broker of a run that waits without a worker."""
SNOOZE_US: Final = 30 * SECOND
"""A run that has to wait longer gives its worker back; what it waits for is kept for it."""
SNOOZED_HOLD_US: Final = 5 * MINUTE
"""How long a slot waits for the snoozed run it was granted to."""
PAGE: Final = 64
_GRANT: Final = (
    "ticket", "limit_id", "customer", "weight", "broker", "holder", "request", "run_id",
    "is_taken", "asked_at", "lease_us", "hold_us", "wait_us",
)  # fmt: skip


class _Given(NamedTuple):
    weight: int
    token: int
    since_at: int


class _Look(NamedTuple):
    held: int
    least: int | None
    now: int
    has_runs: bool
    has_line: bool


def limit_lock(tx: Tx, limit_id: int) -> Limit | None:
    """A limit, locked for the rest of the transaction."""
    row = first(tx.rows("limit_lock", {"limit_id": limit_id}))
    return None if row is None else Limit._make(row)


def limit_serve(tx: Tx, limit_id: int, turn: Turn) -> Served:
    """One turn: lock, give back, leave, look, grant in ticket order.

    What needs no answer in between travels together with the lock: each statement still looks for
    itself, after the lock was granted.
    """
    is_plain = not turn.leaves and not any(want.is_repeated for want in turn.wants)
    if is_plain and tx.engine == "sqlite":
        return _serve_seen(tx, limit_id, turn)
    lock = tx.later("limit_lock", {"limit_id": limit_id})
    given = _releasing(tx, limit_id, turn.releases, "released")
    early = _looking(tx, limit_id, with_line=turn.collects) if is_plain else None
    row = first(lock.rows())
    if row is None:
        raise NotFound("limit", limit_id)
    return _serve(tx, Limit._make(row), turn, _given(given), early)


def _serve_seen(tx: Tx, limit_id: int, turn: Turn) -> Served:
    """The same on SQLite, whose transaction is the lock: the limit and its holders in one look."""
    given = _releasing(tx, limit_id, turn.releases, "released")
    looking = _looking(tx, limit_id, with_line=turn.collects, verb="limit_see")
    row = first(looking.look.rows())
    if row is None:
        raise NotFound("limit", limit_id)
    limit = Limit._make(row[len(_Look._fields) :])
    return _serve(tx, limit, turn, _given(given), looking)


def serve(tx: Tx, limit: Limit, turn: Turn) -> Served:
    """One turn of a limit whose row is locked already."""
    given = _releasing(tx, limit.limit_id, turn.releases, "released")
    return _serve(tx, limit, turn, _given(given), None)


def _serve(
    tx: Tx, limit: Limit, turn: Turn, given: Sequence[_Given], early: _Looking | None
) -> Served:
    served = Served(limit=limit, released=len(given))
    if turn.leaves:
        _leave(tx, limit, turn.leaves)
    wants = _adopt(tx, limit, turn, served)
    looking = early or _looking(tx, limit.limit_id, with_line=turn.collects)
    look = _looked(looking)
    if look.least is not None and look.least + limit.grace_us <= look.now:
        served.expired = _expire(tx, limit)
        looking = _looking(tx, limit.limit_id, with_line=turn.collects)
        look = _looked(looking)
    served.now = look.now
    served.limit = limit = _learn_success(tx, limit, turn, given, look)
    line = None
    if wants or look.has_line or look.has_runs:
        line = _Line(limit, turn.broker, look, served)
        _grant(tx, line, wants, looking.line)
    collected = None
    if turn.collects:
        params = {"limit_id": limit.limit_id, "broker": turn.broker}
        collected = tx.later("limit_collect", params)
    if line is not None:
        line.tell()
    for row in collected.rows() if collected is not None else ():
        _told(served, Lease._make(row))
    return served


def _told(served: Served, lease: Lease) -> None:
    """Answer with a lease that others granted; a rate may let it go only later."""
    served.tell(lease)
    if served.limit.rate is not None:
        served.waits[lease.request] = max(0, lease.since_at - served.now)


def _releasing(
    tx: Tx, limit_id: int, releases: Sequence[Release | tuple[int, int]], outcome: str
) -> Later | None:
    """Delete leases by (lease, token) and tell it in the history."""
    if not releases:
        return None
    params: dict[str, Any] = {"limit_id": limit_id, "outcome": outcome}
    if len(releases) == 1:
        params |= {"lease_id": releases[0][0], "token": releases[0][1]}
        return tx.later("limit_release_one", params)
    batch = [(release[0], release[1]) for release in releases]
    return tx.later("limit_release_many", params, batch)


def _given(answer: Later | None) -> list[_Given]:
    return [] if answer is None else [_Given._make(row) for row in answer.rows()]


def _leave(tx: Tx, limit: Limit, leaves: Sequence[Leave]) -> None:
    batch = [(limit.limit_id, leave.request, leave.outcome) for leave in leaves]
    dropped = {row[0] for row in tx.rows("ticket_drop_many", batch=batch)}
    asked = [leave.request for leave in leaves if leave.request not in dropped]
    if asked:
        params = {"limit_id": limit.limit_id, "requests": asked}
        late = [(row[0], row[1]) for row in tx.rows("limit_leases_asked", params)]
        _releasing(tx, limit.limit_id, late, "abandoned")


def _expire(tx: Tx, limit: Limit) -> int:
    params = {"limit_id": limit.limit_id, "grace_us": limit.grace_us}
    gone = [(row[0], row[1]) for row in tx.rows("limit_expired", params)]
    return len(_given(_releasing(tx, limit.limit_id, gone, "expired")))


def _adopt(tx: Tx, limit: Limit, turn: Turn, served: Served) -> list[Want]:
    """Requests that were answered before get the same answer; returns the others."""
    again = [want.request for want in turn.wants if want.is_repeated]
    if not again:
        return list(turn.wants)
    params = {"limit_id": limit.limit_id, "broker": turn.broker, "requests": again}
    if limit.rate is not None:
        served.now = tx.now()
    for row in tx.rows("limit_adopt_leases", params):
        _told(served, Lease._make(row))
    for row in tx.rows("limit_adopt_tickets", {**params, "ticket_us": TICKET_US}):
        ticket = Ticket._make(row)
        served.tickets[ticket.request] = (ticket.ticket, ticket.asked_at)
    known = served.leases.keys() | served.tickets.keys()
    return [want for want in turn.wants if want.request not in known]


class _Looking(NamedTuple):
    look: Later
    line: Later | None


def _looking(tx: Tx, limit_id: int, *, with_line: bool, verb: str = "limit_look") -> _Looking:
    """Look at a limit, and at once at its line when there is likely to be one."""
    look = tx.later(verb, {"limit_id": limit_id})
    return _Looking(look, _page(tx, limit_id, 0) if with_line else None)


def _looked(looking: _Looking) -> _Look:
    held, least, now, has_runs, has_line = looking.look.rows()[0][: len(_Look._fields)]
    return _Look(int(held), least, now, bool(has_runs), bool(has_line))


def _page(tx: Tx, limit_id: int, after: int) -> Later:
    return tx.later("limit_line", {"limit_id": limit_id, "after": after, "n": PAGE})


def _learn_success(tx: Tx, limit: Limit, turn: Turn, given: Sequence[_Given], look: _Look) -> Limit:
    """Raise an adaptive capacity for what went well while the limit was fully used."""
    if not limit.is_adaptive or limit.learned is None or limit.capacity is None or not given:
        return limit
    used = look.held + sum(lease.weight for lease in given)
    if used < (limit.effective or 0):
        return limit
    good = {release.token for release in turn.releases if release.is_good}
    count = sum(
        1 for lease in given if lease.token in good and lease.since_at >= (limit.learned_at or 0)
    )
    if not count:
        return limit
    learned = rules.raised(limit.capacity, limit.learned, limit.floor, count)
    params = {"limit_id": limit.limit_id, "learned": learned, "learned_at": limit.learned_at}
    tx.later("limit_learn", params)
    return limit._replace(learned=learned)


class _Line:
    """The line while it is being served: what is held grows with every grant."""

    def __init__(self, limit: Limit, broker: str, look: _Look, served: Served) -> None:
        self.limit = limit
        self.broker = broker
        self.look = look
        self.served = served
        self.held = look.held
        self.effective = limit.effective
        self.rows: list[tuple[Any, ...]] = []
        self.waits: dict[str, int] = {}
        self.grants: Later | None = None
        self.queued: Later | None = None
        self.bucket = limit.bucket(look.now)
        self.is_blocked = False
        self.has_taken = False

    def fitting(self, weights: Sequence[int]) -> int:
        """How many of the next in line go now."""
        if self.is_blocked:
            return 0
        count = rules.granted(
            weights, held=self.held, effective=self.effective, capacity=self.limit.capacity
        )
        self.held += sum(weights[:count])
        self.is_blocked = count < len(weights)
        return count

    def tell(self) -> None:
        """Answer with what was granted to, or queued for, those who asked."""
        served = self.served
        for row in self.grants.rows() if self.grants is not None else ():
            lease = Lease._make(row)
            if lease.broker == self.broker and lease.is_taken:
                served.tell(lease)
                if self.waits.get(lease.request):
                    served.waits[lease.request] = self.waits[lease.request]
        for ticket, request, asked_at in self.queued.rows() if self.queued is not None else ():
            served.tickets[request] = (ticket, asked_at)

    def wait(self, weight: int, within: int | None = None) -> int | None:
        """How long the rate makes somebody wait; None: longer than they would."""
        if self.bucket is None:
            return 0
        most = self.limit.terms.burst_now
        taken = token_bucket.take(self.bucket, min(weight, most), self.look.now, within)
        if taken is None:
            return None
        self.bucket, self.has_taken = taken[0], True
        return taken[1]


def _grant(tx: Tx, line: _Line, wants: list[Want], first_page: Later | None) -> None:
    """Grant tickets in order, then what is asked just now; the rest gets tickets."""
    limit, served = line.limit, line.served
    answer = first_page
    after = 0
    while line.look.has_line and not line.is_blocked:
        rows = (answer or _page(tx, limit.limit_id, after)).rows()
        page = [Ticket._make(row) for row in rows]
        _grant_tickets(tx, line, page)
        if len(page) < PAGE:
            break
        after, answer = page[-1].ticket, None
    late = _grant_wants(line, wants)
    if line.rows:
        line.grants = _put(tx, line.rows)
    if line.has_taken:
        assert line.bucket is not None
        params = {"limit_id": limit.limit_id, "level": line.bucket.level,
                  "level_at": line.bucket.at}  # fmt: skip
        tx.later("limit_level_put", params)
    if late:
        _enqueue(tx, line, late)
    room = line.effective is None or line.held < line.effective
    served.admits = served.admits or (line.look.has_runs and room and not line.is_blocked)


def _put(tx: Tx, rows: Sequence[tuple[Any, ...]]) -> Later:
    """Write leases; one that never was a ticket is the common case, and cheaper by itself."""
    if len(rows) == 1 and rows[0][0] is None:
        return tx.later("limit_grant_one", dict(zip(_GRANT, rows[0], strict=True)))
    return tx.later("limit_grant_many", batch=rows)


def _grant_tickets(tx: Tx, line: _Line, page: Sequence[Ticket]) -> None:
    limit, served = line.limit, line.served
    runs = sorted({t.run_id for t in page if t.broker == SNOOZED and t.run_id is not None})
    alive = {row[0] for row in tx.rows("limit_run_alive", {"ids": runs})} if runs else set()
    live: list[Ticket] = []
    gone: list[tuple[int, str, str]] = []
    for ticket in page:
        if limit.capacity and ticket.weight > limit.capacity:
            gone.append((limit.limit_id, ticket.request, "refused"))
            served.brokers.add(ticket.broker)
        elif ticket.until_at <= line.look.now or (
            ticket.broker == SNOOZED and ticket.run_id not in alive
        ):
            gone.append((limit.limit_id, ticket.request, "abandoned"))
        else:
            live.append(ticket)
    if gone:
        tx.later("ticket_drop_many", batch=gone)
    going = live[: line.fitting([ticket.weight for ticket in live])]
    for ticket in going:
        mine = ticket.broker == line.broker and ticket.broker != SNOOZED
        hold = ticket.lease_us
        if not mine:
            hold = SNOOZED_HOLD_US if ticket.broker == SNOOZED else min(hold, TICKET_US)
            served.brokers.add(ticket.broker)
        wait = line.waits[ticket.request] = line.wait(ticket.weight) or 0
        line.rows.append(
            (ticket.ticket, limit.limit_id, limit.customer, ticket.weight, ticket.broker,
             ticket.holder, ticket.request, ticket.run_id, mine, ticket.asked_at,
             ticket.lease_us, hold, wait)
        )  # fmt: skip
    snoozed = [ticket.run_id for ticket in going if ticket.broker == SNOOZED]
    served.brokers.discard(SNOOZED)
    if snoozed and tx.rows("limit_run_wake", {"ids": snoozed}):
        served.admits = True


def _grant_wants(line: _Line, wants: list[Want]) -> list[Want]:
    """Grant what is asked just now, behind everybody who waits; returns who has to wait."""
    limit, served = line.limit, line.served
    fine: list[Want] = []
    for want in wants:
        if limit.capacity and want.weight > limit.capacity:
            served.refused[want.request] = "weight"
        elif limit.rate is not None and want.weight > limit.terms.burst_now:
            served.refused[want.request] = "burst"
        else:
            fine.append(want)
    count = line.fitting([want.weight for want in fine])
    for want in fine[:count]:
        wait = line.wait(want.weight, want.within_us)
        if wait is None:
            served.refused[want.request] = "rate"
            line.held -= want.weight
            continue
        if limit.capacity is None and (want.run_id is None or wait <= SNOOZE_US):
            served.waits[want.request] = wait
            continue
        line.waits[want.request] = wait
        lease_us = want.lease_us or limit.lease_us
        line.rows.append(
            (None, limit.limit_id, limit.customer, want.weight, line.broker, want.holder,
             want.request, want.run_id, True, want.asked_at, lease_us, lease_us, wait)
        )  # fmt: skip
    return fine[count:]


def _enqueue(tx: Tx, line: _Line, late: list[Want]) -> None:
    limit, served = line.limit, line.served
    for want in late:
        if not want.waits:
            served.refused[want.request] = "busy"
    waiting = [want for want in late if want.waits]
    if limit.queue_max is not None and waiting:
        count = int(tx.rows("ticket_count", {"limit_id": limit.limit_id})[0][0])
        room = max(0, limit.queue_max - count)
        for want in waiting[room:]:
            served.refused[want.request] = "full"
        waiting = waiting[:room]
    batch = [
        (limit.limit_id, limit.customer, want.weight, line.broker, want.holder, want.request,
         want.run_id, want.lease_us or limit.lease_us, want.asked_at, TICKET_US)
        for want in waiting
    ]  # fmt: skip
    line.queued = tx.later("ticket_put_many", batch=batch)
