"""Slots in user code: context managers and decorators, sync and async, and how waits end."""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock import limits
from penstock.core.errors import Conflict, InvalidInput, LimitTimeout, SlotLost
from penstock.core.naming import CustomerKey
from penstock.db.store import Store
from penstock.limits.slots.broker import Broker
from penstock.limits.slots.limit_state import SlotWaiter, WaiterState
from penstock.limits.slots.registry import broker_for_store
from penstock.limits.slots.slot import Slot
from penstock.limits.store.limits import limit_force_release
from penstock.limits.store.reads import limit_holders
from penstock.limits.store.rows import LeaseRequest
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore
from tests.limits.slots.kit import WAIT, FaultyStore, StoredLimit, until


def prune(tx: Any, name: str) -> int:
    """Delete an unused limit, as upkeep does; return how many were deleted."""
    tx._connection.execute(f"UPDATE limits SET updated_by = 'declaration' WHERE name = '{name}'")
    tx.run("queue_limits_prune", {"before": 2**62, "n": 10})
    found = tx._connection.execute(f"SELECT count(*) FROM limits WHERE name = '{name}'").fetchone()
    return 1 - int(found[0])


def test_closing_a_store_sends_pending_departures(
    live: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a store sends what its broker has not sent yet: departures and releases."""
    sight = StoredLimit(live, "crm")
    other = open_store(clock=None)
    broker = broker_for_store(other)
    with limits.slot("crm", capacity=1):
        limits.use(other)
        monkeypatch.setattr(broker._thread, "wake", lambda _=0.0: None)
        with pytest.raises(LimitTimeout), limits.slot("crm", timeout=0.01):
            pass
        limits.use(live)
        assert sight.waiting == 1
        other.close()
        assert sight.waiting == 0
        assert len(sight.holders) == 1


class TestHolding:
    """Holding and releasing slots."""

    def test_with(self, live: Store) -> None:
        """The store has a lease for the holder inside the block, and none afterwards."""
        sight = StoredLimit(live, "bq:t")
        with limits.slot("bq:t", capacity=2) as one:
            with limits.slot("bq:t") as two:
                assert two.token > one.token > 0
                assert len(sight.holders) == 2
            assert len(sight.holders) == 1
            assert not one.lost.is_set()
            one.check()
        until(lambda: sight.holders == [])
        assert sight.outcomes == ["released", "released"]

    def test_a_pruned_limit_is_created_again(self, live: Store) -> None:
        """A limit that upkeep deleted as unused is created again by the next request."""
        with limits.slot("key:7", capacity=1):
            pass
        until(lambda: StoredLimit(live, "key:7").holders == [])
        deleted = live.write(lambda tx: prune(tx, "key:7"))
        assert deleted == 1
        with limits.slot("key:7", capacity=1) as slot:
            assert len(StoredLimit(live, "key:7").holders) == 1
            slot.check()
        with limits.slot("key:7"):
            pass

    def test_release_is_idempotent(self, live: Store) -> None:
        """Releasing a released slot has no effect."""
        slot = limits.slot("x", capacity=1).acquire()
        slot.release()
        slot.release()
        other = limits.slot("x").acquire()
        slot.release()
        assert len(StoredLimit(live, "x").holders) == 1
        other.release()

    def test_decorators(self, live: Store) -> None:
        """Every call of a decorated function holds a slot, sync and async."""
        sight = StoredLimit(live, "d")

        @limits.slot("d", capacity=1)
        def plain(n: int) -> int:
            assert len(sight.holders) == 1
            return n + 1

        @limits.slot("d")
        async def later(n: int) -> int:
            return n + len(sight.holders)

        assert plain(1) == 2
        assert asyncio.run(later(1)) == 2
        until(lambda: sight.holders == [])

    def test_an_error_releases_the_slot(self, live: Store) -> None:
        """An exception in the block is raised, and the slot is released."""
        with pytest.raises(ZeroDivisionError), limits.slot("x", capacity=1):
            raise ZeroDivisionError
        until(lambda: StoredLimit(live, "x").holders == [])

    def test_many_threads_share_the_capacity(self, live: Store) -> None:
        """At most `capacity` threads hold a slot at a time, and all threads get one."""
        active, most, served = 0, 0, 0
        lock = threading.Lock()
        request = limits.slot("x", capacity=3)

        def work(_: int) -> None:
            nonlocal active, most, served
            with request:
                with lock:
                    active += 1
                    most = max(most, active)
                    served += 1
                with lock:
                    active -= 1

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(100)))
        assert served == 100
        assert most <= 3
        until(lambda: StoredLimit(live, "x").holders == [])

    @pytest.mark.usefixtures("live")
    def test_weights(self) -> None:
        """A weight that could never be granted raises InvalidInput at once."""
        with pytest.raises(InvalidInput, match="weight: expected at most 2"):
            limits.slot("x", weight=3, capacity=2).acquire()
        with pytest.raises(InvalidInput, match="weight: expected at most 5, the burst of r"):
            limits.rate("r", 10, burst=5, weight=6).acquire()
        with pytest.raises(InvalidInput, match="weight: expected a whole number"):
            limits.slot("x", weight=0).acquire()

    def test_declared_changes_take_effect(self, live: Store) -> None:
        """A waiter is granted a slot when the capacity is raised."""
        with limits.slot("x", capacity=1), ThreadPoolExecutor(1) as pool:
            late = pool.submit(limits.slot("x", timeout=WAIT).acquire)
            until(lambda: StoredLimit(live, "x").waiting == 1)
            limits.declare("x", capacity=2)
            late.result(WAIT).release()

    def test_a_scoped_client_is_rejected(self, live: Store) -> None:
        """A client that sees only one customer cannot determine free capacity."""
        with pytest.raises(Conflict, match="scoped to one customer"):
            broker_for_store(live.scoped(CustomerKey(1)))


class TestWaiting:
    """However a wait ends, no ticket or lease is leaked."""

    def test_a_timeout_names_the_holders(self, live: Store) -> None:
        """The error is retryable and names the holders; the ticket is deleted."""
        with limits.slot("x", capacity=1):
            with pytest.raises(LimitTimeout, match=r"1 of 1 held by .*MainThread; ") as caught:
                limits.slot("x", timeout="50ms").acquire()
            assert caught.value.retryable
            assert caught.value.detail["limit"] == "x"
            until(lambda: StoredLimit(live, "x").waiting == 0)
        assert "timeout" in StoredLimit(live, "x").outcomes

    @pytest.mark.usefixtures("live")
    def test_a_closed_limit(self) -> None:
        """The timeout error of a limit with capacity 0 says how to open it."""
        match = r"closed \(capacity 0\), .* waiting; `penstock limits set x --capacity 1`"
        with pytest.raises(LimitTimeout, match=match):
            limits.slot("x", capacity=0, timeout="10ms").acquire()

    @pytest.mark.usefixtures("live")
    def test_a_full_queue(self) -> None:
        """Beyond queue_max a request fails at once."""
        with (
            limits.slot("x", capacity=1, queue_max=0),
            pytest.raises(LimitTimeout, match="queue of limit x is full"),
        ):
            limits.slot("x").acquire()

    def test_async_cancellation(self, live: Store) -> None:
        """A cancelled task leaves the queue and holds nothing."""
        sight = StoredLimit(live, "x")

        async def main() -> None:
            async with limits.slot("x", capacity=1):
                task = asyncio.create_task(limits.slot("x").acquire_async())
                await asyncio.get_running_loop().run_in_executor(
                    None, lambda: until(lambda: sight.waiting == 1)
                )
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

        asyncio.run(main())
        until(lambda: sight.waiting == 0 and sight.holders == [])

    def test_a_grant_to_a_waiter_that_left_is_released(
        self, live: Store, open_store: OpenStore
    ) -> None:
        """A slot granted while its waiter leaves is released."""
        faulty = FaultyStore(open_store(clock=None))
        broker = Broker(faulty)
        harness = broker.limit_state("x", limits.slot("x", capacity=1).options.terms)
        waiter = SlotWaiter(harness, LeaseRequest(request="r1", holder="me"), lambda: None)
        faulty.gate.clear()
        faulty.reached.clear()
        asking = threading.Thread(target=lambda: broker.request(waiter, direct=True))
        asking.start()
        assert faulty.reached.wait(WAIT)
        assert broker.leave(waiter, "abandoned")
        faulty.gate.set()
        asking.join(WAIT)
        until(lambda: StoredLimit(live, "x").holders == [])
        assert waiter.state is WaiterState.LEFT
        broker.close()

    def test_an_interrupt_during_a_grant(
        self, live: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C during a grant transaction that commits leaks no slot."""
        store = open_store(clock=None)
        limits.use(store)
        broker = broker_for_store(store)
        broker.limit_state("x", limits.slot("x", capacity=1).options.terms)
        write = store.write

        def interrupted(body: object) -> object:
            write(body)  # type: ignore[arg-type]
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(store, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            limits.slot("x").acquire()
        until(lambda: StoredLimit(live, "x").holders == [])
        broker.close()

    def test_an_unknown_outcome(self, live: Store, open_store: OpenStore) -> None:
        """Repeating a grant whose commit was not confirmed results in one lease, not two."""
        faulty = FaultyStore(open_store(clock=None))
        limits.use(faulty)
        broker_for_store(faulty).limit_state("x", limits.slot("x", capacity=2).options.terms)
        faulty.lost_results = 1
        slot = limits.slot("x").acquire()
        assert len(StoredLimit(live, "x").holders) == 1
        faulty.failures = 1
        slot.release()
        until(lambda: StoredLimit(live, "x").holders == [])
        broker_for_store(faulty).close()

    def test_a_lost_ticket_is_requested_again(self, live: Store, broker: Broker) -> None:
        """A waiter whose ticket was deleted requests a new one."""
        with limits.slot("x", capacity=1) as held, ThreadPoolExecutor(1) as pool:
            late = pool.submit(limits.slot("x", timeout=WAIT).acquire)
            until(lambda: StoredLimit(live, "x").waiting == 1)
            number = StoredLimit(live, "x").limit_id
            live.write(lambda tx: tx._connection.execute("DELETE FROM limit_tickets"))  # type: ignore[attr-defined]
            broker.renew_tickets()
            broker.run_once(is_woken=True)
            until(lambda: StoredLimit(live, "x").waiting == 1)
            held.release()
            slot = late.result(WAIT)
            assert live.read(lambda tx: len(limit_holders(tx, number))) == 1
            slot.release()


class TestLeases:
    """Renewal of leases, and notification of holders that lost their slot."""

    def hold(self, **terms: object) -> Slot:
        return limits.slot("x", capacity=1, lease="1m", **terms).acquire()  # type: ignore[arg-type]

    def test_renewed_leases_last(self, still: Broker, clock: VirtualClock, store: Store) -> None:
        """A holder keeps its slot for longer than a lease while its broker renews it."""
        slot = self.hold()
        for _ in range(10):
            clock.advance(seconds=30)
            still.held_leases.renew_once()
        with pytest.raises(LimitTimeout):
            limits.slot("x", timeout=0).acquire()
        assert not slot.lost.is_set()
        assert len(StoredLimit(store, "x").holders) == 1
        slot.release()

    def test_a_force_released_slot_is_lost(
        self, still: Broker, clock: VirtualClock, store: Store
    ) -> None:
        """The next renewal notifies the holder, whose release then has no effect."""
        slot = self.hold()
        number = StoredLimit(store, "x").limit_id
        lease = store.read(lambda tx: limit_holders(tx, number))[0]
        store.write(lambda tx: limit_force_release(tx, lease.lease_id, actor="ada", why="stuck"))
        other = self.hold()
        clock.advance(seconds=30)
        still.held_leases.renew_once()
        assert slot.lost.is_set()
        with pytest.raises(SlotLost, match="token"):
            slot.check()
        slot.release()
        assert not other.lost.is_set()
        assert len(StoredLimit(store, "x").holders) == 1

    def test_a_slot_is_lost_when_the_store_is_unavailable(
        self, clock: VirtualClock, store: Store
    ) -> None:
        """Without a renewal, the holder is notified before another one can get its slot."""
        faulty = FaultyStore(store)
        limits.use(faulty)
        broker = broker_for_store(faulty, clock)
        slot = self.hold()
        faulty.failures = 1_000
        clock.advance(seconds=59)
        broker.held_leases.renew_once()
        assert not slot.lost.is_set()
        clock.advance(seconds=1)
        broker.held_leases.renew_once()
        assert slot.lost.is_set()
        faulty.failures = 0

    def test_a_fork_is_rejected(self, still: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        """A forked process cannot take slots or release those of its parent."""
        slot = self.hold()
        pid = still.pid
        monkeypatch.setattr("os.getpid", lambda: pid + 1)
        with pytest.raises(Conflict, match="forked"):
            self.hold()
        slot.release()
        monkeypatch.undo()
        assert len(StoredLimit(still.store, "x").holders) == 1
        slot.release()


class TestOrder:
    """FIFO by ticket, for a thousand waiters, without a connection each."""

    def test_a_thousand_waiters_in_order(self, live: Store) -> None:
        """Fencing tokens follow the order of requests, for heavy and light requests alike."""
        order: list[tuple[int, int]] = []

        async def one(number: int) -> None:
            weight = 3 if number % 7 == 0 else 1
            async with limits.slot("x", capacity=3, weight=weight) as slot:
                order.append((slot.token, number))

        async def main() -> None:
            async with limits.slot("x", capacity=3, weight=3):
                tasks = [asyncio.create_task(one(number)) for number in range(1_000)]
                await asyncio.get_running_loop().run_in_executor(
                    None, lambda: until(lambda: StoredLimit(live, "x").waiting == 1_000)
                )
            await asyncio.gather(*tasks)

        asyncio.run(main())
        assert len(order) == 1_000
        numbers = [number for _, number in sorted(order)]
        assert sum(a > b for a, b in itertools.pairwise(numbers)) == 0
