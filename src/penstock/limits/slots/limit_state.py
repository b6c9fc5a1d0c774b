"""State of a limit in one process: pending requests, waiters and releases, and held slots.

Plain state, changed under the broker's lock; nothing here accesses the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.core.clock import SECOND
from penstock.core.errors import PenstockError
from penstock.limits.store.rows import (
    Abandon,
    GrantResult,
    LeaseRequest,
    LeaseRow,
    LimitRow,
    Release,
)

_making: Final = threading.Lock()


class LazyEvent:
    """An event that is created on first use: most are never waited for."""

    __slots__ = ("_event", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._event: threading.Event | None = None

    @property
    def event(self) -> threading.Event:
        """The event; already set if `set` was called before."""
        with _making:
            if self._event is None:
                self._event = threading.Event()
                if self.is_set:
                    self._event.set()
        return self._event

    def set(self) -> None:
        """Set the event, now or when it is created."""
        with _making:
            self.is_set = True
            event = self._event
        if event is not None:
            event.set()


class WaiterState(StrEnum):
    """State of a request for a slot, up to its result."""

    ASKED = "asked"
    WAITING = "waiting"
    GRANTED = "granted"
    FAILED = "failed"
    LEFT = "left"


class HeldSlot:
    """A slot that this process holds."""

    __slots__ = ("lease", "lease_s", "limit_state", "lost", "renew_at", "safe_until")

    def __init__(self, limit_state: LimitState, lease: LeaseRow, began: float) -> None:
        """`began`: monotonic time before the grant was requested; `safe_until` counts from it."""
        assert lease.lease_us is not None
        self.limit_state = limit_state
        self.lease = lease
        self.lease_s = lease.lease_us / SECOND
        self.lost = LazyEvent()
        self.renew_at = 0.0
        self.safe_until = 0.0
        self.renewed(began)

    @property
    def next_at(self) -> float:
        """Monotonic time at which the broker must renew it or report it lost."""
        return min(self.renew_at, self.safe_until)

    def renewed(self, began: float) -> None:
        """Record a renewal; the slot is held for a full lease from `began`, when it was sent."""
        self.renew_at = began + self.lease_s / 3
        self.safe_until = began + self.lease_s


class SlotWaiter:
    """A request for a slot, and its result."""

    __slots__ = (
        "_notify",
        "asked_at",
        "error",
        "held",
        "limit_state",
        "reason",
        "state",
        "ticket_read_at",
        "token_at",
        "wait_us",
        "want",
    )

    def __init__(
        self, limit_state: LimitState, want: LeaseRequest, notify: Callable[[], None]
    ) -> None:
        """`notify` is called, from any thread, whenever the state changes."""
        self.limit_state = limit_state
        self.want = want
        self.state = WaiterState.ASKED
        self.held: HeldSlot | None = None
        self.wait_us = 0
        self.token_at = 0.0
        self.reason = ""
        self.error: BaseException | None = None
        self.asked_at: int | None = None
        self.ticket_read_at: int | None = None
        self._notify = notify

    @property
    def request(self) -> str:
        """Id of the request."""
        return self.want.request

    @property
    def is_finished(self) -> bool:
        """Whether the request was granted, failed or withdrawn."""
        return self.state not in (WaiterState.ASKED, WaiterState.WAITING)

    def grant(self, held: HeldSlot | None, wait_us: int, began: float) -> None:
        """Record a grant that takes effect after `wait_us`. held: None if the limit is only a rate.

        `began`: monotonic time before the grant transaction. The token was not available before
        `token_at`, which is `began` plus the wait.
        """
        self.state = WaiterState.GRANTED
        self.held, self.wait_us = held, wait_us
        self.token_at = began + wait_us / SECOND

    def queue(self, asked_at: int, now: int) -> None:
        """Record a ticket: waiting since `asked_at`, at the store's time `now`."""
        self.state = WaiterState.WAITING
        self.asked_at, self.ticket_read_at = asked_at, now

    def fail(self, reason: str, error: BaseException | None = None) -> None:
        """Record that the request will not be granted."""
        self.state = WaiterState.FAILED
        self.reason, self.error = reason, error

    def leave(self) -> None:
        """Record that the caller no longer waits."""
        self.state = WaiterState.LEFT

    def wake(self) -> None:
        """Notify the waiting caller."""
        self._notify()


