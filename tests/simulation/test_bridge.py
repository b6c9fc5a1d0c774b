"""Histories of the bridge from seeds: nothing lost, repeated or reordered; bugs are detected."""

from typing import Any

import msgspec
import pytest

from penstock.bus.message import Delivery, NewMessage
from penstock.bus.transports.protocol import Transport
from penstock.services.bridge import Bridge
from tests.harness.bridge_simulation import BridgeSimulationFailed, run_bridge_seed


def test_histories_with_every_fault() -> None:
    reports = [run_bridge_seed(seed) for seed in range(8)]
    assert sum(report.messages for report in reports) > 300
    assert sum(report.crashes for report in reports) > 5
    assert {"broker_down", "reply_of_broker_lost", "crash_after"} <= set().union(
        *(report.faults for report in reports)
    )


def detecting_seed() -> int:
    """Return the first seed that detects the bug."""
    for seed in range(30):
        try:
            run_bridge_seed(seed)
        except BridgeSimulationFailed:
            return seed
    pytest.fail("not detected within 30 seeds")


def test_a_send_without_a_dedupe_id_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Bridge._outgoing

    def plain(self: Bridge, remote: Transport, topic: str, one: Delivery) -> NewMessage:
        return msgspec.structs.replace(sent(self, remote, topic, one), dedupe_id=None)

    monkeypatch.setattr(Bridge, "_outgoing", plain)
    assert detecting_seed() >= 0


def test_an_ack_before_the_publish_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A received message that is acked first is lost when its process dies in between."""
    receive = Bridge._receive

    def early(self: Bridge, remote: Any, topic: str) -> list[int]:
        pull = remote.pull

        def acked(name: str, **more: Any) -> list[Delivery]:
            found: list[Delivery] = pull(name, **more)
            if found:
                remote.ack(name, [one.ack_id for one in found])
            return found

        remote.pull = acked
        try:
            return receive(self, remote, topic)
        finally:
            del remote.pull

    monkeypatch.setattr(Bridge, "_receive", early)
    assert detecting_seed() >= 0
