"""Slots for user code: context managers and decorators, sync and async.

A `SlotRequest` can be used any number of times, by many threads and tasks concurrently; every use
is a separate `Slot`. However a wait ends (timeout, cancellation, Ctrl-C), no slot is leaked: one
that was granted at the last moment is released. Inside a run, a wait of more than 30 seconds
snoozes the run: it returns to the run queue, which frees its worker, and keeps its ticket.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from penstock.audit.telemetry import SlotReleased, SlotTaken, log_event
from penstock.core.clock import MINUTE, SECOND
from penstock.core.current_run import CURRENT_RUN, QUOTA_CALLS, CurrentRun
from penstock.core.errors import InvalidInput, LimitTimeout, RunSnoozed, SlotLost
from penstock.core.ids import encode
from penstock.limits.rules import LimitSettings, check_weight
from penstock.limits.slots.broker import Broker
from penstock.limits.slots.limit_state import (
    HeldSlot,
    LazyEvent,
    LimitState,
    SlotWaiter,
    WaiterState,
)
from penstock.limits.slots.quota_errors import quota_kind
from penstock.limits.slots.timeout_error import timeout_message
from penstock.limits.store.grant import SNOOZE_US
from penstock.limits.store.rows import LeaseRequest
from penstock.limits.token_bucket import LATENESS_MAX

_log = logging.getLogger("penstock.limits")
TIMEOUT_DEFAULT: Final = 5 * MINUTE
LOGGED_WAIT_S: Final = 1.0
"""Minimum wait that is logged at INFO; shorter waits are logged at DEBUG."""
LATE_MAX: Final = 4
"""Maximum number of attempts to get a rate token early enough to use it."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOptions:
    """Options of a slot request. terms: configuration of the limit if it does not exist yet."""

    name: str
    weight: int = 1
    timeout_us: int = TIMEOUT_DEFAULT
    lease_us: int | None = None
    terms: LimitSettings = LimitSettings()  # noqa: RUF009 - frozen


class Slot:
    """A held slot: its fencing token, and whether it has been lost."""

    def __init__(self, broker: Broker, waiter: SlotWaiter) -> None:
        self._broker = broker
        self._state = waiter.limit_state
        self._held: HeldSlot | None = waiter.held
        self._is_good = True
        self._lost = LazyEvent() if waiter.held is None else waiter.held.lost
        self.limit = waiter.limit_state.limit.name
        self.waited_us = waiter.wait_us
        self._sure_at = waiter.token_at
        if waiter.held is not None:
            self.waited_us = waiter.held.lease.since_at - waiter.held.lease.requested_at

    @property
    def token(self) -> int:
        """Fencing token. It increases with every grant of the limit, so that the protected resource
        can reject requests with a lower one. 0 for a limit that is only a rate, which is not held.
        """
        return 0 if self._held is None else self._held.lease.token

    @property
    def lost(self) -> threading.Event:
        """Event that is set once another holder may have the slot; stop the work then."""
        return self._lost.event

    @property
    def is_late(self) -> bool:
        """Whether the token of a rate limit is so late that using it may exceed the rate.

        Evaluated just before use. Always False for a limit with a capacity.
        """
        if self._held is not None:
            return False
        return self._broker.clock.monotonic() - self._sure_at > LATENESS_MAX / SECOND

    def check(self) -> None:
        """Raise SlotLost if another holder may have the slot."""
        if self._lost.is_set:
            raise SlotLost(f"the slot of limit {self.limit} (token {self.token}) is lost")

    def quota_error(self) -> None:
        """Report a quota error of the resource under this slot; it lowers an adaptive limit."""
        self._is_good = False
        lease = None if self._held is None else self._held.lease
        self._broker.report_quota(self._state, lease, holder=_holder(CURRENT_RUN.get()))

    def release(self, *, direct: bool = True) -> None:
        """Release the slot. Releasing a lost or released slot has no effect."""
        if self._held is not None:
            if _log.isEnabledFor(logging.DEBUG):
                lease = self._held.lease
                text = f"slot of limit {self.limit} released (token {self.token})"
                event = SlotReleased(self.limit, lease.holder, lease.token)
                log_event(_log, logging.DEBUG, text, event)
            self._broker.release(self._held, is_good=self._is_good, direct=direct)

    def suspend(self) -> None:
        """Stop renewing the slot but keep it in the store, for a run that is snoozed."""
        if self._held is not None:
            self._broker.stop_renewing(self._held)


