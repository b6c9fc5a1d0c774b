"""The pusher: posts messages of push subscriptions, and acks or nacks them based on the response.

A step finds push subscriptions with ready deliveries and starts threads that each post one
delivery after another; settling one and leasing the next is one transaction. The number of threads
per subscription is learned from its endpoint's responses (`bus.push.adaptive_concurrency`); the
requests in flight are shared so that slow endpoints never starve another. Deliveries are held under
the bus's lease, whose deadline is the timeout of the request: if a pusher dies, its deliveries
lapse and are posted again. Any number of pushers may run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.access.secrets import Secrets
from penstock.audit.telemetry import Events, PushPosted, ServiceError
from penstock.bus.message import CORRELATION
from penstock.bus.push.adaptive_concurrency import ConcurrencyWindow, failed, succeeded
from penstock.bus.push.attempt import PushAttempt, Settled, settle_push, sign_request
from penstock.bus.push.in_flight import EndpointState, RequestsInFlight
from penstock.bus.push.push_config import (
    PushResponse,
    PushSender,
    PushVerdict,
    TokenSigner,
    retry_after,
    slows_endpoint,
    verdict_of,
)
from penstock.bus.store.deliveries import LeasedDelivery, delivery_pull
from penstock.bus.store.push_targets import PushReady, push_ready
from penstock.bus.store.topics import SubscriptionRow, subscription_get_by_key
from penstock.core.clock import SECOND, Clock, Micros
from penstock.core.errors import StoreError
from penstock.db.isolation import interleaved
from penstock.db.store import Transactions, Tx

LIMIT: Final = 500
FAILING: Final = 10
"""Number of consecutive messages without an ack after which an alert is opened."""
INLINE_REQUESTS: Final = 1_000
DEADLINE_SHARE: Final = 0.95
"""Share of the lease available to the request; the rest is for settling before it lapses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PusherOptions:
    """Options of the pusher. `threads` is the maximum number of requests in flight; 0 posts in the
    calling thread.
    """

    threads: int = 64
    concurrency_max: int = 1_000
    holder: str = "pusher"
    trace_share: float = 1.0
    """Fraction of traces that are exported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushCounts:
    """Counts of one step, and when the next paused endpoint may be tried again."""

    started: int = 0
    next_at: Micros | None = None
    now: Micros = 0


class Pusher:
    """Service that posts the ready deliveries of push subscriptions."""

    name = "pusher"

    def __init__(
        self,
        store: Transactions,
        post: PushSender,
        *,
        bearer: TokenSigner,
        secrets: Secrets,
        clock: Clock,
        jitter: Callable[[], float],
        events: Events,
        options: PusherOptions | None = None,
    ) -> None:
        """Send requests with `post`; authenticate them with `bearer` and `secrets`."""
        self._store = store
        self._post = post
        self._bearer = bearer
        self._secrets = secrets
        self._clock = clock
        self._jitter = jitter
        self._events = events
        self._options = options or PusherOptions()
        self._in_flight = RequestsInFlight(self._options.threads or INLINE_REQUESTS)
        self._ended = threading.Condition(self._in_flight.lock)
        self._is_closing = False
        self._after = 0

    def run_once(self) -> PushCounts:
        """Start posting ready deliveries; with threads, return without waiting for responses."""
        begun = 0
        ready = list(self._ready())
        now = self._clock.monotonic()
        with self._in_flight.lock:
            self._in_flight.ready = frozenset(one.subscription.subscription_key for one in ready)
            pauses = [self._endpoint(one.subscription).not_before - now for one in ready]
            self._forget()
        for one in interleaved(ready, lambda one: one.subscription.customer_key):
            try:
                begun += self._begin(one)
            except StoreError:
                raise
            except Exception as error:  # only this subscription fails; continue with the others
                self._report(error)
        waits = [pause for pause in pauses if pause > 0]
        next_at = None if not waits else int((now + min(waits)) * SECOND)
        return PushCounts(started=begun, next_at=next_at, now=int(now * SECOND))

    def drain(self, seconds: float = 25.0) -> bool:
        """Stop starting work and wait for requests in flight; return True when none is left."""
        with self._ended:
            self._is_closing = True
            return self._ended.wait_for(
                lambda: self._in_flight.free == self._in_flight.most, timeout=seconds
            )

    def endpoint_concurrency(self) -> dict[int, int]:
        """Return the learned maximum number of concurrent requests, by subscription key."""
        with self._in_flight.lock:
            return {
                number: one.window.max_in_flight
                for number, one in self._in_flight.endpoints.items()
            }

    # -- starting ------------------------------------------------------------------------------

    def _ready(self) -> Iterator[PushReady]:
        """Yield subscriptions with ready deliveries, round-robin from where the last step ended."""
        start, self._after = self._after, 0
        rows = self._store.read(lambda tx: push_ready(tx, after=start, limit=LIMIT))
        if len(rows) == LIMIT:
            self._after = rows[-1].subscription.subscription_key
        elif start:
            rows += [
                one
                for one in self._store.read(lambda tx: push_ready(tx, limit=LIMIT))
                if one.subscription.subscription_key <= start
            ]
        yield from rows

    def _endpoint(self, sub: SubscriptionRow) -> EndpointState:
        """Return an endpoint's state; a changed push configuration starts with a new window."""
        assert sub.push is not None, sub.name
        known = self._in_flight.endpoints.get(sub.subscription_key)
        if known is None or known.text != sub.push:
            made = EndpointState(
                text=sub.push,
                window=ConcurrencyWindow(size_max=self._options.concurrency_max),
                owner=sub.customer_key,
                held=0 if known is None else known.held,
            )
            known = self._in_flight.endpoints[sub.subscription_key] = made
        return known

    def _forget(self) -> None:
        """Once there are many endpoints, drop those with nothing ready and nothing in flight."""
        if len(self._in_flight.endpoints) > 10 * LIMIT:
            kept = {
                number: one
                for number, one in self._in_flight.endpoints.items()
                if one.held or number in self._in_flight.ready
            }
            self._in_flight.endpoints = kept

    def _begin(self, ready: PushReady) -> int:
        """Lease deliveries of a subscription and start posting them."""
        number = ready.subscription.subscription_key
        with self._in_flight.lock:
            if self._is_closing:
                return 0
            reserved = self._in_flight.take(number, self._clock.monotonic())
        leased: list[LeasedDelivery] = []
        leased_at = self._clock.monotonic()  # the lease starts no earlier than this
        try:
            if reserved:
                leased = self._store.write(
                    lambda tx: delivery_pull(tx, ready.subscription, reserved, self._options.holder)
                )
        finally:
            self._release(number, reserved - len(leased))
        self._start(ready, leased, leased_at)
        return len(leased)

    def _start(self, ready: PushReady, leased: list[LeasedDelivery], leased_at: float) -> None:
        for one in leased:
            attempt = self._attempt(ready, one, leased_at)
            if not self._options.threads:
                self._post_loop(attempt)
                continue
            threading.Thread(
                target=self._post_loop, args=(attempt,), name="penstock-push", daemon=True
            ).start()

    def _attempt(self, ready: PushReady, leased: LeasedDelivery, leased_at: float) -> PushAttempt:
        share = self._options.trace_share
        return PushAttempt(ready=ready, leased=leased, leased_at=leased_at, share=share)

    def _release(self, number: int, count: int) -> None:
        if count:
            with self._ended:
                self._in_flight.endpoints[number].held -= count
                self._ended.notify_all()

    # -- posting -------------------------------------------------------------------------------

    def _post_loop(self, attempt: PushAttempt) -> None:
        """Post a delivery, then further ones as long as the window allows."""
        following: PushAttempt | None = attempt
        try:
            while following is not None:
                following = self._deliver(following)
        except Exception as error:  # the lease lapses and the delivery is posted again
            self._report(error)
        finally:
            self._release(attempt.subscription_key, 1)

    def _report(self, error: Exception) -> None:
        self._events.emit(ServiceError(self.name, f"{type(error).__name__}: {error}", 0.0))

    def _deliver(self, attempt: PushAttempt) -> PushAttempt | None:
        """Post and settle one delivery; return the next one for this thread, or None."""
        sub = attempt.ready.subscription
        begun = self._clock.monotonic()
        left = sub.ack_deadline_us / SECOND * DEADLINE_SHARE - (begun - attempt.leased_at)
        request = sign_request(
            attempt, bearer=self._bearer, secrets=self._secrets, now=self._clock.now()
        )
        if isinstance(request, PushResponse):
            response = request
        elif left <= 0:
            response = PushResponse(failure="timeout", error="the lease has no time left")
        else:
            response = self._post(request.with_timeout(left))
        leased_at = self._clock.monotonic()
        seconds = leased_at - begun
        settled, more, window = self._settle(attempt, response)
        if self._events.wants(PushPosted):
            self._events.emit(_posted(attempt, response, settled, seconds, window))
        if not more:
            return None
        self._start(attempt.ready, more[1:], leased_at)
        return self._attempt(attempt.ready, more[0], leased_at)

    def _settle(
        self, attempt: PushAttempt, response: PushResponse
    ) -> tuple[Settled, list[LeasedDelivery], int]:
        """Update the window; settle the delivery and lease the next ones in one transaction."""
        number, sub = attempt.subscription_key, attempt.ready.subscription
        verdict = _verdict(response)
        delay = retry_after(response.retry_after, self._clock.now())
        with self._in_flight.lock:
            endpoint = self._in_flight.endpoints[number]
            is_clean = endpoint.is_clean
            more = self._learn(number, endpoint, response, delay)
            unacked, window = endpoint.unacked, endpoint.window.max_in_flight

        def body(tx: Tx) -> tuple[Settled, list[LeasedDelivery]]:
            settled = settle_push(
                tx, attempt, response,
                verdict=verdict, delay_us=delay, jitter=self._jitter,
                is_clean=is_clean, is_failing=unacked == FAILING,
            )  # fmt: skip
            if settled.wake:
                tx.after_commit(lambda: self._store.wake(sorted(settled.wake)))
            current = subscription_get_by_key(tx, number) if more else None
            if current is None or current.push != sub.push:
                return settled, []
            return settled, delivery_pull(tx, current, more, self._options.holder)

        leased: list[LeasedDelivery] = []
        try:
            settled, leased = self._store.write(body)
        finally:
            # `_post_loop` releases the request of its own thread.
            self._release(number, max(0, more - 1) - max(0, len(leased) - 1))
        return settled, leased, window

    def _learn(
        self, number: int, endpoint: EndpointState, response: PushResponse, delay: Micros | None
    ) -> int:
        """Update an endpoint's window by a response; return how many deliveries to lease next.

        A message that the endpoint refuses is a response like any other: it never slows the
        subscription down, and a Retry-After then delays that message only.
        """
        now = self._clock.monotonic()
        verdict = _verdict(response)
        endpoint.unacked = 0 if verdict is PushVerdict.ACK else endpoint.unacked + 1
        endpoint.is_clean = verdict is PushVerdict.ACK
        if slows_endpoint(response.status):
            endpoint.window = failed(endpoint.window)
            pause = max(endpoint.window.pause_us, delay or 0)
            endpoint.not_before = max(endpoint.not_before, now + pause / SECOND)
        else:
            endpoint.window = succeeded(endpoint.window)
        is_over = verdict is PushVerdict.GONE or now < endpoint.not_before or self._is_closing
        if is_over or endpoint.held > endpoint.window.max_in_flight or not self._options.threads:
            return 0
        return 1 + self._in_flight.take(number, now)


def _verdict(response: PushResponse) -> PushVerdict:
    return PushVerdict.NACK if response.status is None else verdict_of(response.status)


def _posted(
    attempt: PushAttempt, response: PushResponse, settled: Settled, seconds: float, window: int
) -> PushPosted:
    leased = attempt.leased
    return PushPosted(
        subscription=attempt.ready.subscription.name,
        customer_id=attempt.ready.customer_id,
        message_id=leased.message_id,
        attempt=leased.attempt,
        outcome=settled.outcome,
        status=response.status,
        failure=response.failure,
        seconds=round(seconds, 6),
        window=window,
        traceparent=attempt.context.header,
        parent=attempt.trace[1],
        correlation_id=leased.attributes.get(CORRELATION, ""),
    )
