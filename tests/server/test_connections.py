"""The table of connections: which one is closed at the maximum, and how many there may be."""

import asyncio
import resource
from functools import partial

import pytest

from penstock.server.overload import connections


class FakeConnection:
    """A connection without a socket."""

    is_known = False
    unsent_since: float | None = None
    unsent_bytes = 0
    is_aborted = False

    def abort(self) -> None:
        """Record the end."""
        self.is_aborted = True


def test_all_in_use() -> None:
    """Without an idle connection the new one is closed."""
    table = connections.ConnectionTable(2)
    made = [FakeConnection() for _ in range(3)]
    for one in made[:2]:
        table.add(one)
        table.begin_work(one)
    table.add(made[2])
    assert [one.is_aborted for one in made] == [False, False, True]
    table.end_work(made[0])
    table.add(newest := FakeConnection())
    assert [one.is_aborted for one in made] == [True, False, True]
    assert not newest.is_aborted
    assert table.count == 2


def test_below_the_limit_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The maximum leaves files to the services; the limit is raised where that is allowed."""
    limits = {"now": (1024, 1024)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.update(now=pair))
    assert connections.connections_max(2_000) == 512
    limits["now"] = (1024, 524_288)
    assert connections.connections_max(2_000) == 2_000
    assert limits["now"] == (2_512, 524_288)
    limits["now"] = (256, 256)
    assert connections.connections_max(2_000) == 1


def test_not_reading() -> None:
    """A client must read everything in time, whatever the state of its connection."""
    table = connections.ConnectionTable(8)
    silent, slow, busy = FakeConnection(), FakeConnection(), FakeConnection()
    for one in (silent, slow, busy):
        table.add(one)
        one.unsent_bytes = 100
    table.begin_work(busy)
    table.sweep(1000.0)
    slow.unsent_bytes = 0
    table.sweep(1000.0 + connections.SEND_SECONDS)
    slow.unsent_bytes = 100
    table.sweep(1000.1 + connections.SEND_SECONDS)
    assert [one.is_aborted for one in (silent, slow, busy)] == [True, False, True]
    assert (table.count, table.closed) == (1, 2)
    table.abort_all()
    assert slow.is_aborted


def test_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses take turns, and a request whose client is gone delays no other."""
    monkeypatch.setattr(connections, "BURST_SECONDS", 0.0)

    async def run() -> list[int]:
        queue, started = connections.PacedQueue(1000.0), list[int]()
        done = asyncio.Event()
        queue._next_at = asyncio.get_running_loop().time() + 0.01
        for number in range(6):
            queue.enter("a", number, partial(started.append, number))
        queue.enter("b", 7, partial(started.append, 7))
        queue.leave(1)
        queue.leave(1)
        queue.enter("c", 8, partial(started.append, 8))
        queue.enter("a", 9, done.set)
        assert queue.count == 8
        await done.wait()
        assert queue.count == 0
        return started

    assert asyncio.run(run()) == [0, 7, 8, 2, 3, 4, 5]
