"""Use cases of limits: read them, configure them, force the release of a slot.

Limits belong to the installation and are shared by all customers, so a client scoped to one
customer has no access to them (`why` shows what its own runs wait for).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypeAlias

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.core.clock import MINUTE
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.fields import check_text
from penstock.core.ids import decode
from penstock.core.naming import LIMIT_NAME_MAX
from penstock.core.records.parameters import Reason
from penstock.core.records.record import UNSET, DurationInput, Meta, Page, UnsetType
from penstock.db.store import Transactions, Tx
from penstock.limits.estimates import estimated_grants, median_hold
from penstock.limits.from_rows import (
    capacity_record,
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
    LimitEvent,
    LimitView,
    limit_capacities,
    limit_history,
    limit_holders,
    limit_learned,
    limit_list,
    limit_of_run,
    limit_queue,
    limit_queued,
    limit_recent_waits,
)
from penstock.pipelines.declare.limit_needs import customer_of_limit

__all__ = ["Limits"]

DETAIL_ROWS_MAX = 200
WINDOW_US = 5 * MINUTE

SHOWN: Final = ("all", "line", "learned")
Show: TypeAlias = Annotated[
    Literal["all", "line", "learned"],
    Meta(
        description="All limits, those with a queue (`line`), or those whose capacity quota errors "
        "have lowered (`learned`). The last two return at most 1,000 limits."
    ),
]
Search: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=LIMIT_NAME_MAX)] | None,
    Meta(description="Part of a limit's name, or the id of a run that holds or waits for it."),
]
_LEASE_ID = Meta(description="Id of the lease (`lease_…`).", max_length=64)
_CAPACITY = Meta(description="Total weight that may be held at once; 10 for a new limit.")
_ADAPTIVE = Meta(description="Whether quota errors lower the capacity temporarily.")
_FLOOR = Meta(description="Lowest capacity that quota errors may reduce it to.")
_RATE = Meta(description="Tokens added per second; null for no rate limit.")
_BURST = Meta(description="Maximum number of accumulated tokens; one second's worth when null.")
_LEASE = Meta(description="Time after which a slot expires without renewal, such as `10m`.")
_GRACE = Meta(description="Time that an expired slot still counts as held, such as `30s`.")
_QUEUE_MAX = Meta(description="Maximum number of waiting callers; null for no maximum.")


class Limits:
    """Use cases of limits. A client scoped to a customer cannot use them."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def list(
        self,
        *,
        show: Show = "all",
        q: Search = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[Limit]:
        """List limits by name, with their current use."""
        self._names.require_unscoped("limits")
        if show not in SHOWN:
            raise InvalidInput("show", f"one of {', '.join(SHOWN)}", show)

        def read(after: Sequence[Any] | None) -> Sequence[tuple[LimitView, int]]:
            start = (str(after[0]), int(after[1])) if after else ("", -1)
            return self._store.read(
                lambda tx: [(one, tx.now()) for one in _found(tx, show, q, start, limit)]
            )

        return paged(
            self._names,
            "limits",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda row: [row[0].limit.name, row[0].limit.customer_key],
            record=lambda row: limit_record(*row),
            filters={"show": show, "q": q},
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
        """Create or change a limit, effective immediately. Omitted settings keep their values."""
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
    """Raise InvalidInput if a limit is a customer's maximum number of runs, which is a setting."""
    customer = customer_of_limit(name)
    if customer is not None and limit_list(tx, name=name, n=1):
        fix = f"Use: penstock customers set {customer} --concurrency N"
        raise InvalidInput("name", "a limit that is not a customer's maximum", name, fix)


def _found(tx: Tx, show: str, q: str | None, after: tuple[str, int], n: int) -> list[LimitView]:
    """Return the limits that a list shows; `q` is a part of the name or the id of a run."""
    chosen = None
    if show != "all":
        chosen = set(limit_queued(tx) if show == "line" else limit_learned(tx))
    if q is not None and q.lower().startswith("run_"):
        with suppress(InvalidInput):
            own = set(limit_of_run(tx, decode("run", q)))
            chosen = own if chosen is None else chosen & own
            q = None
    return limit_list(
        tx, part=q or None, ids=None if chosen is None else sorted(chosen), after=after, n=n
    )


def _detail(tx: Tx, name: str) -> LimitDetail:
    found = limit_list(tx, name=name, n=1)
    if not found:
        raise NotFound("limit", name)
    limit, now = found[0].limit, tx.now()
    history = limit_history(tx, limit.limit_id)
    queue = limit_queue(tx, limit.limit_id, DETAIL_ROWS_MAX)
    holders = limit_holders(tx, limit.limit_id, DETAIL_ROWS_MAX)
    grants = estimated_grants(
        [row.weight for row in queue],
        [(row.since_at, row.weight) for row in holders],
        held=found[0].held,
        effective=limit.effective,
        hold=median_hold([one.at - (one.since_at or one.at) for one in history if _is_hold(one)]),
        now=now,
    )
    return LimitDetail(
        limit=limit_record(found[0], now),
        waits=wait_times(history),
        holders=[lease_record(row) for row in holders],
        queue=[
            waiter_record(position, row, granted_at)
            for position, (row, granted_at) in enumerate(zip(queue, grants, strict=True), 1)
        ],
        history=[history_record(event) for event in history],
        capacity_series=[capacity_record(row) for row in limit_capacities(tx, limit.limit_id)],
    )


def _is_hold(event: LimitEvent) -> bool:
    """Return whether a row of the history is a hold that ended, not a wait or an error."""
    return event.since_at is not None and event.outcome in ("released", "expired", "forced")
