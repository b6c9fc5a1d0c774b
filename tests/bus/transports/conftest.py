"""Fixtures of these tests."""

from tests.bus.transports.rig import rig
from tests.kits.nats import nats_server

__all__ = ["nats_server", "rig"]
