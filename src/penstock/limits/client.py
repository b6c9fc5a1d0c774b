"""Use cases of limits: read them, configure them, force the release of a slot.

Limits belong to the installation and are shared by all customers, so a client scoped to one
customer has no access to them (`why` shows what its own runs wait for).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.access.store.names import NameResolver, check_limit
from penstock.core.errors import NotFound
from penstock.core.fields import check_text
from penstock.core.ids import encode
from penstock.db.store import Transactions, Tx
from penstock.limits.rules import check_limit_name, parse_limit_settings
from penstock.limits.store.limits import limit_declare, limit_force_release, limit_get
from penstock.limits.store.reads import (
    LimitEvent,
    LimitView,
    limit_history,
    limit_holders,
    limit_list,
    limit_queue,
)
from penstock.limits.store.rows import Lease, Ticket

__all__ = ["LimitDetail", "Limits", "WaitTimes", "wait_times"]

DETAIL_ROWS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTimes:
    """Wait times of the last holders in microseconds, and the share that had to wait at all."""

    measured: int
    p50: int
    p95: int
    p99: int
    contention: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitDetail:
    """A limit with its holders, its queue, its recent history and the wait times in it."""

    view: LimitView
    holders: list[Lease]
    queue: list[Ticket]
    history: list[LimitEvent]
    waits: WaitTimes


class Limits:
    """Use cases of limits. A client scoped to a customer cannot use them."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def page(self, *, after: str = "", limit: int = 50) -> list[LimitView]:
        """Return limits ordered by name, with the weight held and the number of waiters."""
        self._names.require_unscoped("limits")
        check_limit(limit)
        return self._store.read(lambda tx: limit_list(tx, after=after, n=limit))

    def get(self, name: str) -> LimitDetail:
        """Return one limit in full; raise NotFound if it does not exist."""
        self._names.require_unscoped("limits")
        return self._store.read(lambda tx: _detail(tx, name))

    def declare(
        self, name: str, settings: Mapping[str, Any], *, actor: str | None = None
    ) -> LimitDetail:
        """Create or change a limit; omitted settings keep their values. Takes effect at once."""
        self._names.require_unscoped("limits")
        check_limit_name(name)
        who = actor or self._actor

        def body(tx: Tx) -> LimitDetail:
            found = limit_get(tx, name)
            terms = parse_limit_settings(dict(settings), None if found is None else found.terms)
            _, served = limit_declare(tx, name, terms, actor=who)
            if served is not None:
                tx.after_commit(lambda: self._store.wake(sorted(served.channels)))
            return _detail(tx, name)

        return self._store.write(body)

    def release(self, lease_id: int, reason: str, *, actor: str | None = None) -> Lease:
        """Take a slot from its holder and grant it to the next waiter; the journal records it."""
        self._names.require_unscoped("limits")
        check_text("reason", reason)
        who = actor or self._actor

        def body(tx: Tx) -> Lease:
            try:
                lease, served = limit_force_release(tx, lease_id, actor=who, why=reason)
            except NotFound:
                raise NotFound("lease", encode("lease", lease_id)) from None
            tx.after_commit(lambda: self._store.wake(sorted(served.channels)))
            return lease

        return self._store.write(body)


def _detail(tx: Tx, name: str) -> LimitDetail:
    found = limit_list(tx, name=name, n=1)
    if not found:
        raise NotFound("limit", name)
    number = found[0].limit.limit_id
    history = limit_history(tx, number)
    return LimitDetail(
        view=found[0],
        holders=limit_holders(tx, number, DETAIL_ROWS_MAX),
        queue=limit_queue(tx, number, DETAIL_ROWS_MAX),
        history=history,
        waits=wait_times(history),
    )


def wait_times(history: Sequence[LimitEvent]) -> WaitTimes:
    """Compute wait times from a limit's recent history; a timeout counts until it gave up."""
    waits = sorted(
        max(0, (note.at if note.since_at is None else note.since_at) - note.asked_at)
        for note in history
        if note.asked_at is not None and note.outcome != "quota"
    )
    if not waits:
        return WaitTimes(measured=0, p50=0, p95=0, p99=0, contention=0.0)

    def at(share: float) -> int:
        return waits[min(len(waits) - 1, int(share * len(waits)))]

    waited = sum(1 for wait in waits if wait > 0)
    return WaitTimes(
        measured=len(waits), p50=at(0.5), p95=at(0.95), p99=at(0.99), contention=waited / len(waits)
    )
