"""Reads on a replica: figures, history, exports.

A `ReplicatedStore` uses the primary for everything except the transactions that `lagging` returns,
which may read on the replica. No decision (claims, gates, limits) uses these: a replica may show a
state that was never the latest. Such reads use the primary while the replica is down or too far
behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol, TypeVar, runtime_checkable

from penstock.core.clock import Clock, Micros, SystemClock
from penstock.core.errors import ReadTimeout, StoreError
from penstock.core.naming import CustomerKey
from penstock.db.replica.check import ReplicaCheck, ReplicaStatus
from penstock.db.store import Capabilities, Store, StoreView, Transactions, Tx, Waiter

T = TypeVar("T")

Server = Literal["replica", "primary"]


@runtime_checkable
class HasReplica(Protocol):
    """A store that may have a read replica."""

    def lagging(self) -> Transactions:
        """Return transactions whose reads may lag behind."""
        ...


def lagging_reads(store: Transactions) -> Transactions:
    """Return transactions for reads that tolerate lag; the store itself if it has no replica."""
    return store.lagging() if isinstance(store, HasReplica) else store


class LaggingReads:
    """Transactions that read on a replica while it is recent enough, and write to the primary."""

    def __init__(
        self,
        primary: StoreView,
        replica: Callable[[], StoreView],
        check: ReplicaCheck,
        on_read: Callable[[Server, ReplicaStatus], None],
    ) -> None:
        self._primary = primary
        self._replica = replica
        self._check = check
        self._on_read = on_read

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction; retry on the primary if the replica fails."""
        status = self._check.status()
        if status.is_used:
            try:
                value = self._replica().read(body)
            except ReadTimeout:
                raise  # the read was too long for its caller, the replica is not at fault
            except StoreError as error:
                self._check.failed(error)
            else:
                self._on_read("replica", status)
                return value
        self._on_read("primary", status)
        return self._primary.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction of the primary."""
        return self._primary.write(body)

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters in this and other processes."""
        self._primary.wake(channels)


class ReplicatedView:
    """A view of a primary, with reads on its replica."""

    def __init__(self, view: StoreView, lagging: LaggingReads) -> None:
        self._view = view
        self._lagging = lagging

    @property
    def capabilities(self) -> Capabilities:
        """The features of the engine."""
        return self._view.capabilities

    def lagging(self) -> Transactions:
        """Return transactions whose reads may lag behind."""
        return self._lagging

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction of the primary."""
        return self._view.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction."""
        return self._view.write(body)

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters in this and other processes."""
        self._view.wake(channels)

    def listen(self, channels: Iterable[str]) -> Waiter:
        """Return a waiter for wake-ups on the channels."""
        return self._view.listen(channels)

    def reserved(self) -> StoreView:
        """Return a view of the primary with its own connection."""
        return self._view.reserved()

    def scoped(self, customer_key: CustomerKey) -> StoreView:
        """Return a view that is restricted to one customer."""
        return self._view.scoped(customer_key)

    def vacuum(self, tables: Sequence[str]) -> None:
        """Remove dead row versions of tables."""
        self._view.vacuum(tables)

    def before_close(self, call: Callable[[], None]) -> None:
        """Register a hook that runs before the store closes."""
        self._view.before_close(call)


class ReplicatedStore(ReplicatedView):
    """A store with a read replica."""

    def __init__(
        self, primary: Store, replica: Store, *, lag_max_us: Micros, clock: Clock | None = None
    ) -> None:
        """Open nothing: both stores connect on first use. This store closes both."""
        self.check = ReplicaCheck(
            primary, replica, lag_max_us=lag_max_us, clock=clock or SystemClock()
        )
        self.on_read: Callable[[Server, ReplicaStatus], None] = lambda _, __: None
        self._primary = primary
        self._replica = replica
        super().__init__(primary, self._reads(primary, lambda: replica))

    def _reads(self, view: StoreView, replica: Callable[[], StoreView]) -> LaggingReads:
        return LaggingReads(view, replica, self.check, lambda *found: self.on_read(*found))

    @property
    def events(self) -> object | None:
        """The stream of events of this process."""
        return self._primary.events

    @events.setter
    def events(self, events: object | None) -> None:
        self._primary.events = events

    def scoped(self, customer_key: CustomerKey) -> StoreView:
        """Return a view that is restricted to one customer, on both servers."""
        view = self._primary.scoped(customer_key)
        reads = self._reads(view, lambda: self._replica.scoped(customer_key))
        return ReplicatedView(view, reads)

    def migrate(self) -> list[str]:
        """Apply missing migrations; return their names."""
        return self._primary.migrate()

    def verify(self) -> list[str]:
        """Return the names of missing migrations."""
        return self._primary.verify()

    def close(self) -> None:
        """Release every connection; idempotent."""
        self._primary.close()
        self._replica.close()
