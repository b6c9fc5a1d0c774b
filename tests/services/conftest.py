"""Fixtures of these tests."""

from tests.kits.nats import nats_server

__all__ = ["nats_server"]
