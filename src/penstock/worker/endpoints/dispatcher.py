"""The dispatcher: sends the runs of HTTP processors to their endpoints.

A step finds endpoints with ready runs and claims as many as may be in flight; threads send them,
and one thread stores their outcomes in batches, claiming the next runs in the same transaction.
The number of concurrent requests per endpoint is learned from its responses, and the requests of a
process are shared so that slow endpoints never starve others (`worker.endpoints.windows`). A run
that its endpoint accepted with 202 uses no resources here: it is held by its lease until the
endpoint reports. Any number of dispatchers may run; one that dies loses no run, because the lease
expires.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.access.run_credentials import RUN_SECRET
from penstock.access.store.keys import secret_ensure
from penstock.audit.telemetry import Events, RequestSent, ServiceError
from penstock.core.clock import SECOND, Clock, Micros
from penstock.core.errors import StoreError
from penstock.core.ids import new_secret
from penstock.core.retry import ErrorType
from penstock.db.store import Transactions
from penstock.runs.external.client.holder import FailureReport
from penstock.worker.endpoints.claims import EndpointRow, endpoint_ready
from penstock.worker.endpoints.exchange import Exchanged, Exchanger
from penstock.worker.endpoints.request import CallbackBase, OutgoingRun
from penstock.worker.endpoints.settle import ReplyStore, Settlement, Wanted
from penstock.worker.endpoints.windows import Claims, EndpointWindows

LIMIT: Final = 500
INLINE_REQUESTS: Final = 1_000
BATCH_MAX: Final = 500
FAIR_CLOCK_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 0.5
"""Pause after the store was unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherOptions:
    """Options of the dispatcher. `threads` is the maximum number of requests in flight; 0 sends in
    the calling thread.
    """

    threads: int = 128
    concurrency_max: int = 1_000
    holder: str = "dispatcher"
    callback_url: str = ""
    """URL at which endpoints reach the API; empty if they cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchCounts:
    """Counts of one step, and when the next paused endpoint may be tried again."""

    started: int = 0
    next_at: Micros | None = None
    now: Micros = 0


class Dispatcher:
    """Service that sends the ready runs of HTTP processors."""

    name = "dispatcher"

    def __init__(
        self,
        store: Transactions,
        exchanger: Exchanger,
        *,
        clock: Clock,
        events: Events,
        options: DispatcherOptions | None = None,
    ) -> None:
        self._store = store
        self._exchanger = exchanger
        self._clock = clock
        self._events = events
        self._options = options or DispatcherOptions()
        self._replies = ReplyStore(store, clock, self._options.holder)
        most = self._options.threads or INLINE_REQUESTS
        self._windows = EndpointWindows(most, self._options.concurrency_max)
        self._changed = self._windows.changed
        self._done: deque[Exchanged] = deque()
        self._senders = SenderThreads(self._options.threads, self._send)
        self._storing: threading.Thread | None = None
        self._is_closing = False
        self._base: CallbackBase | None = None
        self._after = 0
        self._clock_raised_at = float("-inf")

    def run_once(self) -> DispatchCounts:
        """Start sending ready runs; with threads, return without waiting for responses."""
        if self._done and not self._options.threads:
            self._store_done()
        rows = [] if self._is_closing else self._ready()
        now = self._clock.monotonic()
        if rows:
            self._load_base()
        claims, pauses = self._windows.take_ready(rows, now)
        claimed = self._settle([], claims).claimed if claims else []
        self._start(claimed)
        next_at = None if not pauses else int((now + min(pauses)) * SECOND)
        return DispatchCounts(started=len(claimed), next_at=next_at, now=int(now * SECOND))

    def drain(self, seconds: float = 25.0) -> bool:
        """Stop starting work and wait for requests in flight; return True when none is left."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            is_done = self._changed.wait_for(
                lambda: self._windows.is_idle and not self._done and self._storing is None,
                timeout=seconds,
            )
        self._senders.close()
        return is_done

    # -- starting ------------------------------------------------------------------------------

    def _ready(self) -> list[EndpointRow]:
        """Return endpoints with ready runs, round-robin from where the last step ended."""
        start, self._after = self._after, 0
        rows = self._store.read(lambda tx: endpoint_ready(tx, after=start, limit=LIMIT))
        if len(rows) == LIMIT:
            self._after = rows[-1].processor_key
        elif start:
            head = self._store.read(lambda tx: endpoint_ready(tx, limit=LIMIT))
            rows += [row for row in head if row.processor_key <= start]
        return rows

    def _start(self, runs: Sequence[OutgoingRun]) -> None:
        for run in runs:
            if self._options.threads:
                self._senders.put(run)
            else:
                self._send(run)
        if runs and not self._options.threads:
            self._store_done()

    def _send(self, run: OutgoingRun) -> None:
        """Send a run, in its own thread; the outcome is stored with others.

        The next request may start while this one is being stored.
        """
        assert self._base is not None
        done = self._exchanger.exchange(run, self._base)
        self._done.append(done)
        self._windows.learn(done, self._clock.monotonic())
        with self._changed:
            if self._options.threads and self._storing is None:
                self._storing = threading.Thread(
                    target=self._store_loop, name="penstock-dispatch-store", daemon=True
                )
                self._storing.start()
            self._changed.notify_all()

    def _load_base(self) -> None:
        """Load the secret that signs the credentials of runs, before the first one is claimed."""
        if self._base is None:
            made = new_secret()
            secret = self._store.write(lambda tx: secret_ensure(tx, RUN_SECRET, made))
            self._base = CallbackBase(self._options.callback_url, secret.encode())

    # -- storing -------------------------------------------------------------------------------

    def _store_loop(self) -> None:
        """Store the outcomes of requests until the dispatcher closes and nothing is in flight."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._done or (self._is_closing and self._windows.is_idle)
                )
                if not self._done:
                    self._storing = None
                    self._changed.notify_all()
                    return
            try:
                self._store_done()
            except Exception as error:  # kept for the next attempt; the leases outlast the pause
                self._report(error)
                self._clock.sleep(PAUSE_SECONDS)

    def _store_done(self) -> None:
        """Store a batch of responses and start the next requests of the same endpoints."""
        batch = [self._done.popleft() for _ in range(min(len(self._done), BATCH_MAX))]
        is_over = self._is_closing or not self._options.threads
        claims = [] if is_over else self._windows.take_next(batch, self._clock.monotonic())
        try:
            settled = self._settle(batch, claims)
        except BaseException:
            self._done.extendleft(reversed(batch))
            raise
        self._emit(batch, settled)
        self._start(settled.claimed)

    def _settle(self, batch: Sequence[Exchanged], claims: Claims) -> Settlement:
        """Store responses and claim runs in one transaction; release requests without a run."""
        now = self._clock.monotonic()
        raises = now - self._clock_raised_at >= FAIR_CLOCK_SECONDS
        claimed: Sequence[OutgoingRun] = ()
        try:
            settled = self._write(batch, Wanted(claims, raises))
            claimed = settled.claimed
            if claimed and raises:
                self._clock_raised_at = now
            return settled
        finally:
            self._windows.release_unused(claims, claimed)

    def _write(self, batch: Sequence[Exchanged], wanted: Wanted) -> Settlement:
        replies = self._replies
        try:
            return self._store.write(lambda tx: replies.settle_and_claim(tx, batch, wanted))
        except StoreError:
            raise
        except Exception as error:
            if not batch:
                raise
            self._report(error)
        # One response cannot be stored: the others must not wait for it.
        outcomes: dict[int, str] = {}
        for one in batch:
            outcomes |= self._write_singly(one)
        return Settlement(outcomes, ())

    def _write_singly(self, one: Exchanged) -> dict[int, str]:
        replies, nothing = self._replies, Wanted()
        details = {"message": "the reply of the endpoint could not be stored"}
        plain = FailureReport(error_type=ErrorType.VALIDATION_ERROR, error_details=details)
        for given in ([one], [one._replace(reply=plain)]):
            try:
                made = self._store.write(
                    lambda tx, given=given: replies.settle_and_claim(tx, given, nothing)  # type: ignore[misc]
                )
            except StoreError:
                raise
            except Exception as error:
                self._report(error)
            else:
                return dict(made.outcomes)
        return {}  # its lease expires and the sweeper ends it

    def _report(self, error: Exception) -> None:
        self._events.emit(ServiceError(self.name, f"{type(error).__name__}: {error}", 0.0))

    def _emit(self, batch: Sequence[Exchanged], settled: Settlement) -> None:
        if not self._events.wants(RequestSent):
            return
        windows = self._windows.concurrency()
        for one in batch:
            held = one.run.held
            self._events.emit(
                RequestSent(
                    processor="/".join(one.run.claimed[2:5]),
                    customer_id=held.customer_id,
                    run_id=held.run_id,
                    attempt=held.attempt,
                    outcome=settled.outcomes.get(held.run_id, "stale"),
                    status=one.status,
                    failure=one.failure,
                    seconds=round(one.seconds, 6),
                    window=windows.get(held.processor_key, 0),
                    correlation_id=one.run.correlation_id,
                )
            )


class SenderThreads:
    """Up to `most` threads that call `send`; they start when they are needed and end when idle."""

    def __init__(self, most: int, send: Callable[[OutgoingRun], None]) -> None:
        self._most = most
        self._send = send
        self._queue: queue.SimpleQueue[OutgoingRun | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._waiting = 0
        """Runs that no thread has begun; a thread that takes one is no longer idle."""

    def put(self, run: OutgoingRun) -> None:
        """Send a run in the next free thread."""
        with self._lock:
            self._waiting += 1
            self._queue.put(run)
            if self._idle < self._waiting and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._loop, name="penstock-dispatch", daemon=True).start()

    def close(self) -> None:
        """End the idle threads."""
        with self._lock:
            for _ in range(self._threads):
                self._queue.put(None)

    def _loop(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            run = self._queue.get()
            with self._lock:
                self._idle -= 1
                if run is None:
                    self._threads -= 1
                    return
                self._waiting -= 1
            self._send(run)
