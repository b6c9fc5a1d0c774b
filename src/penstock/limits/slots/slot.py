"""Slots as user code sees them: a context manager, a decorator, sync and async.

A `SlotRequest` says what is wanted and may be used any number of times, by many threads and tasks
at once; every use is a `Slot` of its own. Whatever ends a wait (time, cancellation, Ctrl-C), no
slot stays behind: what was granted at the last moment is given back. Inside a run, a wait of more
than 30 seconds gives the worker back: the run goes to the queue with its place in line kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from penstock.core.clock import MINUTE, SECOND
from penstock.core.current_run import PRESENT, PresentRun
from penstock.core.errors import InvalidInput, LimitTimeout, RunSnoozed, SlotLost
from penstock.core.ids import encode
from penstock.limits.rules import LimitTerms, weight_check
from penstock.limits.slots.broker import Broker
from penstock.limits.slots.limit_state import Bell, Desk, Held, State, Waiter
from penstock.limits.slots.quota_errors import quota_kind
from penstock.limits.slots.timeout_error import timeout_message
from penstock.limits.store.grant import SNOOZE_US
from penstock.limits.store.rows import Want
from penstock.limits.token_bucket import LATENESS

TIMEOUT_DEFAULT: Final = 5 * MINUTE
LATE_MAX: Final = 4
"""How many tokens of a rate are let go because they came to be used too late."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOptions:
    """What is wanted of a limit. terms: how it is made if nobody has made it before."""

    name: str
    weight: int = 1
    timeout_us: int = TIMEOUT_DEFAULT
    lease_us: int | None = None
    terms: LimitTerms = LimitTerms()  # noqa: RUF009 - frozen


class Slot:
    """A slot that is held: its fencing token, and whether it still is."""

    def __init__(self, broker: Broker, waiter: Waiter) -> None:
        self._broker = broker
        self._desk = waiter.desk
        self._held: Held | None = waiter.held
        self._is_good = True
        self._lost = Bell() if waiter.held is None else waiter.held.lost
        self.limit = waiter.desk.limit.name
        self.waited_us = waiter.wait_us
        self._sure_at = waiter.sure_at
        if waiter.held is not None:
            self.waited_us = waiter.held.lease.since_at - waiter.held.lease.asked_at

    @property
    def token(self) -> int:
        """Rises with every grant of the limit: a guarded resource refuses a lower one.

        0 for a limit that is a rate and nothing else: nobody holds that.
        """
        return 0 if self._held is None else self._held.lease.token

    @property
    def lost(self) -> threading.Event:
        """Set when the slot may be somebody else's; a holder should stop then."""
        return self._lost.event

    @property
    def is_late(self) -> bool:
        """Whether a token of a rate was waited for so long that using it now may be one too many.

        Judged where it is about to be used; a limit that is a rate and nothing else.
        """
        if self._held is not None:
            return False
        return self._broker.clock.monotonic() - self._sure_at > LATENESS / SECOND

    def check(self) -> None:
        """Raise SlotLost when the slot may be somebody else's."""
        if self._lost.is_rung:
            raise SlotLost(f"the slot of limit {self.limit} (token {self.token}) is lost")

    def quota_error(self) -> None:
        """Report that the resource refused by quota under this slot; an adaptive limit learns."""
        self._is_good = False
        lease = None if self._held is None else self._held.lease
        self._broker.report_quota(self._desk, lease, holder=_holder(PRESENT.get()))

    def release(self, *, direct: bool = True) -> None:
        """Give the slot back; late or again changes nothing."""
        if self._held is not None:
            self._broker.release(self._held, is_good=self._is_good, direct=direct)

    def give_up(self) -> None:
        """Keep the slot in the store for a run that is snoozed, and stop answering for it."""
        if self._held is not None:
            self._broker.let_go(self._held)


