"""The admission queue: bursts are served, overload is refused early, and overload ends."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from penstock.server.overload.admission_queue import (
    BURST_SECONDS,
    OVERLOAD_WAIT_SECONDS,
    PAUSE_SECONDS,
    RECOVERY_SECONDS,
    AdmissionQueue,
)
from penstock.testing.clock import VirtualClock

CONCURRENCY, MOST = 3, 10
MOMENT = OVERLOAD_WAIT_SECONDS / 10


class Queue:
    """An admission queue with callers; each is served, refused or waiting."""

    def __init__(self, *, concurrency: int = CONCURRENCY, most: int = MOST) -> None:
        self.clock = VirtualClock(0)
        self.admission = AdmissionQueue(concurrency=concurrency, most=most, clock=self.clock)
        self.callers: list[asyncio.Task[bool]] = []

    async def come(
        self, n: int = 1, patience: float = OVERLOAD_WAIT_SECONDS, *, key: str = ""
    ) -> None:
        """Let n requests of a key enter one after another."""
        for _ in range(n):
            self.callers.append(asyncio.create_task(self.admission.enter(patience, key)))
            await _settle()

    async def leave(self, n: int = 1, *, key: str = "") -> None:
        """Let n served requests of a key leave."""
        for _ in range(n):
            self.admission.leave(key)
            await _settle()

    async def overload(self) -> None:
        """Overfill the queue, and let its waiters exceed their waiting time."""
        await self.come(MOST + 1)
        self.clock.advance(seconds=2 * OVERLOAD_WAIT_SECONDS)
        await self.leave(CONCURRENCY)

    async def crowd(self) -> None:
        """Let requests end for longer than a burst while none is admitted directly."""
        for _ in range(round(BURST_SECONDS / PAUSE_SECONDS) + 1):
            self.admission.reenter("poll")
            self.clock.advance(seconds=PAUSE_SECONDS)
            await self.leave(key="poll")

    @property
    def states(self) -> str:
        """Return the state of each caller: served, refused or waiting."""
        signs = {True: "s", False: "r", None: "."}
        return "".join(signs[c.result() if c.done() else None] for c in self.callers)


async def _settle() -> None:
    """Let all runnable tasks proceed."""
    for _ in range(4):
        proceeded = asyncio.Event()
        asyncio.get_running_loop().call_soon(proceeded.set)
        await proceeded.wait()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario on its own event loop; cancel remaining waiters at its end."""

    async def whole() -> None:
        await scenario
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    asyncio.run(whole())


def test_burst_is_served() -> None:
    """A burst that fits into the queue is served in order, however long it takes."""

    async def scenario() -> None:
        queue = Queue()
        await queue.come(MOST)
        assert queue.states == "sss......."
        queue.clock.advance(seconds=BURST_SECONDS)
        await queue.leave()
        assert queue.states == "ssss......"
        await queue.leave(6)
        assert queue.states == "s" * MOST

    run(scenario())


def test_a_pause_is_not_overload() -> None:
    """Requests that arrived while none ended, however long, are served after the pause."""

    async def scenario() -> None:
        queue = Queue()
        await queue.come(6)
        queue.clock.advance(seconds=3 * BURST_SECONDS)
        await queue.come(2)
        await queue.leave(5)
        assert queue.states == "s" * 8

    run(scenario())


def test_full_queue_is_overload() -> None:
    """A full queue is overload; callers that waited too long are refused."""

    async def scenario() -> None:
        queue = Queue()
        await queue.come(4)
        queue.clock.advance(seconds=2 * OVERLOAD_WAIT_SECONDS)
        await queue.come(MOST - 4 + 1)
        assert queue.states == "sss.......r"
        await queue.leave()
        assert queue.states == "sss.......r", "one fewer is served under overload"
        await queue.leave()
        assert queue.states == "sssrs.....r", "the fourth has waited too long, the fifth has not"

    run(scenario())


def test_no_direct_admission_is_overload() -> None:
    """A queue that never fills and never empties is overload too."""

    async def scenario() -> None:
        queue = Queue()
        await queue.come(6)
        await queue.crowd()
        await queue.come()
        assert queue.states == "sss...r", "a new caller is refused under overload"
        await queue.leave(2)
        assert queue.states == "sssrrrr"

    run(scenario())


