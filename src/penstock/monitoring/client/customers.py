"""Read models of customers: the health of their configs, and their next starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict, Unpack

from penstock.access.store.names import NameResolver, check_limit
from penstock.access.store.paging import Cursor, PageLimit, paged_part
from penstock.core.errors import InvalidInput
from penstock.core.ids import decode
from penstock.core.naming import CustomerKey
from penstock.core.records.parameters import Customer, PipelineFilter
from penstock.core.records.record import Meta, Page
from penstock.db.store import Transactions, Tx
from penstock.monitoring.from_rows import health_record
from penstock.monitoring.records import CustomerCounts, CustomerHealth, CustomerOrder, HealthWord
from penstock.monitoring.store import (
    CustomerFilter,
    customers_counted,
    customers_health,
    customers_page,
)
from penstock.schedules.store.configs import config_get

COUNTED_MAX = 10_001
_Q = Meta(
    description="Return only customers whose id begins with this text, or the owner of the config "
    "with this id."
)
_HEALTH = Meta(
    description="Return only customers with this health; a page may then have fewer rows than "
    "`limit` and still be followed by another."
)
_VALUE = Meta(max_length=200)
_PROVIDER = Meta(description="Return only customers that have a config with this provider.")
_DOMAIN = Meta(description="Return only customers that have a config with this domain.")
_SORT = Meta(
    description="`name`: by id. `trouble`: worst health first. `next`: only customers with a next "
    "start, soonest first. The order and the filter use the health that a service stored last, "
    "seconds ago; rows show the current one."
)


class CustomerFilters(TypedDict, total=False):
    """Filters and order of customers; one that is omitted or None matches all.

    `pipeline`, `provider` and `domain` must apply to the same config.
    """

    q: Annotated[Annotated[str, _VALUE] | None, _Q]
    health: Annotated[HealthWord | None, _HEALTH]
    pipeline: PipelineFilter
    provider: Annotated[Annotated[str, _VALUE] | None, _PROVIDER]
    domain: Annotated[Annotated[str, _VALUE] | None, _DOMAIN]
    sort: Annotated[CustomerOrder | None, _SORT]


class CustomerViews:
    """Read-only use cases over customers and their configs."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def customer_health(self, customer: Customer) -> CustomerHealth:
        """Return whether the configs of a customer work, and how its last runs ended."""

        def body(tx: Tx) -> CustomerHealth:
            number = self._names.customer_key(tx, customer)
            assert number is not None
            return health_record(customers_health(tx, [number])[number])

        return self._store.read(body)

    def customer_counts(self) -> CustomerCounts:
        """Count customers by health."""
        self._names.require_unscoped("all customers")
        counts = self._store.read(lambda tx: customers_counted(tx, COUNTED_MAX))
        return CustomerCounts(**counts)

    def customers(
        self,
        *,
        limit: PageLimit = 50,
        cursor: Cursor = None,
        **filters: Unpack[CustomerFilters],
    ) -> Page[CustomerHealth]:
        """List customers with their settings, the health of their configs and their last runs."""
        check_limit(limit)
        health = filters.get("health")

        def body(
            tx: Tx, after: Sequence[Any] | None
        ) -> tuple[Sequence[CustomerHealth], tuple[int, str] | None]:
            wanted = self._wanted(tx, filters)
            place = (-1, "") if after is None else (int(after[0]), str(after[1]))
            order = filters.get("sort") or "name"
            found, following = customers_page(tx, wanted, order, place, limit)
            keys = [one.customer_key for one in found]
            states = customers_health(tx, keys)
            records = [health_record(states[key]) for key in keys]
            return [one for one in records if health in (None, one.health)], following

        return paged_part(
            self._names,
            "customer_health",
            lambda after: self._store.read(lambda tx: body(tx, after)),
            cursor=cursor,
            filters=dict(filters),
        )

    def _wanted(self, tx: Tx, filters: CustomerFilters) -> CustomerFilter:
        own = self._names.customer_key(tx, None)
        pipeline, q = filters.get("pipeline"), filters.get("q") or ""
        info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
        owner = _owner_of(tx, q, own)
        only = own if owner is None else owner
        return CustomerFilter(
            customer_key=only,
            prefix=q if owner is None else "",
            # Of one customer, the current health decides, not the stored one.
            health=filters.get("health") if only is None else None,
            pipeline_key=None if info is None else info.pipeline_key,
            provider=filters.get("provider"),
            domain=filters.get("domain"),
        )


def _owner_of(tx: Tx, q: str, own: CustomerKey | None) -> CustomerKey | None:
    """Return the owner of the config that a text names; None if it names none."""
    try:
        found = config_get(tx, decode("cfg", q), own)
    except InvalidInput:
        return None
    return None if found is None else found.customer_key
