"""Simulated processes that take slots: the store's grants, as a broker requests them.

A process asks, waits, collects what others granted it, renews and releases. Sometimes it
misbehaves: it releases twice, late or with a foreign token, or continues after its lease expired.
Grants whose response was lost are repeated under the same names. Checked in addition to what the
observer checks after every commit (I29, I32):

    I30  tokens rise per limit; the holder of a live exclusive lease is never fenced off
    I31  a repeated, late or foreign release changes nothing
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import StoreError
from penstock.db.store import Tx
from penstock.limits.rules import LimitSettings
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.limits import (
    limit_declare,
    limit_get,
    limit_quota,
    limit_renew_many,
    ticket_renew_many,
)
from penstock.limits.store.reads import limit_holders
from penstock.limits.store.rows import (
    Abandon,
    GrantInput,
    GrantResult,
    LeaseRequest,
    LeaseRow,
    Release,
)
from penstock.testing.simulate.actors import Actor, Stage
from penstock.testing.simulate.faults import Fault
from penstock.testing.simulate.violation import Violation

EXCLUSIVE: Final = "exclusive"
SLOTS: Final = "slots"
LIMITS: Final = {
    EXCLUSIVE: LimitSettings(capacity=1, lease_us=MINUTE, grace_us=5 * SECOND),
    SLOTS: LimitSettings(capacity=3, lease_us=2 * MINUTE, is_adaptive=True),
}


@dataclass(slots=True)
class _Held:
    """A slot as the process remembers it; safe_until is its own estimate."""

    lease: LeaseRow
    safe_until: int


class Resource:
    """The resource behind an exclusive limit: it rejects a token below the highest it has seen."""

    def __init__(self) -> None:
        self.highest = 0

    def write(self, token: int) -> bool:
        """Return whether a write with this token is accepted."""
        if token < self.highest:
            return False
        self.highest = token
        return True


class SlotHolder(Actor):
    """A process with several threads that take slots of one limit."""

    kind = "slots"

    def __init__(self, stage: Stage, name: str, limit: str, resource: Resource) -> None:
        super().__init__(stage, name, 20 * SECOND)
        self._limit = limit
        self._resource = resource
        self._boots = 0
        self._asked = 0
        self._limit_id = 0
        self.start()

    def start(self) -> None:
        """Start a new process: it holds nothing and waits for nothing."""
        self._boots += 1
        self._broker = f"{self.name}.{self._boots}"
        self._held: list[_Held] = []
        self._wants: dict[str, LeaseRequest] = {}
        self._waiting: dict[str, LeaseRequest] = {}
        self._giving: list[LeaseRow] = []
        self._stale: list[LeaseRow] = []

    def step(self) -> None:
        """Perform one action; during recovery, release everything."""
        if not self._limit_id:
            self._limit_id = self.store.write(self._declared)
        self._repeat()
        if self.is_recovering:
            self._release_all()
            return
        actions = [self._ask, self._collect, self._give, self._renew, self._misuse, self._change]
        self.stage.rng.choice(actions)()
        self._use()

    # -- what a broker does --------------------------------------------------------------------

    def _declared(self, tx: Tx) -> int:
        found = limit_get(tx, self._limit)
        if found is None:
            found, _ = limit_declare(tx, self._limit, LIMITS[self._limit], actor="simulation")
        return found.limit_id

    def _ask(self) -> None:
        self._asked += 1
        weight = 1 if self._limit == EXCLUSIVE else self.stage.rng.choice((1, 1, 2))
        request = f"{self._broker}:{self._asked}"
        self._wants[request] = LeaseRequest(request=request, holder=self._broker, weight=weight)
        self._repeat()

    def _repeat(self) -> None:
        """Repeat requests that got no response, under the same names."""
        if not self._wants:
            return
        wants = list(self._wants.values())
        self._wants = {name: want._replace(is_repeated=True) for name, want in self._wants.items()}
        served = self._request_grant(GrantInput(broker=self._broker, requests=wants))
        for want in wants:
            self._wants.pop(want.request, None)
            if want.request in served.tickets:
                self._waiting[want.request] = want

    def _collect(self) -> None:
        if self._waiting:
            ids = [self._limit_id]
            there = self.store.write(lambda tx: ticket_renew_many(tx, self._broker, ids))
            self._request_grant(GrantInput(broker=self._broker, collect=True))
            for request, want in list(self._waiting.items()):
                if request not in there:  # its ticket was lost or is being granted: ask again
                    self._wants[request] = want._replace(is_repeated=True)
                    del self._waiting[request]

    def _give(self) -> None:
        if self._held:
            self._giving.append(self._held.pop(0).lease)
        while self._giving:  # also releases without a response: repeating one changes nothing
            self._request_grant(_release(self._broker, self._giving[0]))
            self._stale.append(self._giving.pop(0))

    def _renew(self) -> None:
        if not self._held:
            return
        now = self.stage.clock.now()
        pairs = [(held.lease.lease_id, held.lease.token) for held in self._held]
        ends = self.store.write(lambda tx: limit_renew_many(tx, pairs))
        for held in list(self._held):
            if held.lease.lease_id in ends:
                held.safe_until = now + (held.lease.lease_us or 0)
            else:
                if held.safe_until > self.stage.clock.now():
                    raise Violation("I32", f"a live lease cannot be renewed: {held.lease}")
                self._held.remove(held)

    def _misuse(self) -> None:
        """I31: slots that are not or no longer held cannot be released."""
        foreign = self.store.read(lambda tx: limit_holders(tx, self._limit_id))
        mine = {held.lease.token for held in self._held}
        wrong = [lease._replace(token=lease.token + 1) for lease in foreign]
        wrong += self._stale if self.stage.fault_occurs(Fault.LATE, 0.5) else []
        if not wrong:
            return
        releases = [Release(lease.lease_id, lease.token) for lease in wrong]
        served = self._request_grant(GrantInput(broker=self._broker, releases=releases))
        if served.released:
            raise Violation("I31", f"{served.released} slots were released by {wrong}, {mine}")
        self._stale = []

    def _change(self) -> None:
        """Leave the queue, report a quota error, or resize the limit."""
        rng = self.stage.rng
        if self._waiting and rng.random() < 0.5:
            request = next(iter(self._waiting))
            del self._waiting[request]
            self._request_grant(GrantInput(broker=self._broker, abandons=[Abandon(request)]))
        elif self._held and rng.random() < 0.3:
            lease = self._held[0].lease
            self.store.write(lambda tx: limit_quota(tx, self._limit_id, lease))
        elif self._limit == SLOTS:
            terms = replace(LIMITS[SLOTS], capacity=rng.choice((2, 3, 4)))
            self.store.write(lambda tx: limit_declare(tx, SLOTS, terms, actor="simulation"))

    def _use(self) -> None:
        """I30: a holder whose lease is live is never fenced off by a newer one."""
        if self._limit != EXCLUSIVE:
            return
        for held in list(self._held):
            is_live = held.safe_until > self.stage.clock.now()
            if not self._resource.write(held.lease.token) and is_live:
                raise Violation("I30", f"a live lease was fenced off: {held.lease}")
            if not is_live:
                self._held.remove(held)

    def _release_all(self) -> None:
        leases = [*self._giving, *(held.lease for held in self._held)]
        leaves = [Abandon(request) for request in self._waiting]
        self._held, self._giving, self._waiting, self._wants = [], [], {}, {}
        releases = [Release(lease.lease_id, lease.token) for lease in leases]
        grant = GrantInput(broker=self._broker, releases=releases, abandons=leaves, collect=True)
        served = self._request_grant(grant)
        for lease in served.leases.values():  # granted while leaving
            self._request_grant(_release(self._broker, lease))
        self._held = []

    def _request_grant(self, grant: GrantInput) -> GrantResult:
        """Request one grant; its leases count from the time of the request."""
        now = self.stage.clock.now()
        try:
            served = self.store.write(lambda tx: limit_grant(tx, self._limit_id, grant))
        except StoreError:
            if grant.collect:
                # Granted, but the response was lost: asking again under the same name finds it.
                self._wants |= {
                    name: want._replace(is_repeated=True) for name, want in self._waiting.items()
                }
                self._waiting = {}
            raise
        for lease in served.leases.values():
            self._waiting.pop(lease.request, None)
            self._held.append(_Held(lease, now + (lease.lease_us or 0)))
        return served


def _release(broker: str, lease: LeaseRow) -> GrantInput:
    return GrantInput(broker=broker, releases=[Release(lease.lease_id, lease.token)])


def slot_actors(stage: Stage) -> list[Actor]:
    """Two processes at an exclusive limit, two at a shared one."""
    resource = Resource()
    return [
        SlotHolder(stage, f"slots-{limit}-{n}", limit, resource)
        for limit in (EXCLUSIVE, SLOTS)
        for n in range(2)
    ]
