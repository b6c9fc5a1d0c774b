"""The pusher: posts the messages of push subscriptions, and acks or nacks them by the answer.

A step looks for push subscriptions with something ready and begins *lanes*: threads that post one
delivery after the other, each settled together with the taking of the next. How many lanes a
subscription has is learned from its endpoint's answers (`core.window`); slots are shared so that
slow endpoints never keep another from its own. Deliveries are held under the bus's lease, whose
deadline is the time-out of the request: a pusher that dies loses nothing, its deliveries lapse and
are posted again. Any number of pushers may run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.access.secrets import Secrets
from penstock.audit.telemetry import Events, PushPosted, ServiceError
from penstock.bus.push.adaptive_concurrency import Window, failed, may_take, succeeded
from penstock.bus.push.attempt import Letter, Settled, settle, stamped
from penstock.bus.push.push_config import Answered, Bearer, Poster, Verdict, retry_after, verdict_of
from penstock.bus.store.deliveries import Handed, delivery_pull
from penstock.bus.store.push_targets import PushReady, push_ready
from penstock.bus.store.topics import Subscription, subscription_read
from penstock.core.clock import SECOND, Clock, Micros
from penstock.db.store import Store, Tx

LIMIT: Final = 500
FAILING: Final = 10
"""So many failures in a row are told as an alert."""
INLINE_SLOTS: Final = 1_000
DEADLINE_SHARE: Final = 0.95
"""Of the lease: the rest is for settling before it lapses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PusherOptions:
    """`threads` bounds requests under way; 0 posts in the calling thread, one step at a time."""

    threads: int = 64
    window_max: int = 1_000
    holder: str = "pusher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushing:
    """What a step began, and when a paused endpoint may be asked again."""

    begun: int = 0
    next_at: Micros | None = None
    now: Micros = 0


@dataclass(slots=True)
class _Endpoint:
    """What this process knows of one subscription's endpoint."""

    text: str
    window: Window
    held: int = 0
    not_before: float = 0.0
    is_clean: bool = False
    """An answer was good since this process began: no alert of it is open."""


@dataclass(slots=True)
class _Slots:
    """Who holds how many slots; changed under its lock only."""

    most: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    endpoints: dict[int, _Endpoint] = field(default_factory=dict)
    wanting: frozenset[int] = frozenset()

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return self.most - sum(one.held for one in self.endpoints.values())

    def take(self, number: int, now: float) -> int:
        """Take what a subscription may have now."""
        mine = self.endpoints[number]
        if now < mine.not_before:
            return 0
        others = (self.endpoints.get(n) for n in self.wanting if n != number)
        idle = sum(1 for one in others if one is None or one.held == 0)
        took = may_take(mine.window, held=mine.held, free=self.free, idle=idle)
        mine.held += took
        return took


