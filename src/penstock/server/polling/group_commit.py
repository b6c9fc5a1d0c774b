"""Group commit: calls that arrive during a transaction are committed together in the next one.

There is no artificial delay: an idle server commits a call immediately, a busy one commits the
calls that have accumulated. Each call has its own outcome. If a batch fails with an unexpected
error, its calls are executed one by one, so that a faulty call does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from starlette.concurrency import run_in_threadpool

from penstock.core.errors import PenstockError
from penstock.runs.external.client.work import ClaimStatus, RunOutcome, WorkerCall

BATCH_MAX: Final = 100
Outcome = ClaimStatus | RunOutcome | Exception
"""Outcome of a call; a rejection is a PenstockError, any other exception is a bug."""
Save = Callable[[Sequence[WorkerCall]], Sequence[ClaimStatus | RunOutcome | PenstockError]]


class GroupCommit:
    """A queue of calls; used from one event loop."""

    def __init__(self, save: Save) -> None:
        """`save` executes calls of different runs in one transaction."""
        self._save = save
        self._waiting: deque[tuple[WorkerCall, asyncio.Future[Outcome]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def execute(self, ask: WorkerCall) -> Outcome:
        """Queue a call and return its outcome after the commit."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((ask, result))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        return await result

    async def _run(self) -> None:
        while self._waiting:
            batch = self._take()
            outcomes = await self._outcomes([ask for ask, _ in batch])
            for (_, result), outcome in zip(batch, outcomes, strict=True):
                if result.done():  # its client disconnected
                    continue
                if isinstance(outcome, Exception) and not isinstance(outcome, PenstockError):
                    result.set_exception(outcome)
                else:
                    result.set_result(outcome)

    def _take(self) -> list[tuple[WorkerCall, asyncio.Future[Outcome]]]:
        """Take the next batch; a second call of the same run is left for a later one."""
        batch: dict[int, tuple[WorkerCall, asyncio.Future[Outcome]]] = {}
        later = []
        while self._waiting and len(batch) < BATCH_MAX:
            entry = self._waiting.popleft()
            if entry[0].call.run_id in batch:
                later.append(entry)
            else:
                batch[entry[0].call.run_id] = entry
        self._waiting.extendleft(reversed(later))
        return list(batch.values())

    async def _outcomes(self, asks: list[WorkerCall]) -> list[Outcome]:
        try:
            return list(await run_in_threadpool(self._save, asks))
        except PenstockError as error:
            return [error] * len(asks)
        except Exception as error:
            if len(asks) == 1:
                return [error]
            singles = [await self._outcomes([ask]) for ask in asks]
            return [single[0] for single in singles]
