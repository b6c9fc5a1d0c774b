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
from typing import Final, cast

from penstock.assembly.settings import PREFIX, load
from penstock.client import Client
from penstock.core.clock import Clock
from penstock.core.current_run import PRESENT
from penstock.core.errors import Conflict, PenstockError
from penstock.db.store import Store
from penstock.limits.slots.broker import Broker

_DATABASE: Final = f"{PREFIX}DATABASE_URL"


class _Here:
    """The brokers of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pid = os.getpid()
        self.brokers: weakref.WeakKeyDictionary[Store, Broker] = weakref.WeakKeyDictionary()
        self.chosen: Store | None = None
        self.opened: Store | None = None


_here = _Here()


def use(client: Client | Store | None) -> None:
    """Let slots outside of runs use this client; None: the settings of the environment again."""
    _own().chosen = client.store if isinstance(client, Client) else client


def broker_here(client: Client | None = None) -> Broker:
    """The broker that serves the caller."""
    here = _own()
    if client is not None:
        return broker_of(client.store)
    run = PRESENT.get()
    if run is not None and run.store is not None:
        return broker_of(cast("Store", run.store))
    if here.chosen is not None:
        return broker_of(here.chosen)
    if run is not None and _DATABASE not in os.environ:
        raise Conflict(
            "a run in a process of its own knows its database by the environment only: "
            f"set {_DATABASE} for the worker"
        )
    with here.lock:
        if here.opened is None:
            here.opened = _open()
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


def _open() -> Store:
    # The only room that names drivers; loaded when a program takes slots without a client.
    from penstock.assembly.process import open_store

    return open_store(load(os.environ), migrate=True)


def _flush() -> None:
    if _here.pid == os.getpid():
        for broker in list(_here.brokers.values()):
            with contextlib.suppress(PenstockError):
                broker.close()
