"""The world that every conformance test starts from."""

import pytest

from penstock.store.api import Store
from penstock.testing.clock import VirtualClock
from tests.conformance.tenants import pg_plain, pg_plain_dsn
from tests.conformance.transports import rig
from tests.conformance.world import World

__all__ = ["pg_plain", "pg_plain_dsn", "rig", "world"]


@pytest.fixture
def world(store: Store, clock: VirtualClock) -> World:
    """One pipeline, one customer, on the engine under test."""
    return World(store, clock)
