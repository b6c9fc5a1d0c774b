"""Fixtures of these tests."""

from tests.bus.transports.rig import rig

__all__ = ["rig"]
