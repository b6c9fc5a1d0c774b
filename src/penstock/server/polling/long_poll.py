"""Long polls: an answer that waits for something to tell, without holding a thread or a place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.server.overload.middleware import Access, Guard
from penstock.server.polling.poll_hub import Question, Waiting


async def polled(
    request: Request,
    question: Question,
    seconds: float,
    attempt: Callable[[], Response],
    empty: Response,
) -> Response:
    """Attempt until the answer is not `empty` or time is up; the body was read before."""
    guard: Guard = request.scope["penstock.guard"]
    access: Access = request.scope["penstock.access"]
    waiting: Waiting = request.app.state.waiting
    last: list[Response] = []

    async def look() -> list[Response]:
        guard.step_back()
        try:
            last[:] = [await run_in_threadpool(attempt)]
        finally:
            guard.step_aside()
        return last if last[0].body != empty.body else []

    access.is_poll = True
    gone = asyncio.ensure_future(_disconnected(request))
    guard.step_aside()
    try:
        await waiting.until(question, seconds, look, gone)
    finally:
        guard.step_back()
        gone.cancel()
    return last[0] if last else empty


async def _disconnected(request: Request) -> None:
    """Return once nobody hears the answer any more."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
