"""Registry of brokers: the broker of the given client, of the current run, or of the settings.

There is one broker per process and store. Forked processes do not inherit brokers: connections
cannot be shared, and a slot belongs to the process that took it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from typing import Protocol, cast

from penstock.core.clock import Clock
from penstock.core.current_run import CURRENT_RUN
from penstock.core.errors import Conflict, PenstockError
from penstock.db.default_store import DATABASE_VARIABLE, open_default_store
from penstock.db.store import StoreView
from penstock.limits.slots.broker import Broker


class StoreOwner(Protocol):
    """The part of a client that limits need."""

    @property
    def store(self) -> StoreView:
        """The store that the client reads and writes."""
        ...

    @property
    def actor(self) -> str:
        """Name written to the journal for changes by this client."""
        ...


class _Registry:
    """The brokers of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pid = os.getpid()
        self.brokers: weakref.WeakKeyDictionary[StoreView, Broker] = weakref.WeakKeyDictionary()
        self.chosen: StoreView | None = None
        self.opened: StoreView | None = None


_registry = _Registry()


def use(client: StoreOwner | StoreView | None) -> None:
    """Set the client that slots outside of runs use. None: use the settings of the environment."""
    _current().chosen = cast("StoreView | None", getattr(client, "store", client))


def current_broker(client: StoreOwner | None = None) -> Broker:
    """Return the broker for the caller.

    In this order: that of `client`, that of the current run's worker, that of the client given to
    `use`, and one for the database in the settings of the environment.
    """
    registry = _current()
    if client is not None:
        return broker_for_store(client.store)
    run = CURRENT_RUN.get()
    if run is not None and run.store is not None:
        return broker_for_store(cast("StoreView", run.store))
    if registry.chosen is not None:
        return broker_for_store(registry.chosen)
    if run is not None and DATABASE_VARIABLE not in os.environ:
        raise Conflict(
            "a run in a child process finds its database only through the environment: "
            f"set {DATABASE_VARIABLE} for the worker"
        )
    with registry.lock:
        if registry.opened is None:
            registry.opened = open_default_store()
    return broker_for_store(registry.opened)


def broker_for_store(store: StoreView, clock: Clock | None = None) -> Broker:
    """Return the broker of a store in this process. clock: used if the broker is created."""
    registry = _current()
    found = registry.brokers.get(store)
    if found is not None:
        return found
    if getattr(store, "customer", None) is not None:
        raise Conflict(
            "a client scoped to one customer cannot determine free capacity: "
            "take slots with the unscoped client that it was created from"
        )
    with registry.lock:
        found = registry.brokers.get(store)
        if found is None:
            if not registry.brokers:
                atexit.register(_flush)
            found = registry.brokers[store] = Broker(store, clock=clock)
            store.before_close(found.close)
    return found


def _current() -> _Registry:
    """Return the registry of this process. A fork gets a new one with the client set by `use`."""
    global _registry
    if _registry.pid != os.getpid():
        before, _registry = _registry, _Registry()
        # Brokers of the parent stay registered, so that using them here raises a clear Conflict.
        for store, broker in list(before.brokers.items()):
            if store is not before.opened:
                _registry.brokers[store] = broker
        _registry.chosen = before.chosen
    return _registry


def _flush() -> None:
    if _registry.pid == os.getpid():
        for broker in list(_registry.brokers.values()):
            with contextlib.suppress(PenstockError):
                broker.close()
