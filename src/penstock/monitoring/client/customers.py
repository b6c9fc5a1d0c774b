"""Read models of customers: whose configs fail, and who starts next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.core.records.record import Meta, Page
from penstock.db.store import Transactions, Tx
from penstock.monitoring.from_rows import health_record
from penstock.monitoring.records import CustomerHealth
from penstock.monitoring.store import CustomerState, customers_health, customers_page

Shown: TypeAlias = Literal["trouble", "all"]
_SHOW = Meta(description="`trouble`: only customers with a config that fails or was switched off.")
_PREFIX = Meta(description="Return only customers whose id begins with this text.", max_length=200)


class CustomerViews:
    """Read-only use cases over customers and their configs."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def customers(
        self,
        *,
        show: Annotated[Shown, _SHOW] = "all",
        prefix: Annotated[str, _PREFIX] = "",
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[CustomerHealth]:
        """List customers by name with the health of their configs and their last runs."""
        self._names.require_unscoped("all customers")

        def read(after: Sequence[Any] | None) -> Sequence[tuple[str, CustomerState]]:
            def body(tx: Tx) -> Sequence[tuple[str, CustomerState]]:
                names = ("" if after is None else after[0], prefix)
                found = customers_page(tx, names, limit, is_troubled=show == "trouble")
                states = customers_health(tx, [key for key, _ in found])
                return [(name, states[key]) for key, name in found]

            return self._store.read(body)

        return paged(
            self._names,
            "customer_health",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda found: (found[0],),
            record=lambda found: health_record(*found),
            filters={"show": show, "prefix": prefix},
        )
