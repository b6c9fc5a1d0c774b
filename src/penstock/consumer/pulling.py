"""The pull worker: leases messages, submits them for handling, renews leases, settles messages.

    puller   pulls up to the free capacity, and waits in the transport's own long poll
    settler  settles finished messages in batches, and extends the deadlines of the others

Messages of one ordering key are handled one after another, in the order of the pull. If one is
nacked, the rest of its key is released and pulled again after it.

A lost settlement causes a redelivery, which the sink's mark makes harmless. A stop pulls no more
messages, releases those that have not started (no attempt is counted), waits for the rest and
settles them.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.bus.message import Delivery, Nack, SettleResult
from penstock.bus.transports.protocol import Transport
from penstock.consumer.disposition import ACK, Disposition
from penstock.consumer.message import of_delivery
from penstock.core.clock import SECOND, set_from_handler, wait_for_handler

if TYPE_CHECKING:
    from penstock.consumer.app import Consumer

log = logging.getLogger(__name__)

PULL_MAX: Final = 1_000
PULL_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 0.25
"""Pause after an empty pull that returned without waiting, in seconds."""
BACKOFF_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SETTLE_TRIES: Final = 5
SETTLE_MAX: Final = 500
"""Maximum number of deliveries that one call settles or extends."""
QUEUED_FACTOR: Final = 3
LEASE_SECONDS_MIN: Final = 2.0
DRAIN_CHECK_SECONDS: Final = 0.2


@dataclass(slots=True)
class _Held:
    """A held delivery, with the time of its next extension and of its last one."""

    due: float
    until: float


class Settler:
    """Settles deliveries and renews the leases of those held."""

    def __init__(self, consumer: Consumer, transport: Transport) -> None:
        self._transport = transport
        self._subscription = consumer.name
        self._reporter = consumer.reporter
        self._clock = consumer.options.clock
        self._extend = int(consumer.options.seconds("extend"))
        self._hold_max = consumer.options.seconds("hold_max")
        self._lock = threading.Condition()
        self._held: dict[str, _Held] = {}
        self._ends: deque[tuple[str, Disposition | None]] = deque()
        self._more = threading.Event()
        self._tries = 0
        self._is_stopping = False

    @property
    def held(self) -> int:
        """Number of deliveries that are not settled yet."""
        return len(self._held)

    def hold(self, deliveries: list[Delivery]) -> None:
        """Start renewing the leases of deliveries."""
        monotonic, now = self._clock.monotonic(), self._clock.now()
        with self._lock:
            for delivery in deliveries:
                lease = max(LEASE_SECONDS_MIN, (delivery.deadline - now) / SECOND)
                due = monotonic + min(lease, self._extend) / 2
                self._held[delivery.ack_id] = _Held(due=due, until=monotonic + self._hold_max)
        self._more.set()

    def end(self, ack_id: str, disposition: Disposition | None) -> None:
        """Queue a delivery for settling; None releases it without counting an attempt."""
        with self._lock:
            self._ends.append((ack_id, disposition))
        self._more.set()

    def wait_for_capacity(self, most: int, queued: Callable[[], int], seconds: float) -> int:
        """Return how many more deliveries may be held; wait up to `seconds` if none.

        Deliveries queued behind their ordering key occupy no thread: they do not count as held
        until there are `QUEUED_FACTOR` times as many as `most`.
        """

        def free() -> int:
            held = len(self._held)
            return min(most - held + queued(), (1 + QUEUED_FACTOR) * most - held)

        with self._lock:
            self._lock.wait_for(lambda: free() > 0, seconds)
            return free()

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no delivery is held; return False if that takes longer than `seconds`."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._held, seconds)

    def finish(self) -> None:
        """Settle on the caller's thread until no delivery is held."""
        while self._held:
            # Every finished message sets the event; the timeout is for leases that come due.
            self._more.wait(LEASE_SECONDS_MIN / 2)
            self._more.clear()
            self.step()

    def loop(self) -> None:
        """Settle and renew until `stop` is called."""
        while True:
            # Clear first, so that an event that `stop` sets between the check and the wait is not
            # lost.
            self._more.clear()
            if self._is_stopping:
                break
            self._clock.wait(self._more, self.step())
        self.step()

    def stop(self) -> None:
        """Make the loop end after one more step."""
        self._is_stopping = True
        self._more.set()

    def step(self) -> float | None:
        """Settle finished deliveries and renew due leases; return the seconds to the next step.

        None means that nothing is held.
        """
        try:
            self._settle()
            self._renew()
            self._tries = 0
        except Exception as error:
            self._tries += 1
            seconds = BACKOFF_SECONDS[min(self._tries, len(BACKOFF_SECONDS)) - 1]
            log.warning("settling failed (%s), retrying in %s s", type(error).__name__, seconds)
            return seconds
        with self._lock:
            if self._ends:
                return 0.0
            due = min((held.due for held in self._held.values()), default=None)
        return None if due is None else max(0.0, due - self._clock.monotonic())

    def _settle(self) -> None:
        with self._lock:
            ends = list(islice(self._ends, SETTLE_MAX))
        if not ends:
            return
        acks, nacks, releases = self._sorted(ends)
        try:
            if acks:
                ack_ids = [ack_id for ack_id, _ in acks]
                handled = [one.handled for _, one in acks]
                self._transport.ack(self._subscription, ack_ids, handled=handled, by=self._reporter)
            if nacks:
                self._transport.nack(self._subscription, nacks, by=self._reporter)
            if releases:
                self._transport.release(self._subscription, releases)
        except Exception:
            # Settling twice is harmless: the second time the ack id is stale.
            if self._tries + 1 >= SETTLE_TRIES:
                self._drop(ends)
            raise
        self._drop(ends)

    def _sorted(
        self, ends: list[tuple[str, Disposition | None]]
    ) -> tuple[list[tuple[str, Disposition]], list[Nack], list[str]]:
        acks: list[tuple[str, Disposition]] = []
        nacks: list[Nack] = []
        releases: list[str] = []
        for ack_id, end in ends:
            if end is None:
                releases.append(ack_id)
            elif end.ack_action(dead_letters=end.has_dead_letters) == ACK:
                acks.append((ack_id, end))
            else:
                nacks.append(end.nack(ack_id))
        return acks, nacks, releases

    def _drop(self, ends: list[tuple[str, Disposition | None]]) -> None:
        with self._lock:
            for ack_id, _ in ends:
                self._ends.popleft()
                self._held.pop(ack_id, None)
            self._lock.notify_all()

    def _renew(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            late = (ack_id for ack_id, held in self._held.items() if held.due <= now)
            due = list(islice(late, SETTLE_MAX))
        if not due:
            return
        results = self._transport.extend(self._subscription, due, self._extend)
        with self._lock:
            for ack_id, result in zip(due, results, strict=True):
                held = self._held.get(ack_id)
                if held is None:
                    continue
                # A lost lease is not renewed; the handler continues, and its mark prevents
                # duplicate effects.
                is_over = result is SettleResult.STALE or now + self._extend > held.until
                held.due = float("inf") if is_over else now + self._extend / 2


class PullWorker:
    """Pulls the messages of a consumer's subscription from a transport."""

    def __init__(self, consumer: Consumer, transport: Transport) -> None:
        self._consumer = consumer
        self._transport = transport
        self._clock = consumer.options.clock
        self._settler = Settler(consumer, transport)
        self._stop = threading.Event()
        self._futures: dict[str, Future[Disposition]] = {}
        self._lock = threading.Lock()
        self._queues: dict[str, deque[Delivery]] = {}
        """Messages that wait for an earlier one of their ordering key, by key."""
        self._threads: list[threading.Thread] = []

    def run_once(self, *, max_messages: int = 100) -> int:
        """Pull, handle and settle up to `max_messages` once; return their number."""
        self._consumer.policy.read(self._transport)
        deliveries = self._transport.pull(self._consumer.name, max_messages=max_messages)
        self._settler.hold(deliveries)
        for delivery in deliveries:
            self._begin(delivery)
        self._settler.finish()
        return len(deliveries)

    def start(self) -> None:
        """Start pulling on background threads."""
        assert not self._threads, "already started"
        for target, name in ((self._pull, "pull"), (self._settler.loop, "settler")):
            thread = threading.Thread(target=target, name=f"penstock-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> bool:
        """Stop pulling, release messages that have not started, and finish the others.

        Return False if some are unfinished after the `drain` time.
        """
        self._stop.set()
        if not self._threads:
            return True
        pulling, settling = self._threads
        pulling.join()
        # Release after the last pull has returned: it would lease again whatever is released
        # earlier.
        unstarted = self._take_queued()
        unstarted += [ack_id for ack_id, future in list(self._futures.items()) if future.cancel()]
        for ack_id in unstarted:
            self._futures.pop(ack_id, None)
            self._settler.end(ack_id, None)
        if unstarted:
            log.info("released %s unstarted messages of %s", len(unstarted), self._consumer.name)
        is_idle = self._drained()
        self._settler.stop()
        settling.join()
        self._threads = []
        return is_idle

    def run(self) -> None:
        """Start, wait for SIGTERM, SIGINT or a call to `stop`, then stop."""
        with self._signals(), self._consumer.telemetry.serve():
            self.start()
            wait_for_handler(self._stop)
            self.stop()
        self._consumer.close()

    def _pull(self) -> None:
        tries = 0
        while not self._stop.is_set():
            free = self._settler.wait_for_capacity(
                self._consumer.outstanding, self._queued, PULL_SECONDS
            )
            if free <= 0:
                continue
            began = self._clock.monotonic()
            try:
                self._consumer.policy.read(self._transport)
                deliveries = self._transport.pull(
                    self._consumer.name,
                    max_messages=min(free, PULL_MAX),
                    wait_seconds=PULL_SECONDS,
                )
                tries = 0
            except Exception as error:
                tries += 1
                seconds = BACKOFF_SECONDS[min(tries, len(BACKOFF_SECONDS)) - 1]
                log.warning("pulling failed (%s), retrying in %s s", error, seconds)
                self._clock.wait(self._stop, seconds)
                continue
            self._settler.hold(deliveries)
            for delivery in deliveries:
                self._begin(delivery)
            if not deliveries and self._clock.monotonic() - began < IDLE_SECONDS:
                self._clock.wait(self._stop, IDLE_SECONDS)

    def _drained(self) -> bool:
        """Wait for messages in progress, up to the `drain` time; flush incomplete batches."""
        for _ in range(1 + int(self._consumer.options.seconds("drain") / DRAIN_CHECK_SECONDS)):
            self._consumer.flush()
            if self._settler.wait_until_idle(DRAIN_CHECK_SECONDS):
                return True
        return False

    def _begin(self, delivery: Delivery) -> None:
        """Submit a delivery, or queue it behind an earlier one of its ordering key."""
        key = delivery.ordering_key
        if key:
            with self._lock:
                queue = self._queues.get(key)
                if queue is not None:
                    queue.append(delivery)
                    return
                self._queues[key] = deque()
        self._submit(delivery)

    def _submit(self, delivery: Delivery) -> None:
        future = self._consumer.submit(of_delivery(delivery))
        self._futures[delivery.ack_id] = future

        def ended(done: Future[Disposition]) -> None:
            end = None if done.cancelled() else done.result()
            if end is not None:
                self._futures.pop(delivery.ack_id, None)
                self._settler.end(delivery.ack_id, end)
            if delivery.ordering_key:
                self._continue(delivery.ordering_key, end)

        future.add_done_callback(ended)

    def _continue(self, key: str, end: Disposition | None) -> None:
        """Submit the next delivery of a key; release all of them if the one before was nacked."""
        is_acked = end is not None and end.ack_action(dead_letters=end.has_dead_letters) == ACK
        with self._lock:
            queue = self._queues[key]
            if is_acked and queue and self._threads and self._stop.is_set():
                return  # `stop` releases the queue
            following = queue.popleft() if is_acked and queue else None
            if following is None:
                del self._queues[key]
        if following is not None:
            self._submit(following)
            return
        for delivery in queue:
            self._settler.end(delivery.ack_id, None)

    def _take_queued(self) -> list[str]:
        """Empty the queues of all keys; return the ack ids."""
        with self._lock:
            taken = [delivery.ack_id for queue in self._queues.values() for delivery in queue]
            for queue in self._queues.values():
                queue.clear()
        return taken

    def _queued(self) -> int:
        with self._lock:
            return sum(len(queue) for queue in self._queues.values())

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop the worker on SIGTERM and SIGINT; only the main thread can install handlers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        names = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(name, lambda *_: set_from_handler(self._stop)) for name in names]
        try:
            yield
        finally:
            for name, handler in zip(names, before, strict=True):
                signal.signal(name, handler)