class PendingWork(NamedTuple):
    """Everything that one grant transaction processes."""

    wants: list[SlotWaiter]
    releases: list[Release]
    leaves: list[Abandon]
    collects: bool


class LimitState:
    """State of one limit in one process."""

    __slots__ = (
        "asked", "is_busy", "last_error", "leaves", "limit", "missing", "releases", "waiting",
        "wants",
    )  # fmt: skip

    def __init__(self, limit: LimitRow) -> None:
        self.limit = limit
        self.is_busy = False
        self.asked: dict[str, SlotWaiter] = {}
        self.waiting: dict[str, SlotWaiter] = {}
        self.wants: list[SlotWaiter] = []
        self.releases: list[Release] = []
        self.leaves: list[Abandon] = []
        self.missing: set[str] = set()
        self.last_error: BaseException | None = None

    @property
    def has_work(self) -> bool:
        """Whether there are requests, releases or withdrawals to send to the store."""
        return bool(self.wants or self.releases or self.leaves)

    def take(self) -> PendingWork:
        """Remove and return all pending work."""
        work = PendingWork(self.wants, self.releases, self.leaves, bool(self.waiting))
        self.wants, self.releases, self.leaves = [], [], []
        return work

    def restore(self, work: PendingWork, error: BaseException) -> list[SlotWaiter]:
        """Restore work after a transaction that failed or whose outcome is unknown.

        The work is repeated, unless the error is permanent: then the requests fail with it. Return
        the waiters to notify.
        """
        self.last_error = error
        self.releases[:0] = work.releases
        self.leaves[:0] = work.leaves
        is_permanent = not (isinstance(error, PenstockError) and error.retryable)
        woken = []
        again = []
        for waiter in work.wants:
            if waiter.is_finished:
                self.leaves.append(Abandon(waiter.request))
            elif is_permanent:
                self.asked.pop(waiter.request, None)
                self.leaves.append(Abandon(waiter.request))
                waiter.fail("error", error)
                woken.append(waiter)
            else:
                waiter.want = waiter.want._replace(is_repeated=True)
                again.append(waiter)
        self.wants[:0] = again
        return woken

    def apply(self, served: GrantResult, began: float) -> list[SlotWaiter]:
        """Apply the result of a grant transaction, and return the waiters to notify.

        `began`: monotonic time before the transaction.
        """
        self.limit = served.limit
        woken: list[SlotWaiter] = []
        for request, lease in served.leases.items():
            waiter = self.pop(request)
            if waiter is None:  # granted to a waiter that has left
                self.releases.append(Release(lease.lease_id, lease.token, False))
                continue
            held = HeldSlot(self, lease, began)
            waiter.grant(held, served.waits.get(request, 0), began)
            woken.append(waiter)
        for request, wait in served.waits.items():
            waiter = None if request in served.leases else self.pop(request)
            if waiter is not None:
                waiter.grant(None, wait, began)
                woken.append(waiter)
        for request, reason in served.refused.items():
            waiter = self.pop(request)
            if waiter is not None:
                waiter.fail(reason)
                woken.append(waiter)
        for request, (_, asked_at) in served.tickets.items():
            waiter = self.asked.pop(request, None)
            if waiter is not None:
                waiter.queue(asked_at, served.now)
                self.waiting[request] = waiter
                if waiter.want.is_repeated:
                    woken.append(waiter)  # its earlier waiting time shortens its timeout
            elif request not in self.waiting:
                self.leaves.append(Abandon(request))
        self.repeat_missing()
        return woken

    def pop(self, request: str) -> SlotWaiter | None:
        """Remove and return the waiter of a request; None if there is none."""
        waiter = self.asked.pop(request, None)
        return self.waiting.pop(request, None) if waiter is None else waiter

    def repeat_missing(self) -> None:
        """Repeat, with the same ids, the requests of waiters whose tickets the store has lost."""
        for request in self.missing:
            waiter = self.waiting.pop(request, None)
            if waiter is not None:
                asked_at = waiter.asked_at
                waiter.want = waiter.want._replace(is_repeated=True, asked_at=asked_at)
                self.asked[request] = waiter
                self.wants.append(waiter)
        self.missing = set()
