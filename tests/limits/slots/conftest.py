"""A store of each engine under real time, and no broker left behind."""

from collections.abc import Iterator

import pytest

from penstock import limits
from penstock.db.store import Store
from penstock.limits.slots.broker import Broker
from penstock.limits.slots.registry import broker_of
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore


@pytest.fixture
def live(open_store: OpenStore) -> Iterator[Store]:
    """The store that slots use; its time is the database's."""
    store = open_store(clock=None)
    limits.use(store)
    yield store
    broker_of(store).close()
    limits.use(None)


@pytest.fixture
def still(store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker whose time and store stand still, and who takes every turn in the caller's thread:
    its waits let virtual time pass, so nothing may be left to a thread that lives in real time.
    """
    limits.use(store)
    broker = broker_of(store, clock)
    monkeypatch.setattr(broker._pulse, "rouse", lambda _=0.0: None)
    return broker


@pytest.fixture
def broker(live: Store) -> Broker:
    """The broker of this process."""
    return broker_of(live)
