"""Fixtures shared by the tests of the services."""

import pytest

from penstock.store.api import Store
from penstock.testing.clock import VirtualClock
from tests.desk import Desk


@pytest.fixture
def desk(store: Store, clock: VirtualClock) -> Desk:
    """Services and a client over the store under test."""
    return Desk(store, clock)
