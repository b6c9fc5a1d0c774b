"""Ack ids of the Pub/Sub transport, and which of them are stale in this process.

An ack id combines its subscription and message with Google's ack id and a checksum. Without
exactly-once delivery the service does not report whether an ack took effect, so the process that
holds an ack id rejects it itself: after its deadline, after it was settled, and after the message
was delivered here again.
"""

from __future__ import annotations

import binascii
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.errors import InvalidInput

KEPT_US: Final = 1_800_000_000
PRUNE_AT: Final = 8_192
_EXPECTED: Final = "an ack id exactly as it was delivered"


class PubsubTicket(NamedTuple):
    """Contents of an ack id."""

    subscription: str
    message_id: str
    raw: str
    """Google's ack id."""


def encode(ticket: PubsubTicket) -> str:
    """Return the ack id."""
    body = "\n".join(ticket).encode()
    return urlsafe_b64encode(binascii.crc32(body).to_bytes(4, "big") + body).decode().rstrip("=")


def decode(ack_id: object, field: str) -> PubsubTicket:
    """Return the contents of an ack id; raise InvalidInput if it is malformed."""
    if not isinstance(ack_id, str) or not ack_id.isascii():
        raise InvalidInput(field, _EXPECTED, ack_id)
    try:
        plain = urlsafe_b64decode(ack_id + "=" * (-len(ack_id) % 4))
        parts = plain[4:].decode().split("\n")
    except (ValueError, binascii.Error):
        raise InvalidInput(field, _EXPECTED, ack_id) from None
    is_sound = binascii.crc32(plain[4:]).to_bytes(4, "big") == plain[:4]
    if not is_sound or len(parts) != 3 or encode(PubsubTicket(*parts)) != ack_id:
        raise InvalidInput(field, _EXPECTED, ack_id)
    return PubsubTicket(*parts)


@dataclass(slots=True, eq=False)
class _Lease:
    until: int
    deadline_us: int
    run: list[_Lease]
    """Unsettled deliveries of its ordering key, in order; only this one if it has no key."""
    is_settled: bool = False

    def is_stale(self, now: int) -> bool:
        """Whether the delivery can no longer be settled. Only the first one of a key lapses."""
        if not self.is_settled and self.run[0].until < now:
            self.end_run(self.run[0])
        return self.is_settled

    def settle(self, now: int) -> None:
        """Settle this delivery; the deadline of the next one of the key starts now."""
        self.is_settled = True
        self.run.remove(self)
        if self.run:
            self.run[0].until = max(self.run[0].until, now + self.run[0].deadline_us)

    def end_run(self, first: _Lease) -> None:
        """Settle a delivery and the later ones of its key: they are delivered again."""
        place = self.run.index(first)
        for one in self.run[place:]:
            one.is_settled = True
        del self.run[place:]


class Tickets:
    """Deliveries that this process has received; unknown ones belong to another process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: dict[str, _Lease] = {}
        self._latest: dict[tuple[str, str], str] = {}
        self._attempts: dict[tuple[str, str], int] = {}
        self._runs: dict[tuple[str, str], list[_Lease]] = {}

    def add(
        self, ticket: PubsubTicket, *, attempt: int, now: int, deadline_us: int, key: str | None
    ) -> int:
        """Record a delivery; return its attempt number, counted here if the service does not count.

        key: its ordering key, if the subscription is ordered.
        """
        place = (ticket.subscription, ticket.message_id)
        with self._lock:
            if len(self._leases) >= PRUNE_AT:
                self._prune(now)
            before = self._leases.get(self._latest.get(place, ""))
            if before is not None and not before.is_settled:
                before.end_run(before)
            attempt = attempt or self._attempts.get(place, 0) + 1
            self._attempts[place] = attempt
            self._latest[place] = ticket.raw
            run: list[_Lease] = []
            if key is not None:
                run = self._runs.setdefault((ticket.subscription, key), run)
            lease = _Lease(now + deadline_us, deadline_us, run)
            run.append(lease)
            self._leases[ticket.raw] = lease
            return attempt

    def attempt(self, ticket: PubsubTicket) -> int:
        """Return the attempt of a delivery; 1 if another process received it."""
        with self._lock:
            return self._attempts.get((ticket.subscription, ticket.message_id), 1)

    def is_current(self, ticket: PubsubTicket, now: int) -> bool:
        """Return whether an ack id can be settled, as far as this process knows."""
        with self._lock:
            lease = self._leases.get(ticket.raw)
            return lease is None or not lease.is_stale(now)

    def settle(self, ticket: PubsubTicket, now: int, *, is_failure: bool) -> None:
        """Record an ack, or a failure, which returns the later deliveries of the key."""
        with self._lock:
            lease = self._leases.get(ticket.raw)
            if lease is None or lease.is_settled:
                return
            if is_failure:
                lease.end_run(lease)
            else:
                lease.settle(now)

    def extend(self, ticket: PubsubTicket, until: int) -> None:
        """Record a new deadline."""
        with self._lock:
            lease = self._leases.get(ticket.raw)
            if lease is not None:
                lease.until = until

    def _prune(self, now: int) -> None:
        old = [raw for raw, lease in self._leases.items() if lease.until < now - KEPT_US]
        for raw in old or [raw for raw, lease in self._leases.items() if lease.is_settled]:
            del self._leases[raw]
        self._latest = {p: raw for p, raw in self._latest.items() if raw in self._leases}
        self._attempts = {p: n for p, n in self._attempts.items() if p in self._latest}
        self._runs = {place: run for place, run in self._runs.items() if run}
