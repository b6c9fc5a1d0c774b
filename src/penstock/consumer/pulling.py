"""The pull worker: takes messages under lease, has them handled, settles them, keeps the leases.

    puller   pulls as much as there is room for, and waits in the transport's own long poll
    clerk    tells the transport how messages ended, in batches, and moves deadlines meanwhile

A settlement that is lost costs a redelivery, which the sink's mark makes harmless. A stop pulls no
more, gives back what has not begun (which costs those messages no attempt), waits for the rest, and
settles it.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.bus.message import Delivery, Nack, Settling
from penstock.bus.transports.protocol import Transport
from penstock.consumer.disposition import ACK, Disposition
from penstock.consumer.message import of_delivery
from penstock.core.clock import SECOND

if TYPE_CHECKING:
    from penstock.consumer.app import Consumer

log = logging.getLogger(__name__)

PULL_MAX: Final = 1_000
PULL_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 0.25
"""How long to rest after a pull that came back empty without having waited."""
BACKOFF_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SETTLE_TRIES: Final = 5
SETTLE_MAX: Final = 500
"""How many are settled or renewed in one call."""
LEASE_SECONDS_MIN: Final = 2.0
DRAIN_LOOK_SECONDS: Final = 0.2


@dataclass(slots=True)
class _Held:
    """A delivery in hand: when its lease is due for moving, and until when that is done."""

    due: float
    until: float


class Clerk:
    """Settles deliveries and keeps the leases of those in hand."""

    def __init__(self, consumer: Consumer, transport: Transport) -> None:
        self._transport = transport
        self._subscription = consumer.name
        self._clock = consumer.options.clock
        self._dead_letters = consumer.dead_letters
        self._extend = int(consumer.options.seconds("extend"))
        self._hold_max = consumer.options.seconds("hold_max")
        self._lock = threading.Condition()
        self._held: dict[str, _Held] = {}
        self._ends: deque[tuple[str, Disposition | None]] = deque()
        self._more = threading.Event()
        self._tries = 0
        self._is_stopping = False

    @property
    def in_hand(self) -> int:
        """Deliveries that are not settled yet."""
        return len(self._held)

    def hold(self, deliveries: list[Delivery]) -> None:
        """Keep the leases of deliveries from now on."""
        now, wall = self._clock.monotonic(), self._clock.now()
        with self._lock:
            for delivery in deliveries:
                lease = max(LEASE_SECONDS_MIN, (delivery.deadline - wall) / SECOND)
                due = now + min(lease, self._extend) / 2
                self._held[delivery.ack_id] = _Held(due=due, until=now + self._hold_max)
        self._more.set()

    def end(self, ack_id: str, disposition: Disposition | None) -> None:
        """Settle a delivery soon; None gives it back as if it had not been taken."""
        with self._lock:
            self._ends.append((ack_id, disposition))
        self._more.set()

    def wait_for_room(self, most: int, seconds: float) -> int:
        """How many more may be held; waits a while for one that ends."""
        with self._lock:
            self._lock.wait_for(lambda: len(self._held) < most, seconds)
            return most - len(self._held)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing is in hand; False when it took too long."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._held, seconds)

    def finish(self) -> None:
        """Settle until nothing is in hand, on the caller's thread."""
        while self._held:
            # Woken by whatever ends; the timeout is for leases that come due meanwhile.
            self._more.wait(LEASE_SECONDS_MIN / 2)
            self._more.clear()
            self.step()

    def loop(self) -> None:
        """Settle and renew until told to stop."""
        while not self._is_stopping:
            self._more.clear()
            self._clock.wait(self._more, self.step())
        self.step()

    def stop(self) -> None:
        """Let the loop end after one more step."""
        self._is_stopping = True
        self._more.set()

    def step(self) -> float | None:
        """Settle what ended, renew what is due; answers in how many seconds there is more to do."""
        try:
            self._settle()
            self._renew()
            self._tries = 0
        except Exception as error:
            self._tries += 1
            seconds = BACKOFF_SECONDS[min(self._tries, len(BACKOFF_SECONDS)) - 1]
            log.warning("settling failed (%s), again in %s s", type(error).__name__, seconds)
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
        acks, nacks, back = self._sorted(ends)
        try:
            if acks:
                self._transport.ack(self._subscription, acks)
            if nacks:
                self._transport.nack(self._subscription, nacks)
            if back:
                self._transport.release(self._subscription, back)
        except Exception:
            # Settling twice is harmless: the second time the ack id is stale.
            if self._tries + 1 >= SETTLE_TRIES:
                self._let_go(ends)
            raise
        self._let_go(ends)

    def _sorted(
        self, ends: list[tuple[str, Disposition | None]]
    ) -> tuple[list[str], list[Nack], list[str]]:
        acks: list[str] = []
        nacks: list[Nack] = []
        back: list[str] = []
        for ack_id, end in ends:
            if end is None:
                back.append(ack_id)
            elif end.ack_action(dead_letters=self._dead_letters) == ACK:
                acks.append(ack_id)
            else:
                nacks.append(end.nack(ack_id))
        return acks, nacks, back

    def _let_go(self, ends: list[tuple[str, Disposition | None]]) -> None:
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
        answers = self._transport.extend(self._subscription, due, self._extend)
        with self._lock:
            for ack_id, answer in zip(due, answers, strict=True):
                held = self._held.get(ack_id)
                if held is None:
                    continue
                # A lost lease is not renewed; the handler goes on, its mark keeps effects single.
                is_over = answer is Settling.STALE or now + self._extend > held.until
                held.due = float("inf") if is_over else now + self._extend / 2


