"""Fixtures of these tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kits.served import serve, served, shared
from tests.web.chromium import launched

__all__ = ["serve", "served", "shared"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Return a browser."""
    with launched() as browser:
        yield browser
