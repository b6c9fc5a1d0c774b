"""Records of limits: their rows, and the input and result of a grant transaction.

Plain data for `grant`, which writes it, and `reads`, which lists it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import penstock.limits.rules as rules
import penstock.limits.token_bucket as token_bucket
from penstock.core.naming import CustomerKey
from penstock.limits.rules import LimitSettings

ADMIT: Final = "admit"


class LimitRow(NamedTuple):
    """A row of table `limits`."""

    limit_id: int
    customer_key: CustomerKey
    name: str
    capacity: int | None
    is_adaptive: bool
    floor: int
    learned: float | None
    learned_at: int | None
    lease_us: int
    grace_us: int
    queue_max: int | None
    rate: float | None
    burst: int | None
    level: int | None
    level_at: int | None
    quota_errors: int
    last_quota_at: int | None
    is_declared: bool
    version: int
    created_at: int
    updated_at: int
    updated_by: str
    minute: int
    taken: int
    taken_before: int

    @property
    def terms(self) -> LimitSettings:
        """The limit's configuration."""
        return LimitSettings(
            capacity=self.capacity,
            is_adaptive=bool(self.is_adaptive),
            floor=self.floor,
            lease_us=self.lease_us,
            grace_us=self.grace_us,
            queue_max=self.queue_max,
            rate=self.rate,
            burst=self.burst,
        )

    @property
    def effective(self) -> int | None:
        """Weight that may be held now; None for unlimited."""
        adaptive = bool(self.is_adaptive)
        return rules.effective_capacity(
            self.capacity, self.learned, self.floor, is_adaptive=adaptive
        )

    def bucket(self, now: int) -> token_bucket.Bucket | None:
        """Return the limit's rate bucket, or None if it has no rate."""
        if self.rate is None:
            return None
        burst = self.terms.burst_now
        return token_bucket.load_bucket(self.rate, burst, self.level, self.level_at, now)


class LeaseRow(NamedTuple):
    """A held slot. since_at: the time from which it may be used."""

    lease_id: int
    limit_id: int
    weight: int
    token: int
    broker: str
    holder: str
    request: str
    run_id: int | None
    is_taken: bool
    lease_us: int | None
    requested_at: int
    since_at: int
    until_at: int | None


class TicketRow(NamedTuple):
    """A request that waits in the queue.

    kept_until: the ticket keeps the place of a snoozed run that cannot use a slot now; its run is
    checked at this time. None: the ticket can be granted.
    """

    ticket: int
    weight: int
    broker: str
    holder: str
    request: str
    run_id: int | None
    lease_us: int
    asked_at: int
    until_at: int
    kept_until: int | None


class LeaseRequest(NamedTuple):
    """A request for a slot.

    request: a unique id; with `is_repeated` it may have been granted before. waits: whether the
    request is queued if no slot is free. max_wait_us: the longest acceptable delay due to a rate.
    """

    request: str
    holder: str
    weight: int = 1
    lease_us: int | None = None
    run_id: int | None = None
    asked_at: int | None = None
    max_wait_us: int | None = None
    is_repeated: bool = False
    waits: bool = True


class Release(NamedTuple):
    """A lease that its holder releases. is_success: no quota error occurred under it."""

    lease_id: int
    token: int
    is_success: bool = True


class Abandon(NamedTuple):
    """A request that no longer waits. A slot granted to it in the meantime is released."""

    request: str
    outcome: str = "abandoned"


class GrantInput(NamedTuple):
    """The input of a grant transaction; an empty one only serves the queue."""

    broker: str
    requests: Sequence[LeaseRequest] = ()
    releases: Sequence[Release] = ()
    abandons: Sequence[Abandon] = ()
    collect: bool = False


@dataclass(slots=True, kw_only=True)
class GrantResult:
    """The result of a grant transaction, by request.

    waits: microseconds until the rate allows the request; it has no lease if the limit is a rate
    only.
    """

    limit: LimitRow
    now: int = 0
    leases: dict[str, LeaseRow] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)
    tickets: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    released: int = 0
    expired: int = 0
    brokers: set[str] = field(default_factory=set)
    wakes_admitter: bool = False

    def add(self, lease: LeaseRow) -> None:
        """Add a lease to the result, and drop the ticket if it was granted in this transaction."""
        self.leases[lease.request] = lease
        self.tickets.pop(lease.request, None)

    @property
    def channels(self) -> list[str]:
        """Channels to wake after the commit: brokers that were granted a slot, and the admitter."""
        woken = [channel(broker) for broker in sorted(self.brokers)]
        return [*woken, ADMIT] if self.wakes_admitter else woken


def channel(broker: str) -> str:
    """Return the channel on which a broker is notified of grants by other processes."""
    return f"limits:{broker}"