class SlotRequest:
    """What `limits.slot(...)` returns."""

    def __init__(self, broker: Callable[[], Broker], options: SlotOptions) -> None:
        self._find = broker
        self.options = options
        self._open: dict[object, list[Slot]] = {}

    @property
    def broker(self) -> Broker:
        """The broker that serves the caller."""
        return self._find()

    @property
    def desk(self) -> Desk:
        """The limit's desk there."""
        return self._find().desk(self.options.name, self.options.terms)

    def __call__(self, function: F) -> F:
        """Decorate a function, sync or async: every call holds a slot."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def holding_async(*args: Any, **kwargs: Any) -> Any:
                async with self:
                    return await function(*args, **kwargs)

            return cast("F", holding_async)

        @functools.wraps(function)
        def holding(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast("F", holding)

    def __enter__(self) -> Slot:
        slot = self.acquire()
        self._open.setdefault(_place(), []).append(slot)
        return slot

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        slot = self._pop()
        try:
            if error is not None and slot._is_good and quota_kind(error) == "quota":
                slot.quota_error()
        finally:
            slot.release()

    async def __aenter__(self) -> Slot:
        slot = await self.acquire_async()
        self._open.setdefault(_place(), []).append(slot)
        return slot

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        slot = self._pop()
        try:
            if error is not None and slot._is_good and quota_kind(error) == "quota":
                await asyncio.get_running_loop().run_in_executor(None, slot.quota_error)
        finally:
            slot.release(direct=False)

    def acquire(self) -> Slot:
        """Wait for a slot; LimitTimeout when none came in time. The caller releases it."""
        for _ in range(LATE_MAX):
            slot = self._acquire()
            if not slot.is_late:
                break
        return slot

    async def acquire_async(self) -> Slot:
        """Like `acquire`, without blocking the loop."""
        for _ in range(LATE_MAX):
            slot = await self._acquire_async()
            if not slot.is_late:
                break
        return slot

    def _acquire(self) -> Slot:
        bell = Bell()
        ask = _Ask(self._find(), self.options, bell.ring)
        waiter, broker = ask.waiter, ask.broker
        try:
            broker.ask(waiter, direct=True)
            while not waiter.is_over:
                seconds = ask.seconds()
                if seconds <= 0 and ask.is_up():
                    break
                event = bell.event
                broker.clock.wait(event, max(0.0, min(seconds, 1.0) if ask.run else seconds))
                event.clear()
                if ask.run is not None:
                    ask.run.check()
            slot = ask.settle()
            if ask.rate_seconds:
                broker.clock.wait(slot.lost, ask.rate_seconds)
            return slot
        except RunSnoozed:
            raise
        except BaseException:
            ask.abandon()
            raise

    async def _acquire_async(self) -> Slot:
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: so is who waited
                loop.call_soon_threadsafe(event.set)

        broker = self._find()
        if not broker.knows(self.options.name):
            # Made, or read, once per process; afterwards tasks ask in the order of their calls.
            await loop.run_in_executor(None, broker.desk, self.options.name, self.options.terms)
        ask = _Ask(broker, self.options, notify)
        waiter = ask.waiter
        try:
            broker.ask(waiter, direct=False)
            while not waiter.is_over:
                seconds = ask.seconds()
                if seconds <= 0 and await loop.run_in_executor(None, ask.is_up):
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), max(0.0, seconds))
                event.clear()
            slot = ask.settle()
            if ask.rate_seconds:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.Event().wait(), ask.rate_seconds)
            return slot
        except RunSnoozed:
            raise
        except BaseException:
            ask.abandon()
            raise

    def _pop(self) -> Slot:
        place = _place()
        slots = self._open[place]
        slot = slots.pop()
        if not slots:
            del self._open[place]
        return slot


class _Ask:
    """One wait: its time, what became of it, and how it ends."""

    def __init__(self, broker: Broker, options: SlotOptions, notify: Callable[[], None]) -> None:
        self.broker = broker
        self.options = options
        self.run = PRESENT.get()
        self.desk = broker.desk(options.name, options.terms)
        self.waiter = Waiter(self.desk, _want(broker, options, self.run), notify)
        self.began = self._here_since = broker.clock.monotonic()
        self._is_left = False

    @property
    def rate_seconds(self) -> float:
        """How long the rate makes it wait although it was granted."""
        return self.waiter.wait_us / SECOND

    def seconds(self) -> float:
        """How long to wait before the next decision."""
        left = self._left()
        if self.run is None:
            return left
        here = SNOOZE_US / SECOND - (self.broker.clock.monotonic() - self._here_since)
        return min(left, here)

    def is_up(self) -> bool:
        """Whether the wait is over: out of time, or the run is snoozed (which raises)."""
        left = self._left()
        if self.run is not None and left > 0:
            self._snooze(int(left * SECOND))
            return False
        self._is_left = self.broker.leave(self.waiter, "timeout")
        return self._is_left

    def settle(self) -> Slot:
        """The slot, or the error that ended the wait."""
        waiter, options = self.waiter, self.options
        if waiter.state is State.GRANTED:
            slot = Slot(self.broker, waiter)
            if self.run is not None and waiter.wait_us > SNOOZE_US:
                slot.give_up()
                raise _snoozed(options.name, waiter.wait_us)
            return slot
        if waiter.error is not None:
            raise waiter.error
        if waiter.reason == "weight":
            weight_check(options.weight, self.desk.limit.capacity, options.name)
        if waiter.reason == "burst":
            most = f"at most {self.desk.limit.terms.burst_now}, the burst of {options.name}"
            fix = "Ask for less, or raise the burst of the limit."
            raise InvalidInput("weight", most, options.weight, fix)
        message, detail = timeout_message(self.broker.store, waiter, options.timeout_us)
        raise LimitTimeout(message, detail=detail) from self.desk.last_error

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._is_left or self.broker.leave(self.waiter, "abandoned"):
            return
        if self.waiter.held is not None:
            self.broker.release(self.waiter.held, is_good=True, direct=False)

    def _left(self) -> float:
        """Seconds until the time-out; a run's earlier waits for the same slot count."""
        waiter = self.waiter
        before = 0
        if waiter.asked_at is not None and waiter.told_at is not None:
            before = waiter.told_at - waiter.asked_at
        spent = self.broker.clock.monotonic() - self.began
        return (self.options.timeout_us - before) / SECOND - spent

    def _snooze(self, left_us: int) -> None:
        if self.waiter.state is State.WAITING and self.broker.snooze(self.waiter, left_us):
            raise _snoozed(self.options.name, left_us)
        # Not in line yet, or just granted: go on, and try again in a while.
        self._here_since = self.broker.clock.monotonic()


