"""One consumer over every transport: each message applied once, poison a dead letter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.bus.message import Delivery, NewMessage, SettleResult
from penstock.consumer import Consumer, ConsumerOptions, Message, Reject, TryAgain, Upsert, doc_path
from tests.bus.transports.rig import Rig

COUNT = 30


class LostAcks:
    """A transport that loses the first acks after the broker has stored them, or before."""

    def __init__(self, rig: Rig) -> None:
        self.inner = rig.bus
        self.lost = 3

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def ack(self, subscription: str, ack_ids: Sequence[str], **report: Any) -> list[SettleResult]:
        """Fail a few times; the kit repeats the call."""
        if self.lost:
            self.lost -= 1
            raise ConnectionError("lost")
        return self.inner.ack(subscription, ack_ids, **report)


def test_exactly_once_in_effect(rig: Rig, tmp_path: Path) -> None:
    """Lost acks, a handler that fails once, poison: effects are exact, the policy is read."""
    topic = rig.declare(min_backoff_us=0, max_backoff_us=0, max_attempts=5)
    lines: list[str] = []
    app = Consumer(
        "work",
        sink=f"sqlite:{tmp_path}/state.db",
        options=ConsumerOptions(log=lines.append, concurrency=4),
    )
    failed: set[str] = set()

    @app.on()
    def apply(message: Message) -> Upsert:
        number = message.json["n"]
        if number == 7:
            raise Reject("seven is not allowed")
        if number == 11 and message.id not in failed:
            failed.add(message.id)
            raise TryAgain("once more")
        return Upsert(path=doc_path("sums", "all"), add={"n": number, "count": 1})

    rig.bus.publish(topic, [NewMessage(data=json.dumps({"n": n}).encode()) for n in range(COUNT)])
    worker = app.worker(LostAcks(rig))  # type: ignore[arg-type]
    for _ in range(200):
        worker.run_once()
        rig.pass_seconds(0.5)
        if sum(app.counters().values()) >= COUNT and rig.is_empty():
            break
    assert app.policy.spec is not None
    assert (app.policy.spec.max_attempts, app.policy.spec.min_backoff_us) == (5, 0)
    counters = {name: n for name, n in app.counters().items() if name != "duplicate"}
    assert counters == {"applied": COUNT - 1, "poison": 1}
    stored = app.sink.document("sums/all")
    assert stored is not None
    assert stored.fields == {"n": sum(range(COUNT)) - 7, "count": COUNT - 1}
    dead: list[Delivery] = rig.pull("work.dead")
    assert [json.loads(one.data)["n"] for one in dead] == [7]
    app.close()
