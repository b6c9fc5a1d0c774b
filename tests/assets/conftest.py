"""Fixtures of these tests."""

from tests.kits.shell import alone, shell, shop_template

__all__ = ["alone", "shell", "shop_template"]