class PullWorker:
    """Pulls the messages of a consumer's subscription from a transport."""

    def __init__(self, consumer: Consumer, transport: Transport) -> None:
        self._consumer = consumer
        self._transport = transport
        self._clock = consumer.options.clock
        self._clerk = Clerk(consumer, transport)
        self._stop = threading.Event()
        self._futures: dict[str, Future[Disposition]] = {}
        self._threads: list[threading.Thread] = []

    def run_once(self, *, max_messages: int = 100) -> int:
        """Handle and settle what there is now, up to a number; answers how many it was."""
        deliveries = self._transport.pull(self._consumer.name, max_messages=max_messages)
        self._clerk.hold(deliveries)
        for delivery in deliveries:
            self._begin(delivery)
        self._clerk.finish()
        return len(deliveries)

    def start(self) -> None:
        """Pull on threads of its own until stopped."""
        assert not self._threads, "already started"
        for target, name in ((self._pull, "pull"), (self._clerk.loop, "clerk")):
            thread = threading.Thread(target=target, name=f"penstock-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> bool:
        """Stop pulling, finish what was begun, give the rest back; False if some is unfinished."""
        self._stop.set()
        if not self._threads:
            return True
        pulling, settling = self._threads
        pulling.join()
        untried = [ack_id for ack_id, future in list(self._futures.items()) if future.cancel()]
        for ack_id in untried:
            self._futures.pop(ack_id, None)
            self._clerk.end(ack_id, None)
        if untried:
            log.info("%s messages of %s go back untried", len(untried), self._consumer.name)
        is_idle = self._drained()
        self._clerk.stop()
        settling.join()
        self._threads = []
        return is_idle

    def run(self) -> None:
        """Start, wait for SIGTERM or SIGINT (or `stop` from elsewhere), stop."""
        with self._signals():
            self.start()
            self._stop.wait()
            self.stop()
        self._consumer.close()

    def _pull(self) -> None:
        tries = 0
        while not self._stop.is_set():
            room = self._clerk.wait_for_room(self._consumer.outstanding, PULL_SECONDS)
            if room <= 0:
                continue
            began = self._clock.monotonic()
            try:
                deliveries = self._transport.pull(
                    self._consumer.name,
                    max_messages=min(room, PULL_MAX),
                    wait_seconds=PULL_SECONDS,
                )
                tries = 0
            except Exception as error:
                tries += 1
                seconds = BACKOFF_SECONDS[min(tries, len(BACKOFF_SECONDS)) - 1]
                log.warning("pulling failed (%s), again in %s s", error, seconds)
                self._clock.wait(self._stop, seconds)
                continue
            self._clerk.hold(deliveries)
            for delivery in deliveries:
                self._begin(delivery)
            if not deliveries and self._clock.monotonic() - began < IDLE_SECONDS:
                self._clock.wait(self._stop, IDLE_SECONDS)

    def _drained(self) -> bool:
        """Wait for what was begun, as long as is allowed; batches are not waited full for."""
        for _ in range(1 + int(self._consumer.options.seconds("drain") / DRAIN_LOOK_SECONDS)):
            self._consumer.hurry()
            if self._clerk.wait_until_idle(DRAIN_LOOK_SECONDS):
                return True
        return False

    def _begin(self, delivery: Delivery) -> None:
        future = self._consumer.submit(of_delivery(delivery))
        self._futures[delivery.ack_id] = future

        def ended(done: Future[Disposition]) -> None:
            if not done.cancelled():
                self._futures.pop(delivery.ack_id, None)
                self._clerk.end(delivery.ack_id, done.result())

        future.add_done_callback(ended)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT stop the worker, where signals can be heard."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        names = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(name, lambda *_: self._stop.set()) for name in names]
        try:
            yield
        finally:
            for name, handler in zip(names, before, strict=True):
                signal.signal(name, handler)
