"""Fixtures of these tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import BRIEF_ENGINES
from tests.kits.served import serve, served, shared
from tests.web.chromium import launched

__all__ = ["serve", "served", "shared"]


@pytest.fixture(params=BRIEF_ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Pages call use cases, which have tests on both engines; `test_pages` reads all of both."""
    return str(request.param)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Return a browser."""
    with launched() as browser:
        yield browser
