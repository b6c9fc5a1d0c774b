"""Fixtures of these tests."""

from tests.kits.served import serve, served, shared
from tests.kits.shell import alone, bare, shell, shop_template

__all__ = ["alone", "bare", "serve", "served", "shared", "shell", "shop_template"]
