"""Fixtures of these tests."""

from tests.bus.transports.rig import nats_server, rig

__all__ = ["nats_server", "rig"]
