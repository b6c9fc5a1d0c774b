"""The line: bursts are served, floods are refused early, and a flood ends when it is over."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from penstock.server.overload.admission_queue import (
    BURST_SECONDS,
    CALM_SECONDS,
    PATIENCE_SECONDS,
    Line,
)
from penstock.testing.clock import VirtualClock

SLOTS, MOST = 3, 10
MOMENT = PATIENCE_SECONDS / 10


class Queue:
    """A line with callers; each is served, refused or waits."""

    def __init__(self, *, slots: int = SLOTS, most: int = MOST) -> None:
        self.clock = VirtualClock(0)
        self.line = Line(slots=slots, most=most, clock=self.clock)
        self.callers: list[asyncio.Task[bool]] = []

    async def come(self, n: int = 1, patience: float = PATIENCE_SECONDS) -> None:
        """So many come, one after the other."""
        for _ in range(n):
            self.callers.append(asyncio.create_task(self.line.enter(patience)))
            await _settle()

    async def leave(self, n: int = 1) -> None:
        """So many of those that are served have been."""
        for _ in range(n):
            self.line.leave()
            await _settle()

    async def flood(self) -> None:
        """More come than the line holds; those that wait have waited too long."""
        await self.come(MOST + 1)
        self.clock.advance(seconds=2 * PATIENCE_SECONDS)
        await self.leave(SLOTS)

    @property
    def told(self) -> str:
        """What each caller was told: served, refused, or still waits."""
        signs = {True: "s", False: "r", None: "."}
        return "".join(signs[c.result() if c.done() else None] for c in self.callers)


async def _settle() -> None:
    """Let everybody who can go on do so."""
    for _ in range(4):
        turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(turn.set)
        await turn.wait()


def run(story: Coroutine[Any, Any, None]) -> None:
    """Tell a story on a loop of its own; whoever still waits at its end goes away."""

    async def whole() -> None:
        await story
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    asyncio.run(whole())


def test_burst_is_served() -> None:
    """A burst that fits into the line is served in its order, however long its turn takes."""

    async def story() -> None:
        queue = Queue()
        await queue.come(MOST)
        assert queue.told == "sss......."
        queue.clock.advance(seconds=BURST_SECONDS)
        await queue.leave()
        assert queue.told == "ssss......"
        await queue.leave(6)
        assert queue.told == "s" * MOST

    run(story())


def test_overrun_is_a_flood() -> None:
    """Somebody finds the line full: it is a flood, and who has waited too long is refused."""

    async def story() -> None:
        queue = Queue()
        await queue.come(4)
        queue.clock.advance(seconds=2 * PATIENCE_SECONDS)
        await queue.come(MOST - 4 + 1)
        assert queue.told == "sss.......r"
        await queue.leave()
        assert queue.told == "sss.......r", "one fewer is worked on in a flood"
        await queue.leave()
        assert queue.told == "sssrs.....r", "the fourth has waited too long, the fifth has not"

    run(story())


def test_no_free_place_for_long_is_a_flood() -> None:
    """A line that does not fill, and never empties either, is a flood too."""

    async def story() -> None:
        queue = Queue()
        await queue.come(6)
        queue.clock.advance(seconds=BURST_SECONDS + MOMENT)
        await queue.come()
        assert queue.told == "sss...r", "not worth waiting any more"
        await queue.leave(2)
        assert queue.told == "sssrrrr"

    run(story())


def test_few_wait_in_a_flood() -> None:
    """In a flood two are worked on and two wait; everybody else is refused at once."""

    async def story() -> None:
        queue = Queue()
        await queue.flood()
        assert queue.line.active == 0
        queue.callers.clear()
        await queue.come(6)
        assert queue.told == "ss..rr"
        await queue.leave()
        assert queue.told == "sss.rr", "a short wait is none"

    run(story())


def test_emptied_line_is_no_calm() -> None:
    """As long as callers are refused it is a flood, even when the line was empty for a moment."""

    async def story() -> None:
        queue = Queue()
        await queue.flood()
        for _ in range(20):
            queue.callers.clear()
            await queue.come(5)
            assert queue.told == "ss..r"
            queue.clock.advance(seconds=2 * PATIENCE_SECONDS)
            await queue.leave(2)
            assert queue.told == "ssrrr", "who waited too long leaves an empty line"
            assert queue.line.has_free_place

    run(story())


def test_flood_ends() -> None:
    """Nobody was refused for a moment: bursts are served again, by all there are."""

    async def story() -> None:
        queue = Queue()
        await queue.flood()
        queue.clock.advance(seconds=CALM_SECONDS)
        queue.callers.clear()
        await queue.come(MOST)
        assert queue.told == "sss......."

    run(story())


def test_patience() -> None:
    """Who would rather wait than be refused keeps its place in a flood."""

    async def story() -> None:
        queue = Queue()
        await queue.come(4)
        await queue.come(1, patience=2.0)
        queue.clock.advance(seconds=BURST_SECONDS + MOMENT)
        await queue.leave(2)
        assert queue.told == "sssrs"

    run(story())


def test_one_place() -> None:
    """A process that works on one request at a time still does so in a flood."""

    async def story() -> None:
        queue = Queue(slots=1, most=1)
        await queue.come(3)
        assert queue.told == "srr"
        await queue.leave()
        await queue.come(2)
        assert queue.told == "srrsr"

    run(story())


def test_gone_callers() -> None:
    """A caller that goes while it waits is passed over; one that was just served hands on."""

    async def story() -> None:
        queue = Queue()
        await queue.come(6)
        gone, served = queue.callers[3], queue.callers[4]
        gone.cancel()
        await _settle()
        queue.line.leave()
        served.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await served
        await _settle()
        assert queue.callers[5].result() is True
        assert queue.line.active == SLOTS

    run(story())
