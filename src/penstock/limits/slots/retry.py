"""In-place retries after quota errors and conflicts.

The delay starts at 2 s and doubles up to 120 s, with jitter, for 10 minutes in total; Retry-After
is honoured. Every attempt acquires its slot again, because the capacity of an adaptive limit may
have been lowered, and every quota error is reported to the limit. Inside a run, a wait of more than
30 s snoozes the run, which frees its worker; the run's quota errors are in the limit's history, so
the backoff continues where it left off. After 10 minutes the error is raised, and the run's own
retry policy applies (QUOTA_EXCEEDED).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from penstock.core.clock import MINUTE, SECOND, Clock, Micros, SystemClock
from penstock.core.current_run import CURRENT_RUN
from penstock.core.error_classification import retry_after
from penstock.core.errors import RunSnoozed
from penstock.core.retry import backoff
from penstock.limits.slots.quota_errors import Kind, quota_kind
from penstock.limits.slots.slot import Slot, SlotRequest
from penstock.limits.store.grant import SNOOZE_US
from penstock.limits.store.limits import limit_quota_of_run

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

    def attempt(self, body: Callable[[Slot | None], object]) -> Exception | None:
        """Make one attempt; return its error if it may be retried, None if it succeeded."""
        try:
            if self.slot is None:
                self.value = body(None)
            else:
                with self.slot as held:
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
                async with self.slot as held:
                    self.value = await body(held)
        except Exception as error:
            return self._retryable(error)
        return None

    def failed(self, error: Exception) -> float:
        """Return the seconds until the next attempt.

        Raise the error if there is none, or RunSnoozed if the delay is too long to wait in place.
        """
        kind = quota_kind(error)
        self._recall(kind)
        self.tries += 1
        delay = self.policy.delay_us(self.tries, error)
        spent = int((self.policy.clock.monotonic() - self._began) * SECOND) + self._before_us
        if spent + delay > self.policy.within_us:
            raise error
        is_kept = kind == "quota" and self.slot is not None and CURRENT_RUN.get() is not None
        if is_kept and delay > SNOOZE_US:
            raise RunSnoozed(f"quota error: snoozed for {delay / SECOND:g} s", delay_us=delay)
        return delay / SECOND

    def _retryable(self, error: Exception) -> Exception:
        if quota_kind(error) is None:
            raise error
        return error

    def _recall(self, kind: Kind | None) -> None:
        """Restore the number of attempts and the elapsed time of a run that was snoozed.

        The limit's history already includes the current error.
        """
        run = CURRENT_RUN.get()
        if kind != "quota" or self.slot is None or run is None or self.tries:
            return
        broker, run_id = self.slot.broker, run.held.run_id
        limit_id = self.slot.limit_state.limit.limit_id
        count, ago = broker.store.read(lambda tx: limit_quota_of_run(tx, limit_id, run_id))
        self.tries, self._before_us = max(0, count - 1), ago


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
