"""The world every conformance test starts from."""

import pytest

from penstock.store.api import Store
from penstock.testing.clock import VirtualClock
from tests.conformance.world import World


@pytest.fixture
def world(store: Store, clock: VirtualClock) -> World:
    """One pipeline, one customer, on the engine under test."""
    return World(store, clock)
