"""Panels that are read at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from penstock.web.live.panel_threads import PanelThreads
from penstock.web.visit import Once

PATIENCE = 30.0


def test_reads_run_at_the_same_time() -> None:
    """Three reads meet: each waits for the others, so one thread alone could not end them."""
    meeting = threading.Barrier(3)

    def meet(name: str) -> Callable[[], str]:
        def read() -> str:
            meeting.wait(PATIENCE)
            return name

        return read

    assert PanelThreads(2).read([meet("a"), meet("b"), meet("c")]) == ["a", "b", "c"]


def test_a_page_does_not_wait_for_busy_threads() -> None:
    threads, is_busy, may_end = PanelThreads(1), threading.Event(), threading.Event()

    def hold() -> str:
        is_busy.set()
        may_end.wait(PATIENCE)
        return "held"

    results: list[list[str]] = []
    other = threading.Thread(target=lambda: results.append(threads.read([hold, hold])))
    other.start()
    assert is_busy.wait(PATIENCE)
    own = threading.get_ident()
    assert threads.read([threading.get_ident] * 5) == [own] * 5
    may_end.set()
    other.join(PATIENCE)
    assert results == [["held", "held"]]


def test_reads_have_the_context_of_the_caller() -> None:
    limit: ContextVar[int] = ContextVar("limit", default=0)
    limit.set(7)
    meeting = threading.Barrier(2)

    def read() -> int:
        meeting.wait(PATIENCE)
        return limit.get()

    assert PanelThreads(1).read([read, read]) == [7, 7]


def test_the_first_error_is_raised_after_all_have_ended() -> None:
    ended: list[str] = []

    def failing(name: str) -> Callable[[], None]:
        def read() -> None:
            ended.append(name)
            raise ValueError(name)

        return read

    with pytest.raises(ValueError, match="a"):
        PanelThreads(2).read([failing("a"), failing("b"), lambda: ended.append("c")])
    assert sorted(ended) == ["a", "b", "c"]


def test_no_reads() -> None:
    assert PanelThreads().read([]) == []


def test_panels_that_need_the_same_read_at_once_share_it() -> None:
    calls: list[int] = []
    meeting = threading.Barrier(2)

    def count() -> int:
        calls.append(1)
        return len(calls)

    shared = Once(count)

    def read() -> int:
        meeting.wait(PATIENCE)
        return shared()

    assert PanelThreads(1).read([read, read]) == [1, 1]
    assert calls == [1]
