"""Fixtures of these tests."""

from tests.consumer.conftest import open_sink, sink, sink_url

__all__ = ["open_sink", "sink", "sink_url"]