def test_few_wait_under_overload() -> None:
    """Under overload two are served and two wait; the others are refused immediately."""

    async def scenario() -> None:
        queue = Queue()
        await queue.overload()
        assert queue.admission.active == 0
        queue.callers.clear()
        await queue.come(6)
        assert queue.states == "ss..rr"
        await queue.leave()
        assert queue.states == "sss.rr", "short waits are allowed"

    run(scenario())


def test_empty_queue_does_not_end_overload() -> None:
    """Overload lasts while callers are refused, even if the queue was empty for a moment."""

    async def scenario() -> None:
        queue = Queue()
        await queue.overload()
        for _ in range(20):
            queue.callers.clear()
            await queue.come(5)
            assert queue.states == "ss..r"
            queue.clock.advance(seconds=2 * OVERLOAD_WAIT_SECONDS)
            await queue.leave(2)
            assert queue.states == "ssrrr", "refusing the late waiter empties the queue"
            assert queue.admission.has_capacity

    run(scenario())


def test_overload_ends() -> None:
    """After a moment without refusals, bursts are served again with full concurrency."""

    async def scenario() -> None:
        queue = Queue()
        await queue.overload()
        queue.clock.advance(seconds=RECOVERY_SECONDS)
        queue.callers.clear()
        await queue.come(MOST)
        assert queue.states == "sss......."

    run(scenario())


def test_patience() -> None:
    """A caller with a longer waiting time keeps its position under overload."""

    async def scenario() -> None:
        queue = Queue()
        await queue.come(4)
        await queue.come(1, patience=2.0)
        await queue.crowd()
        await queue.leave(2)
        assert queue.states == "sssrs"

    run(scenario())


def test_concurrency_of_one() -> None:
    """A process with a concurrency of one still serves one request under overload."""

    async def scenario() -> None:
        queue = Queue(concurrency=1, most=1)
        await queue.come(3)
        assert queue.states == "srr"
        await queue.leave()
        await queue.come(2)
        assert queue.states == "srrsr"

    run(scenario())


def test_gone_callers() -> None:
    """A caller that leaves while waiting is skipped; an admitted one admits the next."""

    async def scenario() -> None:
        queue = Queue()
        await queue.come(6)
        gone, served = queue.callers[3], queue.callers[4]
        gone.cancel()
        await _settle()
        queue.admission.leave()
        served.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await served
        await _settle()
        assert queue.callers[5].result() is True
        assert queue.admission.active == CONCURRENCY

    run(scenario())


def test_overload_by_another_caller() -> None:
    """A caller within its share is not refused for what another asks, and is served next."""

    async def scenario() -> None:
        queue = Queue()
        await queue.come(6, key="greedy")
        await queue.crowd()
        await queue.come(key="greedy")
        assert queue.states == "sss...r"
        await queue.come(2, key="modest")
        assert queue.states == "sss...r..", "its share is two of four"
        await queue.come(key="modest")
        assert queue.states == "sss...r..r"
        queue.clock.advance(seconds=2 * OVERLOAD_WAIT_SECONDS)
        await queue.leave(2, key="greedy")
        assert queue.states == "sss...rs.r", "it goes first, though it waited too"
        await queue.leave(key="modest")
        assert queue.states == "sss...rssr"
        await queue.leave(key="modest")
        assert queue.states == "sssrrrrssr", "alone, the other has waited too long"
        await queue.leave(key="greedy")
        assert not queue.admission._present
        assert not queue.admission._served

    run(scenario())


def test_callers_gone_while_waiting() -> None:
    """A request that gives up no longer counts against its caller."""

    async def scenario() -> None:
        queue = Queue()
        await queue.come(CONCURRENCY, key="a")
        await queue.come(2, key="b")
        for one in queue.callers[CONCURRENCY:]:
            one.cancel()
        await _settle()
        assert queue.admission._present == {"a": CONCURRENCY}
        await queue.leave(CONCURRENCY, key="a")
        assert not queue.admission._present

    run(scenario())
