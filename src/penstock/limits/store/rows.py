"""What a limit, its holders and its line look like as rows, and what a turn is asked and answers.

Plain records for `limit_turn`, which changes them, and `limit_reads`, which shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.limits import rules, token_bucket
from penstock.limits.rules import LimitTerms

ADMIT: Final = "admit"


class Limit(NamedTuple):
    """A limit's row."""

    limit_id: int
    customer: int
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

    @property
    def terms(self) -> LimitTerms:
        """How it is configured."""
        return LimitTerms(
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
        """How much may be held now; None: any amount."""
        adaptive = bool(self.is_adaptive)
        return rules.effective(self.capacity, self.learned, self.floor, is_adaptive=adaptive)

    def bucket(self, now: int) -> token_bucket.Bucket | None:
        """Its rate, if it has one."""
        if self.rate is None:
            return None
        burst = self.terms.burst_now
        return token_bucket.bucket_of(self.rate, burst, self.level, self.level_at, now)


class Lease(NamedTuple):
    """Who holds; since_at: from when on it may be used."""

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
    asked_at: int
    since_at: int
    until_at: int | None


class Ticket(NamedTuple):
    """Who waits."""

    ticket: int
    weight: int
    broker: str
    holder: str
    request: str
    run_id: int | None
    lease_us: int
    asked_at: int
    until_at: int


class Want(NamedTuple):
    """Somebody asks for a slot.

    request: names the asking for ever; with `is_repeated` it may have been answered before. waits:
    whether it gets a ticket when there is no room. within_us: the longest wait for a rate.
    """

    request: str
    holder: str
    weight: int = 1
    lease_us: int | None = None
    run_id: int | None = None
    asked_at: int | None = None
    within_us: int | None = None
    is_repeated: bool = False
    waits: bool = True


class Release(NamedTuple):
    """A holder gives back; good: without having met the quota of what the limit stands for."""

    lease_id: int
    token: int
    is_good: bool = True


class Leave(NamedTuple):
    """Somebody waits no longer; what was granted to them meanwhile is given back."""

    request: str
    outcome: str = "abandoned"


class Turn(NamedTuple):
    """What a broker brings to a turn; an empty one only looks after the line."""

    broker: str
    wants: Sequence[Want] = ()
    releases: Sequence[Release] = ()
    leaves: Sequence[Leave] = ()
    collects: bool = False


@dataclass(slots=True, kw_only=True)
class Served:
    """What came of a turn, by request.

    waits: microseconds until a rate lets it go; without a lease when a rate is all there is.
    """

    limit: Limit
    now: int = 0
    leases: dict[str, Lease] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)
    tickets: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    released: int = 0
    expired: int = 0
    brokers: set[str] = field(default_factory=set)
    admits: bool = False

    def tell(self, lease: Lease) -> None:
        """Answer with a lease; a ticket it was granted for in this very turn is no more."""
        self.leases[lease.request] = lease
        self.tickets.pop(lease.request, None)

    @property
    def channels(self) -> list[str]:
        """Whom to wake after the commit: brokers that were granted something, and the admitter."""
        woken = [channel(broker) for broker in sorted(self.brokers)]
        return [*woken, ADMIT] if self.admits else woken


def channel(broker: str) -> str:
    """Where a broker hears that something was granted to it."""
    return f"limits:{broker}"
