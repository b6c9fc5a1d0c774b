"""The broker: one per process and store; it asks, waits, renews and gives back for everybody there.

A limit has a desk. What callers want, give back or leave is put on the desk, and whoever finds the
desk free takes a turn with all of it in one transaction: the caller itself when nobody else in the
process waits there (one transaction, no ticket, no thread), the broker's thread otherwise. Waiting
costs a ticket row and an event, no connection.

    asked     on the desk, or in a turn whose answer is not there yet
    waiting   has a ticket
    granted, failed, left   over, for the waiter

A turn whose outcome is unknown is repeated: requests name themselves, so they get the same answer.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

from penstock.audit.telemetry import Events, QuotaHit, SlotTaken
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import Conflict, NotFound, StoreError
from penstock.core.ids import new_boot_id
from penstock.db.store import Store, Tx
from penstock.limits.rules import LimitTerms
from penstock.limits.slots.held_leases import Holdings
from penstock.limits.slots.limit_state import Desk, Held, Waiter
from penstock.limits.slots.renewer import FOREVER, PAUSE_SECONDS, Pulse
from penstock.limits.store.grant import limit_serve
from penstock.limits.store.limits import (
    Quota,
    limit_ensure,
    limit_quota,
    ticket_renew_many,
    ticket_snooze,
)
from penstock.limits.store.rows import Lease, Leave, Limit, Release, Served, Turn, channel

log = logging.getLogger(__name__)

TICKET_RENEW_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 2.0
"""How often a desk with waiters is looked at when no hint comes."""


class Broker:
    """Slots of one process in one store. Every method may be called from any thread."""

    def __init__(
        self, store: Store, *, clock: Clock | None = None, events: Events | None = None
    ) -> None:
        self.store = store
        self.clock = clock or SystemClock()
        self.events = events or Events()
        self.id = new_boot_id()
        self.pid = os.getpid()
        self.holdings = Holdings(store, self.clock, self.events)
        self._pulse = Pulse(store, channel(self.id), self.clock, self)
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._requests = itertools.count(1)
        self._desks: dict[tuple[int, str], Desk] = {}
        self._tickets_at = FOREVER
        self._looks_at = FOREVER
        self._retry_at = 0.0

    def desk(self, name: str, terms: LimitTerms, customer: int = 0, actor: str = "") -> Desk:
        """The desk of a limit, which is made with these terms if nobody has made it before."""
        self._check()
        found = self._desks.get((customer, name))
        if found is not None:
            return found
        with self._making:  # a thousand who come at once need one connection, not all there are
            found = self._desks.get((customer, name))
            if found is None:
                limit = self.store.write(
                    lambda tx: limit_ensure(tx, name, terms, customer=customer, actor=actor)
                )
                with self._lock:
                    found = self._desks[customer, name] = Desk(limit)
        return found

    def next_request(self) -> str:
        """A name for one asking, which nobody else gives."""
        return f"{self.id}:{next(self._requests)}"

    def knows(self, name: str, customer: int = 0) -> bool:
        """Whether the desk of a limit is there, so that asking for it costs nothing."""
        return (customer, name) in self._desks

    def ask(self, waiter: Waiter, *, direct: bool) -> None:
        """Put a waiter on its desk; direct: take the turn in this thread when nobody waits."""
        self._check()
        desk = waiter.desk
        with self._lock:
            desk.asked[waiter.request] = waiter
            desk.wants.append(waiter)
            mine = direct and _may_take(desk, asking=1)
        self._go(desk, mine)

    def leave(self, waiter: Waiter, outcome: str) -> bool:
        """Wait no longer; False when it was granted, or over, before."""
        desk = waiter.desk
        with self._lock:
            if waiter.is_over:
                return False
            waiter.leave()
            desk.asked.pop(waiter.request, None)
            desk.waiting.pop(waiter.request, None)
            if waiter in desk.wants:
                desk.wants.remove(waiter)
                if not waiter.want.is_repeated:
                    return True  # the store has never heard of it
            desk.leaves.append(Leave(waiter.request, outcome))
        self._pulse.rouse()
        return True

    def snooze(self, waiter: Waiter, delay_us: int) -> bool:
        """Keep a run's place while nobody waits for it; False when it is not in line any more."""
        desk = waiter.desk
        kept = self.store.write(
            lambda tx: ticket_snooze(tx, desk.limit.limit_id, waiter.request, delay_us)
        )
        with self._lock:
            if not kept or waiter.is_over:
                return False
            waiter.leave()
            desk.waiting.pop(waiter.request, None)
        return True

    def release(self, held: Held, *, is_good: bool, direct: bool) -> bool:
        """Give a slot back; False when it was given back, or lost, before."""
        if os.getpid() != self.pid or not self.holdings.pop(held):
            return False  # also a fork's copy of its parent's slot
        desk = held.desk
        with self._lock:
            desk.releases.append(Release(held.lease.lease_id, held.lease.token, is_good))
            mine = direct and _may_take(desk, asking=0)
        self._go(desk, mine)
        return True

    def let_go(self, held: Held) -> None:
        """Stop answering for a slot without giving it back: a snoozed run takes it up again."""
        self.holdings.pop(held)

    def report_quota(self, desk: Desk, lease: Lease | None, holder: str = "") -> Quota:
        """Tell that what the limit stands for refused by quota."""
        limit_id = desk.limit.limit_id
        quota = self.store.write(lambda tx: limit_quota(tx, limit_id, lease, holder=holder))
        who = holder if lease is None else lease.holder
        self.events.emit(QuotaHit(desk.limit.name, who, quota.errors, quota.effective))
        return quota

    def close(self) -> None:
        """Give back what was released, and end the thread; what is held stays held."""
        self._pulse.close()
        self._take_turns(lambda desk: desk.has_work)

    def look(self, *, is_woken: bool) -> None:
        """Take the turns that are due, then renew what has to be renewed."""
        now = self.clock.monotonic()
        is_due = is_woken or now >= self._looks_at
        if is_due:
            self._looks_at = FOREVER
        self._linger()
        try:
            self._take_turns(lambda desk: desk.has_work or (is_due and bool(desk.waiting)))
        finally:
            self.holdings.renew_once()
        if now >= self._tickets_at:
            self._tickets_at = FOREVER
            self.renew_tickets()

    def next_at(self, now: float) -> float:
        """When there is something to do, hints apart."""
        at = self.holdings.next_at()
        with self._lock:
            for desk in self._desks.values():
                if desk.has_work and not desk.is_busy:
                    at = min(at, max(now, self._retry_at))
                if desk.waiting or desk.asked:
                    self._looks_at = min(self._looks_at, now + LOOK_SECONDS)
                    self._tickets_at = min(self._tickets_at, now + TICKET_RENEW_SECONDS)
                    at = min(at, self._looks_at, self._tickets_at)
        return at

    def renew_tickets(self) -> None:
        """Answer for those who wait; who has lost their place asks again after the next turn."""
        with self._lock:
            desks = [desk for desk in self._desks.values() if desk.waiting]
            before = {request for desk in desks for request in desk.waiting}
        ids = [desk.limit.limit_id for desk in desks]
        if ids:
            there = self.store.write(lambda tx: ticket_renew_many(tx, self.id, ids))
            with self._lock:
                for desk in desks:
                    desk.missing = (set(desk.waiting) & before) - there

    def _go(self, desk: Desk, mine: bool) -> None:
        if not mine:
            self._pulse.rouse()
            return
        try:
            self._turn(desk)
        except StoreError:
            # What was brought is back on the desk, or whoever waits was told.
            log.debug("a turn at limit %s failed", desk.limit.name, exc_info=True)

    def _linger(self) -> None:
        """Where many come and go, let them speak before the next turn: one turn for five costs
        little more than one for two.
        """
        if any(desk.has_work and len(desk.waiting) > 1 for desk in list(self._desks.values())):
            self.clock.sleep(0.0)

    def _take_turns(self, wants: Callable[[Desk], bool]) -> None:
        for desk in list(self._desks.values()):
            with self._lock:
                mine = not desk.is_busy and wants(desk)
                desk.is_busy = desk.is_busy or mine
            if mine:
                self._turn(desk)

    def _turn(self, desk: Desk) -> None:
        """One turn with everything on the desk; the caller has marked the desk as busy."""
        with self._lock:
            work = desk.take()
        began = self.clock.monotonic()
        turn = Turn(
            broker=self.id,
            wants=[waiter.want for waiter in work.wants],
            releases=work.releases,
            leaves=work.leaves,
            collects=work.collects,
        )
        try:
            served = self.store.write(lambda tx: _serve(tx, desk.limit, turn))
        except BaseException as error:
            with self._lock:
                desk.is_busy = False
                woken = desk.put_back(work, error)
                self._retry_at = self.clock.monotonic() + PAUSE_SECONDS
            _wake(woken)
            self._pulse.rouse(PAUSE_SECONDS)
            raise
        with self._lock:
            desk.is_busy = False
            woken = desk.apply(served, began)
            for waiter in woken:
                if waiter.held is not None:
                    self.holdings.add(waiter.held)
            has_more, has_waiters = desk.has_work, bool(desk.waiting)
        _wake(woken)
        if served.brokers or served.admits:
            self.store.wake(served.channels)
        self._follow_up(woken, has_more=has_more, has_waiters=has_waiters)

    def _follow_up(self, woken: Sequence[Waiter], *, has_more: bool, has_waiters: bool) -> None:
        """See to it that somebody looks again, and tell who listens."""
        if has_more:
            self._pulse.rouse()
        elif has_waiters:
            self._pulse.rouse(LOOK_SECONDS)
        granted = [waiter.held for waiter in woken if waiter.held is not None]
        if granted:
            self._pulse.rouse(min(held.seconds for held in granted) / 3)
        if self.events.is_heard:
            for held in granted:
                lease, name = held.lease, held.desk.limit.name
                waited = lease.since_at - lease.asked_at
                self.events.emit(SlotTaken(name, lease.holder, lease.token, waited))

    def _check(self) -> None:
        if os.getpid() != self.pid:
            raise Conflict(
                "this process was forked after its slots were opened: open a client of its own "
                "after the fork (limits.use(client)), or start processes by spawn"
            )


def _serve(tx: Tx, limit: Limit, turn: Turn) -> Served:
    """A turn of a limit; one that upkeep forgot, because nobody used it, is made again."""
    try:
        return limit_serve(tx, limit.limit_id, turn)
    except NotFound:
        made = limit_ensure(
            tx, limit.name, limit.terms, customer=limit.customer, actor=limit.updated_by
        )
        return limit_serve(tx, made.limit_id, turn)


def _may_take(desk: Desk, *, asking: int) -> bool:
    """Whether the calling thread may take the turn itself; then the desk is its own."""
    if desk.is_busy or desk.waiting or len(desk.asked) > asking:
        return False
    desk.is_busy = True
    return True


def _wake(waiters: Sequence[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()
