"""Fixtures of these tests."""

from tests.kits.shell import alone, bare, shell, shop_template

__all__ = ["alone", "bare", "shell", "shop_template"]
