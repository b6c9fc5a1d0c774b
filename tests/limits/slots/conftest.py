"""Fixtures: a store and a broker of each engine, in real or virtual time."""

from collections.abc import Iterator

import pytest

from penstock import limits
from penstock.db.store import Store
from penstock.limits.slots.broker import Broker
from penstock.limits.slots.registry import broker_for_store
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore


@pytest.fixture
def live(open_store: OpenStore) -> Iterator[Store]:
    """The store that slots use, in real time. Its broker is closed afterwards."""
    store = open_store(clock=None)
    limits.use(store)
    yield store
    broker_for_store(store).close()
    limits.use(None)


@pytest.fixture
def still(store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker in virtual time that runs every grant in the caller's thread: its waits advance the
    virtual clock, so no work may be left to a thread in real time.
    """
    limits.use(store)
    broker = broker_for_store(store, clock)
    monkeypatch.setattr(broker._thread, "wake", lambda _=0.0: None)
    return broker


@pytest.fixture
def broker(live: Store) -> Broker:
    """The broker of this process."""
    return broker_for_store(live)
