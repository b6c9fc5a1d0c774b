"""JSON responses, and results that many requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread
import msgspec
from starlette.responses import Response

from penstock.core.clock import Clock

T = TypeVar("T")


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a value as a JSON response."""
    return prepared_response(msgspec.json.encode(value), status, headers)


def prepared_response(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return encoded JSON as a response."""
    return Response(body, status, dict(headers or {}), "application/json")


class SharedResult(Generic[T]):
    """A result for any number of requests, computed by at most one dedicated thread.

    Requests without a key therefore cannot occupy the threads of others. Used from one event loop.
    """

    def __init__(self, compute: Callable[[], T], clock: Clock, *, seconds: float = 0.0) -> None:
        """`seconds` is how long a result is reused; an error is not reused."""
        self._compute = compute
        self._clock = clock
        self._seconds = seconds
        self._limiter = anyio.CapacityLimiter(1)
        self._task: asyncio.Task[T] | None = None
        self._until = 0.0
        self._kept: list[T] = []

    async def get(self) -> T:
        """Return the kept result, that of the computation in progress, or that of a new one."""
        if self._kept and self._clock.monotonic() < self._until:
            return self._kept[0]
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return await asyncio.shield(self._task)

    async def _run(self) -> T:
        try:
            made = await anyio.to_thread.run_sync(self._compute, limiter=self._limiter)
            self._kept = [made]
            self._until = self._clock.monotonic() + self._seconds
            return made
        finally:
            self._task = None
