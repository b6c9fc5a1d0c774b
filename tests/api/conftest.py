"""Fixtures of the API's tests."""

from collections.abc import Iterator

import pytest

from penstock.store.api import Store
from penstock.testing.clock import VirtualClock
from tests.api.kit import Served
from tests.desk import Desk


@pytest.fixture
def desk(store: Store, clock: VirtualClock) -> Desk:
    """A desk on each engine."""
    return Desk(store, clock)


@pytest.fixture
def served(desk: Desk) -> Iterator[Served]:
    """The desk behind a server."""
    made = Served(desk)
    yield made
    made.stop()
