"""Fixtures of these tests."""

from tests.kits.served import serve, served, shared
from tests.kits.shell import alone, shell, shop_template

__all__ = ["alone", "serve", "served", "shared", "shell", "shop_template"]
