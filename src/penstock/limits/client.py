"""Use cases of limits: read them, configure them, force the release of a slot.

Limits belong to the installation and are shared by all customers, so a client scoped to one
customer has no access to them (`why` shows what its own runs wait for).
"""

from __future__ import annotations

from typing import Annotated

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.core.clock import MINUTE
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.fields import check_text
from penstock.core.ids import decode
from penstock.core.records.parameters import Reason
from penstock.core.records.record import UNSET, DurationInput, Meta, Page, UnsetType
from penstock.db.store import Transactions, Tx
from penstock.limits.from_rows import (
    history_record,
    lease_record,
    limit_record,
    wait_times,
    waiter_record,
    waits_of,
)
from penstock.limits.records import Limit, LimitDetail, LimitLease, LimitName, WaitTimes
from penstock.limits.rules import check_limit_name, parse_limit_settings
from penstock.limits.store.limits import limit_declare, limit_force_release, limit_get
from penstock.limits.store.reads import (
    limit_history,
    limit_holders,
    limit_list,
    limit_queue,
    limit_recent_waits,
)
from penstock.pipelines.declare.limit_needs import customer_of_limit

__all__ = ["Limits"]

DETAIL_ROWS_MAX = 200
WINDOW_US = 5 * MINUTE

_LEASE_ID = Meta(description="Id of the lease (`lease_…`).", max_length=64)
_CAPACITY = Meta(description="Total weight that may be held at once; 10 for a new limit.")
_ADAPTIVE = Meta(description="Whether quota errors lower the capacity temporarily.")
_FLOOR = Meta(description="Lowest capacity that quota errors may cause.")
_RATE = Meta(description="Tokens added per second; null for no rate limit.")
_BURST = Meta(description="Maximum number of accumulated tokens; one second's worth when null.")
_LEASE = Meta(description="Time that a slot is held without renewal, such as `10m`.")
_GRACE = Meta(description="Time that an expired slot still counts as held, such as `30s`.")
_QUEUE_MAX = Meta(description="Maximum number of waiting callers; null for no maximum.")


class Limits:
    """Use cases of limits. A client scoped to a customer cannot use them."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def list(self, *, limit: PageLimit = 50, cursor: Cursor = None) -> Page[Limit]:
        """List limits by name, with their current use."""
        self._names.require_unscoped("limits")
        return paged(
            self._names,
            "limits",
            lambda after: self._store.read(
                lambda tx: limit_list(tx, after=after[0] if after else "", n=limit)
            ),
            cursor=cursor,
            limit=limit,
            position=lambda view: [view.limit.name],
            record=limit_record,
        )

    def get(self, name: LimitName) -> LimitDetail:
        """Return a limit with its holders, queue, waiting times and history."""
        self._names.require_unscoped("limits")
        return self._store.read(lambda tx: _detail(tx, name))

    def recent_waits(self, n: int = 200) -> dict[str, WaitTimes]:
        """Return waiting times of the last five minutes for the first `n` limits, by name."""
        self._names.require_unscoped("limits")
        found = self._store.read(lambda tx: limit_recent_waits(tx, n, WINDOW_US))
        return {name: waits_of(waits) for name, waits in found.items()}

    def declare(
        self,
        name: LimitName,
        *,
        capacity: Annotated[int | UnsetType | None, _CAPACITY] = UNSET,
        adaptive: Annotated[bool | UnsetType, _ADAPTIVE] = UNSET,
        floor: Annotated[int | UnsetType, _FLOOR] = UNSET,
        rate: Annotated[float | UnsetType | None, _RATE] = UNSET,
        burst: Annotated[int | UnsetType | None, _BURST] = UNSET,
        lease: Annotated[DurationInput | UnsetType, _LEASE] = UNSET,
        grace: Annotated[DurationInput | UnsetType, _GRACE] = UNSET,
        queue_max: Annotated[int | UnsetType | None, _QUEUE_MAX] = UNSET,
    ) -> LimitDetail:
        """Create or change a limit. Omitted settings keep their values; changes apply at once."""
        self._names.require_unscoped("limits")
        check_limit_name(name)
        given = {
            "capacity": capacity, "adaptive": adaptive, "floor": floor, "rate": rate,
            "burst": burst, "lease": lease, "grace": grace, "queue_max": queue_max,
        }  # fmt: skip
        settings = {key: value for key, value in given.items() if value is not UNSET}

        def body(tx: Tx) -> LimitDetail:
            found = limit_get(tx, name)
            if found is None:
                _refuse_maximum(tx, name)
            terms = parse_limit_settings(settings, None if found is None else found.terms)
            _, served = limit_declare(tx, name, terms, actor=self._actor)
            if served is not None:
                tx.after_commit(lambda: self._store.wake(sorted(served.channels)))
            return _detail(tx, name)

        return self._store.write(body)

    def release(self, lease_id: Annotated[str, _LEASE_ID], reason: Reason) -> LimitLease:
        """Take a slot from its holder and grant it to the next waiter. The old token is invalid."""
        self._names.require_unscoped("limits")
        check_text("reason", reason)
        try:
            number = decode("lease", lease_id)
        except InvalidInput:
            raise NotFound("lease", lease_id) from None

        def body(tx: Tx) -> LimitLease:
            try:
                lease, served = limit_force_release(tx, number, actor=self._actor, why=reason)
            except NotFound:
                raise NotFound("lease", lease_id) from None
            tx.after_commit(lambda: self._store.wake(sorted(served.channels)))
            return lease_record(lease)

        return self._store.write(body)


def _refuse_maximum(tx: Tx, name: str) -> None:
    """Raise InvalidInput for the maximum number of a customer's runs, which is a setting."""
    customer = customer_of_limit(name)
    if customer is not None and limit_list(tx, name=name, n=1):
        fix = f"Use: penstock customers set {customer} --concurrency N"
        raise InvalidInput("name", "a limit that is not a customer's maximum", name, fix)


def _detail(tx: Tx, name: str) -> LimitDetail:
    found = limit_list(tx, name=name, n=1)
    if not found:
        raise NotFound("limit", name)
    number = found[0].limit.limit_id
    history = limit_history(tx, number)
    queue = limit_queue(tx, number, DETAIL_ROWS_MAX)
    return LimitDetail(
        limit=limit_record(found[0]),
        waits=wait_times(history),
        holders=[lease_record(row) for row in limit_holders(tx, number, DETAIL_ROWS_MAX)],
        queue=[waiter_record(position, row) for position, row in enumerate(queue, 1)],
        history=[history_record(event) for event in history],
    )