class SlotRequest:
    """A request for slots of a limit; returned by `limits.slot(...)` and `limits.rate(...)`."""

    def __init__(self, broker: Callable[[], Broker], options: SlotOptions) -> None:
        self._find = broker
        self.options = options
        self._open: dict[object, list[Slot]] = {}

    @property
    def broker(self) -> Broker:
        """The broker of the current client, run or settings."""
        return self._find()

    @property
    def limit_state(self) -> LimitState:
        """The state of the limit in that broker."""
        return self._find().limit_state(self.options.name, self.options.terms)

    def __call__(self, function: F) -> F:
        """Decorate a function, sync or async, so that every call holds a slot."""
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
        self._open.setdefault(_caller(), []).append(slot)
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
        self._open.setdefault(_caller(), []).append(slot)
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
        """Wait for a slot, which the caller must release. Raise LimitTimeout after the timeout."""
        for _ in range(LATE_MAX):
            slot = self._acquire()
            if not slot.is_late:
                break
        return slot

    async def acquire_async(self) -> Slot:
        """Like `acquire`, without blocking the event loop."""
        for _ in range(LATE_MAX):
            slot = await self._acquire_async()
            if not slot.is_late:
                break
        return slot

    def _acquire(self) -> Slot:
        changed = LazyEvent()
        wait = _Wait(self._find(), self.options, changed.set)
        waiter, broker = wait.waiter, wait.broker
        try:
            broker.request(waiter, direct=True)
            while not waiter.is_finished:
                seconds = wait.seconds()
                if seconds <= 0 and wait.is_up():
                    break
                event = changed.event
                broker.clock.wait(event, max(0.0, min(seconds, 1.0) if wait.run else seconds))
                event.clear()
                if wait.run is not None:
                    wait.run.check()
            slot = wait.result()
            if wait.rate_seconds:
                broker.clock.wait(slot.lost, wait.rate_seconds)
            return slot
        except RunSnoozed:
            raise
        except BaseException:
            wait.abandon()
            raise

    async def _acquire_async(self) -> Slot:
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
                loop.call_soon_threadsafe(event.set)

        broker = self._find()
        if not broker.is_loaded(self.options.name):
            # Loaded once per process; afterwards tasks are queued in the order of their calls.
            await loop.run_in_executor(
                None, broker.limit_state, self.options.name, self.options.terms
            )
        wait = _Wait(broker, self.options, notify)
        waiter = wait.waiter
        try:
            broker.request(waiter, direct=False)
            while not waiter.is_finished:
                seconds = wait.seconds()
                if seconds <= 0 and await loop.run_in_executor(None, wait.is_up):
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), max(0.0, seconds))
                event.clear()
            slot = wait.result()
            if wait.rate_seconds:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.Event().wait(), wait.rate_seconds)
            return slot
        except RunSnoozed:
            raise
        except BaseException:
            wait.abandon()
            raise

    def _pop(self) -> Slot:
        caller = _caller()
        slots = self._open[caller]
        slot = slots.pop()
        if not slots:
            del self._open[caller]
        return slot


