"""A view of a store that is restricted to one customer, with the same connections and wake-ups.

Drivers build it in their `scoped` method with their own way to restrict a transaction: PostgreSQL
switches to a role that is subject to row-level security; SQLite has no equivalent and only records
the customer. The view owns nothing: it cannot be closed, migrated or widened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from penstock.core.naming import CustomerKey
from penstock.db.store import Capabilities, StoreView, Tx, Waiter

T = TypeVar("T")


class RunTransaction(Protocol):
    """Function of a driver that runs a transaction body, restricted or not."""

    def __call__(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a transaction."""
        ...


class ScopedStore:
    """A store restricted to one customer."""

    def __init__(
        self,
        store: StoreView,
        customer_key: CustomerKey,
        *,
        read: RunTransaction,
        write: RunTransaction,
    ) -> None:
        """Create a view of `store`; `read` and `write` run restricted transactions."""
        self._store = store
        self._read = read
        self._write = write
        self.customer = customer_key

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the engine."""
        return self._store.capabilities

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction that sees only this customer."""
        return self._read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction that can change only this customer."""
        return self._write(body)

    def scoped(self, customer_key: CustomerKey) -> StoreView:
        """Return this view; another customer is a programming error."""
        assert customer_key == self.customer, "a scoped store cannot switch to another customer"
        return self

    def reserved(self) -> StoreView:
        """Return a view with its own connection."""
        return self._store.reserved().scoped(self.customer)

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters in this and other processes; there may be work."""
        self._store.wake(channels)

    def listen(self, channels: Iterable[str]) -> Waiter:
        """Return a waiter for wake-ups on the channels."""
        return self._store.listen(channels)

    def vacuum(self, tables: Sequence[str]) -> None:
        """Remove dead row versions of tables; they belong to all customers."""
        self._store.vacuum(tables)

    def before_close(self, call: Callable[[], None]) -> None:
        """Register a hook that runs before the underlying store closes."""
        self._store.before_close(call)


def tenant_statements(customer: Any) -> tuple[str, ...]:
    """Return the statements that follow BEGIN on PostgreSQL; validates the key, which is inserted
    as text.
    """
    if isinstance(customer, bool) or not isinstance(customer, int) or customer <= 0:
        raise ValueError(f"expected a customer key (an integer from 1), got {customer!r:.40}")
    return "SET LOCAL ROLE penstock_tenant", f"SET LOCAL penstock.customer = '{customer}'"
