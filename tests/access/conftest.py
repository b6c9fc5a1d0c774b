"""Fixtures of these tests."""

import pytest

from penstock.db.store import Store
from penstock.testing.clock import VirtualClock
from tests.kits.client_harness import Harness
from tests.kits.shell import alone, bare, shell, shop_template

__all__ = ["alone", "bare", "harness", "shell", "shop_template"]


@pytest.fixture
def harness(store: Store, clock: VirtualClock) -> Harness:
    """A client over a store with some pipelines."""
    return Harness(store, clock)
