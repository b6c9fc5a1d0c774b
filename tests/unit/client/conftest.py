"""Shared fixture of the client tests."""

import pytest

from penstock.store.api import Store
from penstock.testing.clock import VirtualClock
from tests.desk import Desk


@pytest.fixture
def desk(store: Store, clock: VirtualClock) -> Desk:
    """Return a client with its services over the engine under test."""
    return Desk(store, clock)
