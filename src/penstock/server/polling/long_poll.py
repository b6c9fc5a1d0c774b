"""Long polls: requests that wait for a result without holding a thread or capacity."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from penstock.server.auth import KeyCache, bearer
from penstock.server.overload.admission import RequestAdmission
from penstock.server.overload.middleware import AccessRecord
from penstock.server.polling.poll_hub import LongPolls, PollKey
from penstock.server.polling.quota import PollQuota
from penstock.server.routing.call import Call

T = TypeVar("T")


async def long_poll(
    call: Call, question: PollKey, seconds: float, attempt: Callable[[], T], empty: T
) -> T:
    """Attempt until the result is not `empty` or time is up; the body must have been read.

    The key is checked again before each later attempt: a request whose key was revoked while it
    waited is rejected and receives no run or message.
    """
    request = call.request
    admission: RequestAdmission = request.scope["penstock.admission"]
    access: AccessRecord = request.scope["penstock.access"]
    keys: KeyCache = request.app.state.keyring
    waiting: LongPolls = request.app.state.waiting
    quota: PollQuota = request.app.state.poll_quota
    key = bearer(request.headers.get("authorization"))
    last: list[T] = []

    def attempt_again() -> T:
        keys.check_again(key)
        return attempt()

    async def try_once() -> list[T]:
        if last:
            last[:] = [await admission.resume(attempt_again)]
        else:
            last[:] = [await run_in_threadpool(attempt)]
            admission.leave()
        return last if _content(last[0]) != _content(empty) else []

    access.is_poll = True
    with quota.waiting(call.caller.key):
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await waiting.until(question, seconds, try_once, gone)
        finally:
            gone.cancel()
    return last[0] if last else empty


def _content(value: object) -> object:
    return value.body if isinstance(value, Response) else value


async def _disconnected(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
