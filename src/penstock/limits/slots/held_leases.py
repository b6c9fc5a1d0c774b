"""The slots that a process holds: renews their leases in batches and reports lost ones.

A lease is safe for its duration, counted by this process's monotonic clock from just before its
grant or renewal was sent. If that time passes without a renewal, another process may hold the slot,
and the holder is notified. A lease that is missing from the store has been granted to others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from penstock.audit.telemetry import Events, SlotLeaseLost, log_event
from penstock.core.clock import Clock
from penstock.core.errors import StoreError
from penstock.db.store import Transactions
from penstock.limits.slots.limit_state import HeldSlot
from penstock.limits.store.limits import limit_renew_many

_log = logging.getLogger("penstock.limits")
PAUSE_SECONDS = 0.2


class HeldLeases:
    """The slots held by one process. Thread-safe."""

    def __init__(self, store: Transactions, clock: Clock, events: Events) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._lock = threading.Lock()
        self._held: dict[int, HeldSlot] = {}

    def __bool__(self) -> bool:
        """Return whether any slot is held."""
        return bool(self._held)

    def add(self, held: HeldSlot) -> None:
        """Start renewing a slot."""
        with self._lock:
            self._held[held.lease.lease_id] = held

    def pop(self, held: HeldSlot) -> bool:
        """Stop renewing a slot; return False if it was not being renewed."""
        with self._lock:
            return self._held.pop(held.lease.lease_id, None) is not None

    def next_at(self) -> float:
        """Return the monotonic time of the next renewal or loss; infinite if nothing is held."""
        with self._lock:
            return min((held.next_at for held in self._held.values()), default=float("inf"))

    def renew_once(self) -> None:
        """Renew the leases that are due or will be soon, and notify the holders of lost ones."""
        now = self._clock.monotonic()
        with self._lock:
            everything = list(self._held.values())
        due = [h for h in everything if h.renew_at <= now]
        if due:
            due = [h for h in everything if h.renew_at <= now + h.lease_s / 6]
            pairs = [(h.lease.lease_id, h.lease.token) for h in due]
            try:
                ends = self._store.write(lambda tx: limit_renew_many(tx, pairs))
            except StoreError:
                for held in due:
                    held.renew_at = now + max(PAUSE_SECONDS, held.lease_s / 12)
            else:
                for held in due:
                    if held.lease.lease_id in ends:
                        held.renewed(now)
                self._lose([held for held in due if held.lease.lease_id not in ends])
        now = self._clock.monotonic()
        self._lose([held for held in everything if held.safe_until <= now])

    def _lose(self, lost: Sequence[HeldSlot]) -> None:
        for held in lost:
            if self.pop(held):
                held.lost.set()
                lease = held.lease
                name = held.limit_state.limit.name
                event = SlotLeaseLost(name, lease.holder, lease.token)
                text = (
                    f"slot of limit {name} lost by {lease.holder}: not renewed in time, or revoked"
                )
                log_event(_log, logging.WARNING, text, event)
                self._events.emit(event)
