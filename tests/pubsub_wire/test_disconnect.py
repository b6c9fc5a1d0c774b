"""Clients that disconnect while a thread pulls for them: nothing stays leased."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.pubsub_v1 import types

from penstock.bus.message import NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.transports.embedded import BusOperations, EmbeddedBus
from penstock.client import Client
from penstock.core.clock import SystemClock
from penstock.db.store import Store
from penstock.egress.policy import EgressRules
from penstock.pubsub_wire.handlers import FrontEnd, WireOptions
from penstock.pubsub_wire.streams import streaming_pull
from penstock.pubsub_wire.subscriber import pull

NAME = "projects/penstock/subscriptions/sub"
OPTIONS = WireOptions(project="penstock", needs_key=False, threads=2, rate=1000.0,
                      rules=EgressRules())  # fmt: skip


class Context:
    """The context of a call, whose client sends one request and then nothing."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self._has_read = False

    async def read(self) -> Any:
        """Return the first request, then wait."""
        if self._has_read:
            await asyncio.Event().wait()
        self._has_read = True
        return types.StreamingPullRequest.pb()(subscription=NAME, stream_ack_deadline_seconds=60)

    async def write(self, response: Any) -> None:
        """Record a response."""
        self.sent += response.received_messages

    def time_remaining(self) -> float:
        """Return the time that is left for the call."""
        return 30.0

    def add_done_callback(self, _call: object) -> None:
        """Ignore it: the test cancels the task, as gRPC does."""


async def stream(front: FrontEnd, context: Context) -> None:
    """Serve a streaming pull."""
    await streaming_pull(front, await front.caller({}), context)


async def unary(front: FrontEnd, context: Context) -> None:
    """Serve a pull."""
    request = types.PullRequest.pb()(subscription=NAME, max_messages=100)
    context.sent += (await pull(front, await front.caller({}), request, context)).received_messages


@pytest.mark.parametrize("serve", [stream, unary])
def test_what_a_thread_leases_for_a_gone_client_is_released(
    store: Store, monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Awaitable[None]]
) -> None:
    """The messages are ready again at once, and no attempt is counted."""
    client = Client(store, actor="tester")
    bus = EmbeddedBus(store, jitter=lambda: 0.0)
    bus.declare([TopicSpec(name="top")], [SubscriptionSpec(name="sub", topic="top")])
    bus.publish("top", [NewMessage(data=b"%d" % n) for n in range(10)])
    leased, go_on = threading.Event(), threading.Event()
    real = BusOperations.pull_bounded

    def slow(self: BusOperations, *args: Any, **more: Any) -> Any:
        found = real(self, *args, **more)  # committed
        leased.set()
        assert go_on.wait(60)
        return found

    async def scene() -> Context:
        front, context = FrontEnd(client, OPTIONS, SystemClock()), Context()
        call = asyncio.ensure_future(serve(front, context))
        assert await asyncio.to_thread(leased.wait, 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go_on.set()
        await front.settled()
        front.waiting.close()
        return context

    with monkeypatch.context() as patch:
        patch.setattr(BusOperations, "pull_bounded", slow)
        assert asyncio.run(scene()).sent == []
    found = bus.pull("sub", max_messages=100)
    assert [one.data for one in found] == [b"%d" % n for n in range(10)]
    assert {one.attempt for one in found} == {1}
