"""Fixtures of these tests."""

from collections.abc import Iterator

import pytest

from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore
from tests.pubsub_wire.kit import Wire, served


@pytest.fixture
def wire(open_store: OpenStore, clock: VirtualClock) -> Iterator[Wire]:
    """A front end that requires no key."""
    with served(open_store(), clock) as made:
        yield made