class Pusher:
    """Posts what push subscriptions wait for."""

    name = "pusher"

    def __init__(
        self,
        store: Store,
        post: Poster,
        *,
        bearer: Bearer,
        secrets: Secrets,
        clock: Clock,
        jitter: Callable[[], float],
        events: Events,
        options: PusherOptions | None = None,
    ) -> None:
        """A pusher that sends with `post` and signs with `bearer` and `secrets`."""
        self._store = store
        self._post = post
        self._bearer = bearer
        self._secrets = secrets
        self._clock = clock
        self._jitter = jitter
        self._events = events
        self._options = options or PusherOptions()
        self._slots = _Slots(self._options.threads or INLINE_SLOTS)
        self._ended = threading.Condition(self._slots.lock)
        self._is_closing = False
        self._after = 0

    def run_once(self) -> Pushing:
        """Begin what may be begun; with threads this does not wait for any answer."""
        begun = 0
        ready = list(self._ready())
        now = self._clock.monotonic()
        with self._slots.lock:
            self._slots.wanting = frozenset(one.subscription.subscription for one in ready)
            pauses = [
                self._endpoint(one.subscription).not_before - now
                for one in ready
            ]  # fmt: skip
            self._forget()
        for one in ready:
            begun += self._begin(one)
        waits = [pause for pause in pauses if pause > 0]
        next_at = None if not waits else int((now + min(waits)) * SECOND)
        return Pushing(begun=begun, next_at=next_at, now=int(now * SECOND))

    def drain(self, seconds: float = 25.0) -> bool:
        """Begin nothing more and wait for what is under way; True when nothing is left."""
        with self._ended:
            self._is_closing = True
            return self._ended.wait_for(
                lambda: self._slots.free == self._slots.most, timeout=seconds
            )

    def windows(self) -> dict[int, int]:
        """How many requests each subscription's endpoint is trusted with, by number."""
        with self._slots.lock:
            return {number: one.window.room for number, one in self._slots.endpoints.items()}

    # -- beginning -----------------------------------------------------------------------------

    def _ready(self) -> Iterator[PushReady]:
        """Subscriptions with something ready, from where the last step ended, round and round."""
        start, self._after = self._after, 0
        rows = self._store.read(lambda tx: push_ready(tx, after=start, limit=LIMIT))
        if len(rows) == LIMIT:
            self._after = rows[-1].subscription.subscription
        elif start:
            rows += [
                one
                for one in self._store.read(lambda tx: push_ready(tx, limit=LIMIT))
                if one.subscription.subscription <= start
            ]
        yield from rows

    def _endpoint(self, sub: Subscription) -> _Endpoint:
        """What is known of an endpoint; one that points elsewhere now is a new one."""
        assert sub.push is not None, sub.name
        known = self._slots.endpoints.get(sub.subscription)
        if known is None or known.text != sub.push:
            made = _Endpoint(
                text=sub.push,
                window=Window(size_max=self._options.window_max),
                held=0 if known is None else known.held,
            )
            known = self._slots.endpoints[sub.subscription] = made
        return known

    def _forget(self) -> None:
        """Endpoints that nothing waits for keep nothing but what their lanes hold."""
        if len(self._slots.endpoints) > 10 * LIMIT:
            kept = {
                number: one
                for number, one in self._slots.endpoints.items()
                if one.held or number in self._slots.wanting
            }
            self._slots.endpoints = kept

    def _begin(self, ready: PushReady) -> int:
        """Take deliveries of a subscription and begin a lane for each."""
        number = ready.subscription.subscription
        with self._slots.lock:
            if self._is_closing:
                return 0
            room = self._slots.take(number, self._clock.monotonic())
        handed: list[Handed] = []
        asked_at = self._clock.monotonic()  # the lease begins no earlier than this
        try:
            if room:
                handed = self._store.write(
                    lambda tx: delivery_pull(tx, ready.subscription, room, self._options.holder)
                )
        finally:
            self._release(number, room - len(handed))
        self._lanes(ready, handed, asked_at)
        return len(handed)

    def _lanes(self, ready: PushReady, handed: list[Handed], asked_at: float) -> None:
        for one in handed:
            letter = Letter(ready=ready, handed=one, taken_at=asked_at)
            if not self._options.threads:
                self._lane(letter)
                continue
            threading.Thread(
                target=self._lane, args=(letter,), name="penstock-push", daemon=True
            ).start()

    def _release(self, number: int, count: int) -> None:
        if count:
            with self._ended:
                self._slots.endpoints[number].held -= count
                self._ended.notify_all()

    # -- posting -------------------------------------------------------------------------------

    def _lane(self, letter: Letter) -> None:
        """Post a delivery, and the next one, while the endpoint is trusted with it."""
        number = letter.number
        following: Letter | None = letter
        try:
            while following is not None:
                following = self._deliver(following)
        except Exception as error:  # the lease lapses and the delivery is posted again
            told = f"{type(error).__name__}: {error}"
            self._events.emit(ServiceError(self.name, told, 0.0))
        finally:
            self._release(number, 1)

    def _deliver(self, letter: Letter) -> Letter | None:
        """Post one delivery and settle it; the next one of this lane, if there is one."""
        sub = letter.ready.subscription
        begun = self._clock.monotonic()
        left = sub.ack_deadline_us / SECOND * DEADLINE_SHARE - (begun - letter.taken_at)
        wanted = stamped(letter, bearer=self._bearer, secrets=self._secrets, now=self._clock.now())
        if isinstance(wanted, Answered):
            answered = wanted
        elif left <= 0:
            answered = Answered(failure="timeout", error="no time was left to send it")
        else:
            answered = self._post(wanted.within(left))
        asked_at = self._clock.monotonic()
        seconds = asked_at - begun
        settled, more, window = self._settle(letter, answered)
        if self._events.is_heard:
            self._events.emit(
                PushPosted(
                    subscription=sub.name,
                    customer_id=letter.ready.customer_id,
                    message_id=letter.handed.message_id,
                    attempt=letter.handed.attempt,
                    outcome=settled.outcome,
                    status=answered.status,
                    failure=answered.failure,
                    seconds=round(seconds, 6),
                    window=window,
                )
            )
        if not more:
            return None
        self._lanes(letter.ready, more[1:], asked_at)
        return Letter(ready=letter.ready, handed=more[0], taken_at=asked_at)

    def _settle(self, letter: Letter, answered: Answered) -> tuple[Settled, list[Handed], int]:
        """Learn from an answer; settle the delivery and take the next ones in one transaction."""
        number, sub = letter.number, letter.ready.subscription
        verdict = Verdict.NACK if answered.status is None else verdict_of(answered.status)
        delay = retry_after(answered.retry_after, self._clock.now())
        with self._slots.lock:
            mine = self._slots.endpoints[number]
            is_clean = mine.is_clean
            more = self._learn(number, mine, verdict, delay)
            failures, window = mine.window.failures, mine.window.room

        def body(tx: Tx) -> tuple[Settled, list[Handed]]:
            settled = settle(
                tx, letter, answered,
                verdict=verdict, delay_us=delay, jitter=self._jitter,
                is_clean=is_clean, is_failing=failures == FAILING,
            )  # fmt: skip
            if settled.wake:
                tx.after_commit(lambda: self._store.wake(sorted(settled.wake)))
            current = subscription_read(tx, number) if more else None
            if current is None or current.push != sub.push:
                return settled, []
            return settled, delivery_pull(tx, current, more, self._options.holder)

        handed: list[Handed] = []
        try:
            settled, handed = self._store.write(body)
        finally:
            # This lane's own slot is released by the lane.
            self._release(number, max(0, more - 1) - max(0, len(handed) - 1))
        return settled, handed, window

    def _learn(self, number: int, mine: _Endpoint, verdict: Verdict, delay: Micros | None) -> int:
        """Change an endpoint's window by an answer; how many deliveries to take next."""
        now = self._clock.monotonic()
        if verdict is Verdict.ACK:
            mine.window = succeeded(mine.window)
            mine.is_clean = True
        else:
            mine.window = failed(mine.window)
            mine.is_clean = False
            pause = max(mine.window.pause_us, delay or 0)
            mine.not_before = max(mine.not_before, now + pause / SECOND)
        is_over = verdict is Verdict.GONE or now < mine.not_before or self._is_closing
        if is_over or mine.held > mine.window.room or not self._options.threads:
            return 0
        return 1 + self._slots.take(number, now)
