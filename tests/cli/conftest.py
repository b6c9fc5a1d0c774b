"""Fixtures of these tests."""

import pytest

from tests.kits.served import serve, served, shared
from tests.kits.shell import alone, bare, shell, shop_template

__all__ = ["alone", "bare", "serve", "served", "shared", "shell", "shop_template"]


@pytest.fixture(autouse=True)
def _alone(alone: None) -> None:
    """Run every test without settings of the machine, in an empty folder."""
