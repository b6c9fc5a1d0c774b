"""Deliveries that this process holds, so that it knows which ack ids are stale.

JetStream accepts the ack of any delivery of a message, even of an old one. The process that holds
an ack id therefore rejects it itself: after its deadline, after it was settled, and after the
message was delivered here again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from penstock.bus.transports.nats.naming import Ticket

KEPT_SECONDS: Final = 1_800.0
PRUNE_AT: Final = 4_096


@dataclass(slots=True)
class Lease:
    """One delivery, and its deadline."""

    until: float
    is_settled: bool = False


class Leases:
    """Leases by the subject that settles them; unknown ones belong to another process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}
        self._latest: dict[tuple[str, tuple[str, int]], str] = {}

    def add(self, ticket: Ticket, *, now: float, until: float) -> None:
        """Record a delivery; earlier ones of the same message become stale."""
        with self._lock:
            if len(self._leases) >= PRUNE_AT:
                self._prune(now)
            place = (ticket.subscription, ticket.place)
            before = self._latest.get(place)
            if before is not None and before in self._leases:
                self._leases[before].is_settled = True
            self._latest[place] = ticket.reply
            self._leases[ticket.reply] = Lease(until)

    def take(self, ticket: Ticket, now: float) -> bool:
        """Mark a delivery as settled; return False if its ack id is stale."""
        with self._lock:
            lease = self._leases.get(ticket.reply)
            if lease is None:
                return True
            if lease.is_settled or now > lease.until:
                return False
            lease.is_settled = True
            return True

    def give_back(self, ticket: Ticket) -> None:
        """Undo `take` after the server could not be reached."""
        with self._lock:
            lease = self._leases.get(ticket.reply)
            if lease is not None and self._latest.get(
                (ticket.subscription, ticket.place)
            ) == ticket.reply:  # fmt: skip
                lease.is_settled = False

    def extend(self, ticket: Ticket, *, now: float, until: float) -> bool:
        """Move a deadline; return False if the ack id is stale."""
        with self._lock:
            lease = self._leases.get(ticket.reply)
            if lease is None:
                return True
            if lease.is_settled or now > lease.until:
                return False
            lease.until = until
            return True

    def _prune(self, now: float) -> None:
        old = [reply for reply, lease in self._leases.items() if lease.until < now - KEPT_SECONDS]
        for reply in old or [reply for reply, lease in self._leases.items() if lease.is_settled]:
            del self._leases[reply]
        self._latest = {
            place: reply for place, reply in self._latest.items() if reply in self._leases
        }
