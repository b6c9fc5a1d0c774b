"""The thread lane: as many threads as slots, started when needed, each taking chunks of runs.

A seat is one thread with its current run and the rest of its chunk. The rest stays in reach of
others: `steal` puts it back when the current run turns out long. A run that exceeds its time is
ended by the watch at once; its thread is then a zombie, which no longer counts as a slot, is
replaced, and leaves when the processor finally returns. A run's end belongs to whoever takes it out
of `steps.running`, so that it is reported once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.audit.telemetry import ServiceError
from penstock.core.current_run import PRESENT
from penstock.runs.rows import Finish, HeldRun
from penstock.worker.buffer import RunBuffer
from penstock.worker.claim_size import Pace
from penstock.worker.context import RunContext
from penstock.worker.outcome import Outcome, outcome_of_error
from penstock.worker.worker_core import WorkerSteps

PUSH_SECONDS: Final = 0.005
STUCK_SECONDS: Final = 0.050


class Seat:
    """One thread: what it executes and what it took along."""

    __slots__ = ("context", "local")

    def __init__(self) -> None:
        self.context: RunContext | None = None
        self.local: deque[HeldRun] = deque()


class ThreadLane:
    """Executes sync processors, and process ones by waiting for their child."""

    def __init__(
        self,
        steps: WorkerSteps,
        pace: Pace,
        *,
        call_process: Callable[[RunContext], Outcome],
        on_ends: Callable[[], None],
    ) -> None:
        self._steps = steps
        self._pace = pace
        self._call_process = call_process
        self._on_ends = on_ends
        self._seats: dict[int, Seat] = {}
        self._threads: set[threading.Thread] = set()
        self._zombies: set[int] = set()
        self._made = 0
        self._is_stopping = False
        self.buffer = RunBuffer(self._grow)

    @property
    def zombies(self) -> int:
        """Threads whose run was ended without them."""
        return len(self._zombies)

    def steal(self, now: float) -> None:
        """Put back what waits behind a run that takes long."""
        for seat in list(self._seats.values()):
            context = seat.context
            if context is None or not seat.local or now - context.began < STUCK_SECONDS:
                continue
            rest = _emptied(seat.local)
            if rest:
                self.buffer.put(rest, now, first=True)

    def abandon(self, context: RunContext) -> None:
        """Count the thread of an ended run as a zombie and let another take its slot."""
        for number, seat in list(self._seats.items()):
            if seat.context is context:
                rest = _emptied(seat.local)
                self._zombies.add(number)
                self._seats.pop(number, None)
                if rest:
                    self.buffer.put(rest, self._steps.clock.monotonic(), first=True)

    def clear(self) -> list[HeldRun]:
        """Take back everything that has not begun."""
        rest = self.buffer.clear()
        for seat in list(self._seats.values()):
            rest.extend(_emptied(seat.local))
        return rest

    def stop(self) -> None:
        """Begin no more runs; what a thread took along goes back to the buffer."""
        self._is_stopping = True
        self.buffer.close()

    def close(self, seconds: float) -> bool:
        """Send the threads home and wait for those that are no zombies; True when all left."""
        self.stop()
        until = self._steps.clock.monotonic() + seconds
        for thread in list(self._threads):
            thread.join(max(0.0, until - self._steps.clock.monotonic()))
        return not any(thread.is_alive() for thread in list(self._threads))

    def _grow(self) -> None:
        """Called under the buffer's lock when runs wait and no thread does."""
        if len(self._seats) >= self._steps.options.slots or self._is_stopping:
            return
        self._made += 1
        number, seat = self._made, Seat()
        self._seats[number] = seat
        thread = threading.Thread(
            target=self._work, args=(number, seat), name=f"penstock-run-{number}", daemon=True
        )
        self._threads.add(thread)
        thread.start()

    def _work(self, number: int, seat: Seat) -> None:
        try:
            while (local := self.buffer.take(self._pace.chunk)) is not None:
                seat.local = local
                self._execute(seat, local)
                if number not in self._seats:
                    break
        finally:
            self._seats.pop(number, None)
            self._zombies.discard(number)
            self._on_ends()
            self._threads.discard(threading.current_thread())

    def _execute(self, seat: Seat, local: deque[HeldRun]) -> None:
        """Run a chunk; results are handed over at its end, or every few milliseconds."""
        steps, running, session = self._steps, self._steps.running, self._steps.session
        monotonic = steps.clock.monotonic
        began = pushed = now = monotonic()
        out: list[Finish] = []
        count = 0
        while True:
            try:
                held = local.popleft()
            except IndexError:
                break
            if now >= session.safe_until or self._is_stopping:
                local.appendleft(held)
                self._pause(now, local)
                break
            try:
                context = steps.begin(held, now)
            except Exception as error:
                local.appendleft(held)
                steps.events.emit(ServiceError("worker.executor", str(error), 0.1))
                self._pause(now, local)
                break
            if context is None:
                continue
            seat.context = context
            finish = self._call(context)
            now = monotonic()
            seat.context = None
            if running.pop(held.token, None) is None:
                break  # ended by the watch, and this thread with it
            out.append(finish)
            count += 1
            if now - pushed > PUSH_SECONDS:
                pushed = now
                steps.ends.add(out)
                out = []
                self._on_ends()
        steps.ends.add(out)
        self._pace.observe(count, now - began)
        self._on_ends()

    def _call(self, context: RunContext) -> Finish:
        steps, declared = self._steps, context.declared
        if declared.runs == "process":
            return steps.conclude(context, self._call_process(context))
        body = declared.body
        assert body is not None, declared.path
        PRESENT.set(context)
        try:
            value = body(context)
        except BaseException as error:
            return steps.conclude(context, outcome_of_error(error))
        finally:
            PRESENT.set(None)
        return steps.conclude_value(context, value, steps.clock.monotonic())

    def _pause(self, now: float, local: deque[HeldRun]) -> None:
        """The lease is unsure or the store is away: put the rest back and wait a moment."""
        rest = _emptied(local)
        if self._is_stopping:
            self.buffer.put(rest, now, first=True)
            return
        self._steps.clock.sleep(0.05)
        self.buffer.put(rest, now, first=True)


def _emptied(local: deque[HeldRun]) -> list[HeldRun]:
    """Take everything out of a deque that its owner may be taking from at the same time."""
    out: list[HeldRun] = []
    while True:
        try:
            out.append(local.pop())
        except IndexError:
            out.reverse()
            return out
