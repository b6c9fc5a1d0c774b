"""Fixtures of these tests."""

from tests.kits.served import serve, served, shared
from tests.server.wire import wires

__all__ = ["serve", "served", "shared", "wires"]