class _Wait:
    """One wait for a slot: its timeout and its result."""

    def __init__(self, broker: Broker, options: SlotOptions, notify: Callable[[], None]) -> None:
        self.broker = broker
        self.options = options
        self.run, self.calls = CURRENT_RUN.get(), QUOTA_CALLS.get()
        self.state = broker.limit_state(options.name, options.terms)
        self.waiter = SlotWaiter(self.state, _want(broker, options, self.run), notify)
        self.began = self._snooze_from = broker.clock.monotonic()
        self._is_left = False

    @property
    def rate_seconds(self) -> float:
        """Seconds that the rate delays a slot that has been granted."""
        return self.waiter.wait_us / SECOND

    def seconds(self) -> float:
        """Return the seconds until the timeout, or until the run is snoozed if that is earlier."""
        left = self._left()
        if self.run is None:
            return left
        until_snooze = SNOOZE_US / SECOND - (self.broker.clock.monotonic() - self._snooze_from)
        return min(left, until_snooze)

    def is_up(self) -> bool:
        """Return whether the wait has timed out. Raise RunSnoozed if the run is snoozed instead."""
        left = self._left()
        if self.run is not None and left > 0:
            self._snooze(int(left * SECOND))
            return False
        self._is_left = self.broker.leave(self.waiter, "timeout")
        return self._is_left

    def result(self) -> Slot:
        """Return the slot, or raise the error that ended the wait."""
        waiter, options = self.waiter, self.options
        if waiter.state is WaiterState.GRANTED:
            slot = Slot(self.broker, waiter)
            if self.run is not None and waiter.wait_us > SNOOZE_US:
                slot.suspend()
                raise _snoozed(options.name, waiter.wait_us)
            waited = self.broker.clock.monotonic() - self.began
            level = logging.INFO if waited >= LOGGED_WAIT_S else logging.DEBUG
            if _log.isEnabledFor(level):
                name, token = options.name, slot.token
                text = f"slot of limit {name} taken after {waited:.1f} s (token {token})"
                event = SlotTaken(name, _holder(self.run), token, int(waited * SECOND))
                log_event(_log, level, text, event)
            return slot
        if waiter.error is not None:
            raise waiter.error
        if waiter.reason == "weight":
            check_weight(options.weight, self.state.limit.capacity, options.name)
        if waiter.reason == "burst":
            most = f"at most {self.state.limit.terms.burst_now}, the burst of {options.name}"
            fix = "Request less, or raise the burst of the limit."
            raise InvalidInput("weight", most, options.weight, fix)
        message, detail = timeout_message(self.broker.store, waiter, options.timeout_us)
        _log.warning("no slot: %s", message)
        raise LimitTimeout(message, detail=detail) from self.state.last_error

    def abandon(self) -> None:
        """Withdraw the request, and release the slot if it was granted."""
        if self._is_left or self.broker.leave(self.waiter, "abandoned"):
            return
        if self.waiter.held is not None:
            self.broker.release(self.waiter.held, is_good=True, direct=False)

    def _left(self) -> float:
        """Return the seconds until the timeout; a run's earlier waits for the same slot count."""
        waiter = self.waiter
        before = 0
        if waiter.asked_at is not None and waiter.ticket_read_at is not None:
            before = waiter.ticket_read_at - waiter.asked_at
        spent = self.broker.clock.monotonic() - self.began
        return (self.options.timeout_us - before) / SECOND - spent

    def _snooze(self, left_us: int) -> None:
        if self.waiter.state is WaiterState.WAITING and self.broker.snooze(
            self.waiter, left_us, self.calls
        ):
            raise _snoozed(self.options.name, left_us)
        # No ticket yet, or just granted: continue, and try again later.
        self._snooze_from = self.broker.clock.monotonic()


def _snoozed(name: str, delay_us: int) -> RunSnoozed:
    _log.info("the run returns to the queue until limit %s has a slot for it", name)
    return RunSnoozed(f"the run is snoozed until limit {name} is free", delay_us=delay_us)


def _want(broker: Broker, options: SlotOptions, run: CurrentRun | None) -> LeaseRequest:
    # The store checks the weight against the capacity: the capacity known here may be outdated.
    weight = check_weight(options.weight, None, options.name)
    request, run_id = broker.next_request(), None
    if run is not None:
        # The n-th slot of this limit in this run, so that the id is the same after a snooze.
        number = run.requested_slots[options.name] = run.requested_slots.get(options.name, 0) + 1
        run_id = run.held.run_id
        request = f"run:{run_id}:{number}"
    return LeaseRequest(
        request=request,
        holder=_holder(run),
        weight=weight,
        lease_us=options.lease_us,
        run_id=run_id,
        max_wait_us=options.timeout_us,
        is_repeated=run is not None,
    )


def _holder(run: CurrentRun | None) -> str:
    if run is not None:
        return f"{encode('run', run.held.run_id)} ({run.held.customer_id})"
    return holder_name(threading.current_thread().name)


def holder_name(thread: str) -> str:
    """Return the name of a holder as shown to users: machine, process, thread."""
    return f"{_machine()} {thread}"


@functools.cache
def _machine() -> str:
    import os  # only needed once
    import socket  # as above

    return f"{socket.gethostname()}:{os.getpid()}"


def _caller() -> object:
    """Return the current task, or the current thread if there is none."""
    loop = asyncio._get_running_loop()  # unlike get_running_loop, does not raise without a loop
    task = None if loop is None else asyncio.current_task(loop)
    return threading.get_ident() if task is None else task
