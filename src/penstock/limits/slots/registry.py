"""Which broker serves the caller: that of its run, of the client it gave, or of the settings.

One broker per process and store. Processes that were forked do not inherit brokers: connections
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
from penstock.core.current_run import PRESENT
from penstock.core.errors import Conflict, PenstockError
from penstock.db.default_store import DATABASE_VARIABLE, open_default_store
from penstock.db.store import Store
from penstock.limits.slots.broker import Broker


class StoreOwner(Protocol):
    """A client, as far as limits need it."""

    @property
    def store(self) -> Store:
        """The store that the client works on."""
        ...

    @property
    def actor(self) -> str:
        """Name written to the journal for changes by this client."""
        ...


class _Here:
    """The brokers of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pid = os.getpid()
        self.brokers: weakref.WeakKeyDictionary[Store, Broker] = weakref.WeakKeyDictionary()
        self.chosen: Store | None = None
        self.opened: Store | None = None


_here = _Here()


def use(client: StoreOwner | Store | None) -> None:
    """Let slots outside of runs use this client; None: the settings of the environment again."""
    _own().chosen = cast("Store | None", getattr(client, "store", client))


def broker_here(client: StoreOwner | None = None) -> Broker:
    """The broker that serves the caller."""
    here = _own()
    if client is not None:
        return broker_of(client.store)
    run = PRESENT.get()
    if run is not None and run.store is not None:
        return broker_of(cast("Store", run.store))
    if here.chosen is not None:
        return broker_of(here.chosen)
    if run is not None and DATABASE_VARIABLE not in os.environ:
        raise Conflict(
            "a run in a process of its own knows its database by the environment only: "
            f"set {DATABASE_VARIABLE} for the worker"
        )
    with here.lock:
        if here.opened is None:
            here.opened = open_default_store()
    return broker_of(here.opened)


def broker_of(store: Store, clock: Clock | None = None) -> Broker:
    """The one broker of a store in this process; clock: whose time a new one waits by."""
    here = _own()
    found = here.brokers.get(store)
    if found is not None:
        return found
    if getattr(store, "customer", None) is not None:
        raise Conflict(
            "a client that is confined to one customer cannot judge capacity: "
            "take slots with the client it was made from"
        )
    with here.lock:
        found = here.brokers.get(store)
        if found is None:
            if not here.brokers:
                atexit.register(_flush)
            found = here.brokers[store] = Broker(store, clock=clock)
            store.before_close(found.close)
    return found


def _own() -> _Here:
    """What belongs to this process; a fork starts anew, except for what was handed to it."""
    global _here
    if _here.pid != os.getpid():
        before, _here = _here, _Here()
        # What the parent uses stays known, so that its use here is refused with a reason.
        for store, broker in list(before.brokers.items()):
            if store is not before.opened:
                _here.brokers[store] = broker
        _here.chosen = before.chosen
    return _here


def _flush() -> None:
    if _here.pid == os.getpid():
        for broker in list(_here.brokers.values()):
            with contextlib.suppress(PenstockError):
                broker.close()
