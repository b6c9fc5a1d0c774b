"""Trying again in place when the resource says that it was too much at once.

2 s, doubled up to 120 s, for 10 minutes in all, jittered; a Retry-After is honoured. Every try
takes the slot anew, because an adaptive limit may have lost room for it, and every quota error is
reported to the limit. Inside a run, a wait of more than 30 s gives the worker back; how often the
run met the quota is in the limit's history, so that it goes on where it was. What is not over by
then is the run's own retry policy's business (QUOTA_EXCEEDED).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from penstock.core.clock import MINUTE, SECOND, Clock, Micros, SystemClock
from penstock.core.current_run import PRESENT
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
    """How quota errors and conflicts are retried in place; random: draws the jitter, 0 to 1."""

    initial_us: Micros = 2 * SECOND
    multiplier: float = 2.0
    maximum_us: Micros = 120 * SECOND
    within_us: Micros = 10 * MINUTE
    clock: Clock = field(default_factory=SystemClock)
    random: Callable[[], float] = field(default_factory=lambda: random.Random().random)  # noqa: S311

    def delay_us(self, tries: int, error: BaseException) -> Micros:
        """How long to wait after the given number of failed tries."""
        delay = backoff(tries, self.initial_us, self.multiplier, self.maximum_us, self.random())
        return max(delay, retry_after(error) or 0)

    def call(self, body: Callable[[Slot | None], T], slot: SlotRequest | None = None) -> T:
        """Call `body` with a slot of its own for every try; raises what the last try raised."""
        trial = _Trial(self, slot)
        while True:
            error = trial.attempt(body)
            if error is None:
                return cast("T", trial.value)
            seconds = trial.failed(error)
            self._wait(seconds)

    async def call_async(
        self, body: Callable[[Slot | None], Any], slot: SlotRequest | None = None
    ) -> Any:
        """Like `call`, for a body that returns an awaitable."""
        trial = _Trial(self, slot)
        loop = asyncio.get_running_loop()
        while True:
            error = await trial.attempt_async(body)
            if error is None:
                return trial.value
            run = PRESENT.get()

            def failed(error: Exception = error, run: Any = run) -> float:
                PRESENT.set(run)
                return trial.failed(error)

            seconds = await loop.run_in_executor(None, failed)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), seconds)

    def _wait(self, seconds: float) -> None:
        run, never = PRESENT.get(), threading.Event()
        while seconds > 0:
            if run is not None:
                run.check()
            part = seconds if run is None else min(seconds, CHECK_SECONDS)
            self.clock.wait(never, part)
            seconds -= part


class _Trial:
    """The tries of one call."""

    def __init__(self, policy: QuotaRetry, slot: SlotRequest | None) -> None:
        self.policy = policy
        self.slot = slot
        self.value: object = None
        self.tries = 0
        self._began = policy.clock.monotonic()
        self._before_us = 0

    def attempt(self, body: Callable[[Slot | None], Any]) -> Exception | None:
        """One try; what it raised, if it may be tried again."""
        try:
            if self.slot is None:
                self.value = body(None)
            else:
                with self.slot as held:
                    self.value = body(held)
        except Exception as error:
            return self._retryable(error)
        return None

    async def attempt_async(self, body: Callable[[Slot | None], Any]) -> Exception | None:
        """The same for awaitables."""
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
        """Seconds to wait before the next try; raises when there is none, or none here."""
        kind = quota_kind(error)
        self._recall(kind)
        self.tries += 1
        delay = self.policy.delay_us(self.tries, error)
        spent = int((self.policy.clock.monotonic() - self._began) * SECOND) + self._before_us
        if spent + delay > self.policy.within_us:
            raise error
        is_kept = kind == "quota" and self.slot is not None and PRESENT.get() is not None
        if is_kept and delay > SNOOZE_US:
            raise RunSnoozed(f"the run waits {delay / SECOND:g} s for a quota", delay_us=delay)
        return delay / SECOND

    def _retryable(self, error: Exception) -> Exception:
        if quota_kind(error) is None:
            raise error
        return error

    def _recall(self, kind: Kind | None) -> None:
        """A run that was snoozed goes on counting where it was; this error is noted already."""
        run = PRESENT.get()
        if kind != "quota" or self.slot is None or run is None or self.tries:
            return
        broker, run_id = self.slot.broker, run.held.run_id
        limit_id = self.slot.desk.limit.limit_id
        count, ago = broker.store.read(lambda tx: limit_quota_of_run(tx, limit_id, run_id))
        self.tries, self._before_us = max(0, count - 1), ago


def retry(*, slot: SlotRequest | None = None, policy: QuotaRetry | None = None) -> Callable[[F], F]:
    """Decorate a function, sync or async: quota errors and conflicts are retried in place.

    slot: taken anew for every try, and told of every quota error.
    """
    chosen = policy or QuotaRetry()

    def decorate(function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def trying_async(*args: Any, **kwargs: Any) -> Any:
                return await chosen.call_async(lambda _: function(*args, **kwargs), slot)

            return cast("F", trying_async)

        @functools.wraps(function)
        def trying(*args: Any, **kwargs: Any) -> Any:
            return chosen.call(lambda _: function(*args, **kwargs), slot)

        return cast("F", trying)

    return decorate
