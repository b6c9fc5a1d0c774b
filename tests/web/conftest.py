"""Fixtures of these tests."""

from tests.kits.served import serve, served, shared

__all__ = ["serve", "served", "shared"]
