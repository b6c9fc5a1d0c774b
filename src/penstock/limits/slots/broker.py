"""The broker requests, renews and releases slots for all callers in a process; one per store.

For each limit the broker keeps its state in this process: requests, releases and withdrawals that
have not been sent. One grant transaction sends all of them. The caller runs that transaction itself
if no other caller in the process waits for the limit (one transaction, no ticket, no thread);
otherwise the broker's thread does. Waiting takes a ticket row and an event, but no connection.

    asked     not sent yet, or sent in a transaction whose result is not known yet
    waiting   has a ticket
    granted, failed, left   finished, for the waiter

A transaction whose outcome is unknown is repeated: requests have ids, so they get the same result.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

from penstock.audit.telemetry import Events, QuotaHit, SlotReleased, SlotTaken, log_event
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import Conflict, NotFound, StoreError
from penstock.core.ids import new_boot_id
from penstock.core.naming import SYSTEM_CUSTOMER, CustomerKey
from penstock.db.store import StoreView, Tx
from penstock.limits.rules import LimitSettings
from penstock.limits.slots.held_leases import HeldLeases
from penstock.limits.slots.limit_state import HeldSlot, LimitState, SlotWaiter
from penstock.limits.slots.renewer import FAR_OFF_S, PAUSE_SECONDS, BrokerThread
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.limits import (
    QuotaResult,
    limit_ensure,
    limit_quota,
    ticket_renew_many,
    ticket_snooze,
)
from penstock.limits.store.rows import (
    Abandon,
    GrantInput,
    GrantResult,
    LeaseRow,
    LimitRow,
    Release,
    channel,
)

log = logging.getLogger(__name__)

TICKET_RENEW_INTERVAL_S: Final = 5.0
_log = logging.getLogger("penstock.limits")
POLL_INTERVAL_S: Final = 2.0
"""Interval at which the broker polls for waiters when no hint arrives."""


class Broker:
    """Slots of one process in one store. Thread-safe."""

    def __init__(
        self, store: StoreView, *, clock: Clock | None = None, events: Events | None = None
    ) -> None:
        self.store = store
        self.clock = clock or SystemClock()
        known = getattr(store, "events", None)
        self.events = events or (known if isinstance(known, Events) else Events())
        self.id = new_boot_id()
        self.pid = os.getpid()
        self.held_leases = HeldLeases(store, self.clock, self.events)
        self._thread = BrokerThread(store, channel(self.id), self.clock, self)
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._requests = itertools.count(1)
        self._states: dict[tuple[int, str], LimitState] = {}
        self._tickets_at = FAR_OFF_S
        self._poll_at = FAR_OFF_S
        self._retry_at = 0.0

    def limit_state(
        self,
        name: str,
        terms: LimitSettings,
        customer_key: CustomerKey = SYSTEM_CUSTOMER,
        actor: str = "",
    ) -> LimitState:
        """Return the state of a limit, which is created with these terms if it does not exist."""
        self._check()
        found = self._states.get((customer_key, name))
        if found is not None:
            return found
        with self._making:  # a thousand concurrent callers need one connection, not a thousand
            found = self._states.get((customer_key, name))
            if found is None:
                limit = self.store.write(
                    lambda tx: limit_ensure(tx, name, terms, customer_key=customer_key, actor=actor)
                )
                with self._lock:
                    found = self._states[customer_key, name] = LimitState(limit)
        return found

    def next_request(self) -> str:
        """Return a new, globally unique request id."""
        return f"{self.id}:{next(self._requests)}"

    def is_loaded(self, name: str, customer_key: CustomerKey = SYSTEM_CUSTOMER) -> bool:
        """Return whether a state is loaded, so that `limit_state` needs no transaction."""
        return (customer_key, name) in self._states

    def request(self, waiter: SlotWaiter, *, direct: bool) -> None:
        """Request a slot. direct: run the transaction in this thread if no other caller waits."""
        self._check()
        state = waiter.limit_state
        with self._lock:
            state.asked[waiter.request] = waiter
            state.wants.append(waiter)
            mine = direct and _may_take(state, asking=1)
        self._go(state, mine)

    def leave(self, waiter: SlotWaiter, outcome: str) -> bool:
        """Stop waiting; return False if the request was granted or finished before."""
        state = waiter.limit_state
        with self._lock:
            if waiter.is_finished:
                return False
            waiter.leave()
            state.asked.pop(waiter.request, None)
            state.waiting.pop(waiter.request, None)
            if waiter in state.wants:
                state.wants.remove(waiter)
                if not waiter.want.is_repeated:
                    return True  # never sent to the store
            state.leaves.append(Abandon(waiter.request, outcome))
        self._thread.wake()
        return True

    def snooze(self, waiter: SlotWaiter, delay_us: int, calls: Sequence[str] = ()) -> bool:
        """Keep a run's ticket as `ticket_snooze` does; return False if it no longer has one."""
        state = waiter.limit_state
        kept = self.store.write(
            lambda tx: ticket_snooze(tx, state.limit.limit_id, waiter.request, delay_us, calls)
        )
        with self._lock:
            if not kept or waiter.is_finished:
                return False
            waiter.leave()
            state.waiting.pop(waiter.request, None)
        return True

    def release(self, held: HeldSlot, *, is_good: bool, direct: bool) -> bool:
        """Release a slot; return False if it was released or lost before."""
        if os.getpid() != self.pid or not self.held_leases.pop(held):
            return False  # also for a fork's copy of its parent's slot
        state = held.limit_state
        with self._lock:
            state.releases.append(Release(held.lease.lease_id, held.lease.token, is_good))
            mine = direct and _may_take(state, asking=0)
        self._go(state, mine)
        if self.events.wants(SlotReleased):
            lease = held.lease
            self.events.emit(SlotReleased(state.limit.name, lease.holder, lease.token))
        return True

    def stop_renewing(self, held: HeldSlot) -> None:
        """Stop renewing a slot without releasing it; a snoozed run resumes it later."""
        self.held_leases.pop(held)

    def report_quota(
        self, state: LimitState, lease: LeaseRow | None, holder: str = ""
    ) -> QuotaResult:
        """Report a quota error of the limited resource."""
        limit_id = state.limit.limit_id
        quota = self.store.write(lambda tx: limit_quota(tx, limit_id, lease, holder=holder))
        name = holder if lease is None else lease.holder
        limit = state.limit.name
        event = QuotaHit(limit, name, quota.errors, quota.effective)
        self.events.emit(event)
        text = f"quota error of limit {limit} reported by {name}: capacity is now {quota.effective}"
        log_event(_log, logging.WARNING, text, event)
        return quota

    def close(self) -> None:
        """Send pending releases and end the thread. Held slots stay held."""
        self._thread.close()
        self._grant_each(lambda state: state.has_work)

    def run_once(self, *, is_woken: bool) -> None:
        """Run the grant transactions that are due, then renew leases and tickets."""
        now = self.clock.monotonic()
        is_due = is_woken or now >= self._poll_at
        if is_due:
            self._poll_at = FAR_OFF_S
        self._linger()
        try:
            self._grant_each(lambda state: state.has_work or (is_due and bool(state.waiting)))
        finally:
            self.held_leases.renew_once()
        if now >= self._tickets_at:
            self._tickets_at = FAR_OFF_S
            self.renew_tickets()

    def next_at(self, now: float) -> float:
        """Return the monotonic time of the next work that is not triggered by a hint."""
        at = self.held_leases.next_at()
        with self._lock:
            for state in self._states.values():
                if state.has_work and not state.is_busy:
                    at = min(at, max(now, self._retry_at))
                if state.waiting or state.asked:
                    self._poll_at = min(self._poll_at, now + POLL_INTERVAL_S)
                    self._tickets_at = min(self._tickets_at, now + TICKET_RENEW_INTERVAL_S)
                    at = min(at, self._poll_at, self._tickets_at)
        return at

    def renew_tickets(self) -> None:
        """Renew the tickets of all waiters; lost ones are requested again after the next grant."""
        with self._lock:
            states = [state for state in self._states.values() if state.waiting]
            before = {request for state in states for request in state.waiting}
        ids = [state.limit.limit_id for state in states]
        if ids:
            renewed = self.store.write(lambda tx: ticket_renew_many(tx, self.id, ids))
            with self._lock:
                for state in states:
                    state.missing = (set(state.waiting) & before) - renewed

    def _go(self, state: LimitState, mine: bool) -> None:
        if not mine:
            self._thread.wake()
            return
        try:
            self._grant(state)
        except StoreError:
            # The work is pending again, or its waiters have been notified of the error.
            log.debug("a grant of limit %s failed", state.limit.name, exc_info=True)

    def _linger(self) -> None:
        """Yield the CPU before a grant if several callers wait, so that more requests are batched;
        a transaction for five requests costs little more than one for two.
        """
        if any(state.has_work and len(state.waiting) > 1 for state in list(self._states.values())):
            self.clock.sleep(0.0)

    def _grant_each(self, wants: Callable[[LimitState], bool]) -> None:
        for state in list(self._states.values()):
            with self._lock:
                mine = not state.is_busy and wants(state)
                state.is_busy = state.is_busy or mine
            if mine:
                self._grant(state)

    def _grant(self, state: LimitState) -> None:
        """Run a grant transaction with all pending work; the caller has set `is_busy`."""
        with self._lock:
            work = state.take()
        began = self.clock.monotonic()
        grant = GrantInput(
            broker=self.id,
            requests=[waiter.want for waiter in work.wants],
            releases=work.releases,
            abandons=work.leaves,
            collect=work.collects,
        )
        try:
            served = self.store.write(lambda tx: _serve(tx, state.limit, grant))
        except BaseException as error:
            with self._lock:
                state.is_busy = False
                woken = state.restore(work, error)
                self._retry_at = self.clock.monotonic() + PAUSE_SECONDS
            _wake(woken)
            self._thread.wake(PAUSE_SECONDS)
            raise
        with self._lock:
            state.is_busy = False
            woken = state.apply(served, began)
            for waiter in woken:
                if waiter.held is not None:
                    self.held_leases.add(waiter.held)
            has_more, has_waiters = state.has_work, bool(state.waiting)
        _wake(woken)
        if served.brokers or served.wakes_admitter:
            self.store.wake(served.channels)
        self._follow_up(woken, has_more=has_more, has_waiters=has_waiters)

    def _follow_up(self, woken: Sequence[SlotWaiter], *, has_more: bool, has_waiters: bool) -> None:
        """Schedule the next run of the broker's thread, and emit events for granted slots."""
        if has_more:
            self._thread.wake()
        elif has_waiters:
            self._thread.wake(POLL_INTERVAL_S)
        granted = [waiter.held for waiter in woken if waiter.held is not None]
        if granted:
            self._thread.wake(min(held.lease_s for held in granted) / 3)
        if self.events.wants(SlotTaken):
            for held in granted:
                lease, name = held.lease, held.limit_state.limit.name
                waited = lease.since_at - lease.requested_at
                self.events.emit(SlotTaken(name, lease.holder, lease.token, waited))

    def _check(self) -> None:
        if os.getpid() != self.pid:
            raise Conflict(
                "this process was forked after its parent used slots: open a new client after the "
                "fork (limits.use(client)), or start processes with the spawn method"
            )


def _serve(tx: Tx, limit: LimitRow, grant: GrantInput) -> GrantResult:
    """Run a grant of a limit; create the limit again if upkeep has deleted it as unused."""
    try:
        return limit_grant(tx, limit.limit_id, grant)
    except NotFound:
        made = limit_ensure(
            tx, limit.name, limit.terms, customer_key=limit.customer_key, actor=limit.updated_by
        )
        return limit_grant(tx, made.limit_id, grant)


def _may_take(state: LimitState, *, asking: int) -> bool:
    """Return whether the calling thread may run the grant itself; if so, mark the limit as busy."""
    if state.is_busy or state.waiting or len(state.asked) > asking:
        return False
    state.is_busy = True
    return True


def _wake(waiters: Sequence[SlotWaiter]) -> None:
    for waiter in waiters:
        waiter.wake()
