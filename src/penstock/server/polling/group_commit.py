"""Calls that arrive while others are being saved are saved together, in the next transaction.

Nothing waits on purpose: an idle server saves a call at once, a busy one saves what has gathered
meanwhile. A call has an outcome of its own; when a whole batch breaks for a reason that is not the
store's, its calls are tried one by one, so that none suffers for another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from starlette.concurrency import run_in_threadpool

from penstock.core.errors import PenstockError
from penstock.runs.external.client.work import Ask, Ending, Pulse

BATCH_MAX: Final = 100
Outcome = Pulse | Ending | Exception
"""What became of a call; a refusal is a PenstockError, anything else is a fault of ours."""
Save = Callable[[Sequence[Ask]], Sequence[Pulse | Ending | PenstockError]]


class Batches:
    """One line of calls; used from one event loop."""

    def __init__(self, save: Save) -> None:
        """`save` makes one transaction of many calls, each of another run."""
        self._save = save
        self._waiting: deque[tuple[Ask, asyncio.Future[Outcome]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, ask: Ask) -> Outcome:
        """The outcome of a call, once it is saved."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((ask, place))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        return await place

    async def _run(self) -> None:
        while self._waiting:
            batch = self._take()
            outcomes = await self._outcomes([ask for ask, _ in batch])
            for (_, place), outcome in zip(batch, outcomes, strict=True):
                if place.done():  # its caller is gone
                    continue
                if isinstance(outcome, Exception) and not isinstance(outcome, PenstockError):
                    place.set_exception(outcome)
                else:
                    place.set_result(outcome)

    def _take(self) -> list[tuple[Ask, asyncio.Future[Outcome]]]:
        """The front of the line, each run once: a second call of a run is for the next batch."""
        batch: dict[int, tuple[Ask, asyncio.Future[Outcome]]] = {}
        later = []
        while self._waiting and len(batch) < BATCH_MAX:
            entry = self._waiting.popleft()
            if entry[0].call.run_id in batch:
                later.append(entry)
            else:
                batch[entry[0].call.run_id] = entry
        self._waiting.extendleft(reversed(later))
        return list(batch.values())

    async def _outcomes(self, asks: list[Ask]) -> list[Outcome]:
        try:
            return list(await run_in_threadpool(self._save, asks))
        except PenstockError as error:
            return [error] * len(asks)
        except Exception as error:
            if len(asks) == 1:
                return [error]
            singles = [await self._outcomes([ask]) for ask in asks]
            return [single[0] for single in singles]
