"""In-place retries after quota errors and conflicts.

The delay starts at 2 s and doubles up to 120 s, with jitter, for 10 minutes in total; Retry-After
is honoured. Every attempt acquires its slot again, because the capacity of an adaptive limit may
have been lowered, and every quota error is reported to the limit. Inside a run, a wait of more than
30 s snoozes the run, which frees its worker; the number of attempts and the start of the call are
stored with the run, so the backoff continues where it left off. After 10 minutes the error is
raised, and the run's own retry policy applies (QUOTA_EXCEEDED). Every call counts for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from penstock.core.clock import MINUTE, SECOND, Clock, Micros, SystemClock
from penstock.core.current_run import CURRENT_RUN, QUOTA_CALLS
from penstock.core.error_classification import retry_after
from penstock.core.errors import RunSnoozed
from penstock.core.retry import backoff
from penstock.db.store import Tx
from penstock.limits.slots.quota_errors import quota_kind
from penstock.limits.slots.slot import Slot, SlotRequest
from penstock.limits.store.grant import SNOOZE_US
from penstock.limits.store.limits import quota_retry_drop, quota_retry_get, quota_retry_put

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
CHECK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRetry:
    """Policy for in-place retries after quota errors and conflicts.

    initial_us, multiplier, maximum_us: the backoff. within_us: total time for all attempts. random:
    returns the jitter, from 0 to 1.
    """

    initial_us: Micros = 2 * SECOND
    multiplier: float = 2.0
    maximum_us: Micros = 120 * SECOND
    within_us: Micros = 10 * MINUTE
    clock: Clock = field(default_factory=SystemClock)
    random: Callable[[], float] = field(default_factory=lambda: random.Random().random)  # noqa: S311

    def delay_us(self, tries: int, error: BaseException) -> Micros:
        """Return the delay after the given number of failed attempts."""
        delay = backoff(tries, self.initial_us, self.multiplier, self.maximum_us, self.random())
        return max(delay, retry_after(error) or 0)

    def call(self, body: Callable[[Slot | None], T], slot: SlotRequest | None = None) -> T:
        """Call `body` with a new slot for every attempt; raise the error of the last attempt."""
        attempts = _Attempts(self, slot)
        while True:
            error = attempts.attempt(body)
            if error is None:
                return cast("T", attempts.value)
            seconds = attempts.failed(error)
            self._wait(seconds)

    async def call_async(
        self, body: Callable[[Slot | None], Awaitable[T]], slot: SlotRequest | None = None
    ) -> T:
        """Like `call`, for a body that returns an awaitable."""
        attempts = _Attempts(self, slot)
        loop = asyncio.get_running_loop()
        while True:
            error = await attempts.attempt_async(body)
            if error is None:
                return cast("T", attempts.value)
            run = CURRENT_RUN.get()

            def failed(error: Exception = error, run: Any = run) -> float:
                CURRENT_RUN.set(run)
                return attempts.failed(error)

            seconds = await loop.run_in_executor(None, failed)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), seconds)

    def _wait(self, seconds: float) -> None:
        run, never = CURRENT_RUN.get(), threading.Event()
        while seconds > 0:
            if run is not None:
                run.check()
            part = seconds if run is None else min(seconds, CHECK_SECONDS)
            self.clock.wait(never, part)
            seconds -= part


class _Attempts:
    """The attempts of one call."""

    def __init__(self, policy: QuotaRetry, slot: SlotRequest | None) -> None:
        self.policy = policy
        self.slot = slot
        self.value: object = None
        self.tries = 0
        self._began = policy.clock.monotonic()
        self._before_us = 0
        self._call = "" if slot is None else _next_call(slot.options.name)
        self._calls = (*QUOTA_CALLS.get(), self._call)

    def attempt(self, body: Callable[[Slot | None], object]) -> Exception | None:
        """Make one attempt; return its error if it may be retried, None if it succeeded."""
        try:
            if self.slot is None:
                self.value = body(None)
            else:
                with self._in_progress(), self.slot as held:
                    self.value = body(held)
        except Exception as error:
            return self._retryable(error)
        return None

    async def attempt_async(
        self, body: Callable[[Slot | None], Awaitable[object]]
    ) -> Exception | None:
        """Like `attempt`, for awaitables."""
        try:
            if self.slot is None:
                self.value = await body(None)
            else:
                with self._in_progress():
                    async with self.slot as held:
                        self.value = await body(held)
        except Exception as error:
            return self._retryable(error)
        return None

    def failed(self, error: Exception) -> float:
        """Return the seconds until the next attempt.

        Raise the error if there is none, or RunSnoozed if the delay is too long to wait in place.
        """
        run = CURRENT_RUN.get()
        slot = self.slot if run is not None and quota_kind(error) == "quota" else None
        if run is not None and slot is not None and not self.tries:
            self._recall(slot, run.held.run_id)
        self.tries += 1
        delay = self.policy.delay_us(self.tries, error)
        spent = self._spent_us() + self._before_us
        if spent + delay > self.policy.within_us:
            raise error
        if run is not None and slot is not None and delay > SNOOZE_US:
            self._keep(slot, run.held.run_id, spent)
            raise RunSnoozed(f"quota error: snoozed for {delay / SECOND:g} s", delay_us=delay)
        return delay / SECOND

    def _retryable(self, error: Exception) -> Exception:
        if quota_kind(error) is None:
            raise error
        return error

    @contextlib.contextmanager
    def _in_progress(self) -> Iterator[None]:
        """Mark the call as in progress, so that a run that waits for its slot keeps its state."""
        QUOTA_CALLS.set(self._calls)
        try:
            yield
        finally:
            QUOTA_CALLS.set(self._calls[:-1])

    def _spent_us(self) -> Micros:
        return int((self.policy.clock.monotonic() - self._began) * SECOND)

    def _recall(self, slot: SlotRequest, run_id: int) -> None:
        """Restore the number of attempts and the elapsed time of a call whose run was snoozed."""
        found = slot.broker.store.read(lambda tx: quota_retry_get(tx, run_id, self._call))
        if found is not None:
            self.tries = found[0]
            self._before_us = max(0, found[1] - self._spent_us())

    def _keep(self, slot: SlotRequest, run_id: int, spent_us: Micros) -> None:
        """Store how far the call has come; other calls of the run have ended."""

        def put(tx: Tx) -> None:
            quota_retry_drop(tx, run_id, self._calls)
            quota_retry_put(tx, run_id, self._call, self.tries, spent_us)

        slot.broker.store.write(put)


def _next_call(name: str) -> str:
    """Return the id of the next call under a limit in the current run; "" outside a run."""
    run = CURRENT_RUN.get()
    if run is None:
        return ""
    key = f"{name} (calls)"
    number = run.requested_slots[key] = run.requested_slots.get(key, 0) + 1
    return f"{name}:{number}"


def retry(*, slot: SlotRequest | None = None, policy: QuotaRetry | None = None) -> Callable[[F], F]:
    """Decorate a function, sync or async, to retry quota errors and conflicts in place.

    slot: acquired for every attempt; every quota error is reported to its limit.
    """
    chosen = policy or QuotaRetry()

    def decorate(function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def retrying_async(*args: Any, **kwargs: Any) -> Any:
                return await chosen.call_async(lambda _: function(*args, **kwargs), slot)

            return cast("F", retrying_async)

        @functools.wraps(function)
        def retrying(*args: Any, **kwargs: Any) -> Any:
            return chosen.call(lambda _: function(*args, **kwargs), slot)

        return cast("F", retrying)

    return decorate
