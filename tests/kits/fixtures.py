"""Fixtures that tests of several subjects start from."""

import pytest

from penstock.db.store import Store
from penstock.testing.clock import VirtualClock
from tests.kits.client_harness import Harness
from tests.kits.world import World


@pytest.fixture
def harness(store: Store, clock: VirtualClock) -> Harness:
    """Services and a client over the engine under test."""
    return Harness(store, clock)


@pytest.fixture
def world(store: Store, clock: VirtualClock) -> World:
    """One pipeline and one customer on the engine under test."""
    return World(store, clock)
