"""Trees of modules have no cycles: to search them for some doubles the time of parsing."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _no_collector() -> Iterator[None]:
    """Switch the garbage collector off."""
    gc.disable()
    yield
    gc.enable()
