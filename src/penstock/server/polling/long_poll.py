"""Long polls: requests that wait for a result without a thread, and are not counted as active."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from penstock.server.overload.middleware import AccessRecord, RequestMiddleware
from penstock.server.polling.poll_hub import LongPolls, PollKey

T = TypeVar("T")


async def long_poll(
    request: Request, question: PollKey, seconds: float, attempt: Callable[[], T], empty: T
) -> T:
    """Attempt until the result is not `empty` or time is up; the body must have been read."""
    guard: RequestMiddleware = request.scope["penstock.guard"]
    access: AccessRecord = request.scope["penstock.access"]
    waiting: LongPolls = request.app.state.waiting
    last: list[T] = []

    async def try_once() -> list[T]:
        guard.end_wait()
        try:
            last[:] = [await run_in_threadpool(attempt)]
        finally:
            guard.begin_wait()
        return last if _content(last[0]) != _content(empty) else []

    access.is_poll = True
    gone = asyncio.ensure_future(_disconnected(request))
    guard.begin_wait()
    try:
        await waiting.until(question, seconds, try_once, gone)
    finally:
        guard.end_wait()
        gone.cancel()
    return last[0] if last else empty


def _content(value: object) -> object:
    return value.body if isinstance(value, Response) else value


async def _disconnected(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