def _snoozed(name: str, delay_us: int) -> RunSnoozed:
    return RunSnoozed(f"the run waits for limit {name} without its worker", delay_us=delay_us)


def _want(broker: Broker, options: SlotOptions, run: PresentRun | None) -> Want:
    # Whether there is that much of it, the store says: what is known here may be old.
    weight = weight_check(options.weight, None, options.name)
    request, run_id = broker.next_request(), None
    if run is not None:
        # The n-th slot of this limit in this run: after a snooze the same question again.
        number = run.asked[options.name] = run.asked.get(options.name, 0) + 1
        run_id = run.held.run_id
        request = f"run:{run_id}:{number}"
    return Want(
        request=request,
        holder=_holder(run),
        weight=weight,
        lease_us=options.lease_us,
        run_id=run_id,
        within_us=options.timeout_us,
        is_repeated=run is not None,
    )


def _holder(run: PresentRun | None) -> str:
    if run is not None:
        return f"{encode('run', run.held.run_id)} ({run.held.customer_id})"
    return holder_name(threading.current_thread().name)


def holder_name(thread: str) -> str:
    """Who holds, as people read it: machine, process, thread."""
    return f"{_machine()} {thread}"


@functools.cache
def _machine() -> str:
    import os  # two names that are asked for once
    import socket  # as above

    return f"{socket.gethostname()}:{os.getpid()}"


def _place() -> object:
    """The task, else the thread, that enters and leaves."""
    loop = asyncio._get_running_loop()  # unlike the other one, it does not raise without a loop
    task = None if loop is None else asyncio.current_task(loop)
    return threading.get_ident() if task is None else task
