"""The desk every test of the services starts from."""

import pytest

from penstock.db.store import Store
from penstock.testing.clock import VirtualClock
from tests.desk import Desk


@pytest.fixture
def desk(store: Store, clock: VirtualClock) -> Desk:
    """Services and a client over the engine under test."""
    return Desk(store, clock)
