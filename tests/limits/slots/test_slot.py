"""Slots in user code: context manager and decorator, sync and async; how waits end."""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock import limits
from penstock.core.errors import Conflict, InvalidInput, LimitTimeout, SlotLost
from penstock.db.store import Store
from penstock.limits.slots.broker import Broker
from penstock.limits.slots.limit_state import State, Waiter
from penstock.limits.slots.registry import broker_of
from penstock.limits.slots.slot import Slot
from penstock.limits.store.limits import limit_force_release
from penstock.limits.store.reads import limit_holders
from penstock.limits.store.rows import Want
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore
from tests.limits.slots.kit import WAIT, Sight, Troubled, until


def forget(tx: Any, name: str) -> int:
    """What upkeep does to a limit of a key that no longer comes."""
    tx._connection.execute(f"UPDATE limits SET updated_by = 'declaration' WHERE name = '{name}'")
    tx.run("line_limits_prune", {"before": 2**62, "n": 10})
    found = tx._connection.execute(f"SELECT count(*) FROM limits WHERE name = '{name}'").fetchone()
    return 1 - int(found[0])


def test_closing_leaves_nothing_behind(
    live: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a broker has not told yet, a place left or a slot given back, is told by closing."""
    sight = Sight(live, "crm")
    other = open_store(clock=None)
    broker = broker_of(other)
    with limits.slot("crm", capacity=1):
        limits.use(other)
        monkeypatch.setattr(broker._pulse, "rouse", lambda _=0.0: None)
        with pytest.raises(LimitTimeout), limits.slot("crm", timeout=0.01):
            pass
        limits.use(live)
        assert sight.waiting == 1
        other.close()
        assert sight.waiting == 0
        assert len(sight.holders) == 1


class TestHolding:
    """What holding a slot means."""

    def test_with(self, live: Store) -> None:
        """Inside the block the store knows the holder; afterwards it does not."""
        sight = Sight(live, "bq:t")
        with limits.slot("bq:t", capacity=2) as one:
            with limits.slot("bq:t") as two:
                assert two.token > one.token > 0
                assert len(sight.holders) == 2
            assert len(sight.holders) == 1
            assert not one.lost.is_set()
            one.check()
        until(lambda: sight.holders == [])
        assert sight.outcomes == ["released", "released"]

    def test_a_limit_that_was_forgotten(self, live: Store) -> None:
        """A limit that upkeep removed while nobody used it is made again by who comes back."""
        with limits.slot("key:7", capacity=1):
            pass
        until(lambda: Sight(live, "key:7").holders == [])
        gone = live.write(lambda tx: forget(tx, "key:7"))
        assert gone == 1
        with limits.slot("key:7", capacity=1) as slot:
            assert len(Sight(live, "key:7").holders) == 1
            slot.check()
        with limits.slot("key:7"):
            pass

    def test_release_is_idempotent(self, live: Store) -> None:
        """Releasing again, or late, changes nothing."""
        slot = limits.slot("x", capacity=1).acquire()
        slot.release()
        slot.release()
        other = limits.slot("x").acquire()
        slot.release()
        assert len(Sight(live, "x").holders) == 1
        other.release()

    def test_decorators(self, live: Store) -> None:
        """Every call of a decorated function holds a slot, sync and async."""
        sight = Sight(live, "d")

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

    def test_an_error_gives_the_slot_back(self, live: Store) -> None:
        """What the block raises passes, and the slot is free."""
        with pytest.raises(ZeroDivisionError), limits.slot("x", capacity=1):
            raise ZeroDivisionError
        until(lambda: Sight(live, "x").holders == [])

    def test_many_threads_share_the_capacity(self, live: Store) -> None:
        """Never more inside than the capacity, and everybody gets in."""
        inside, most, served = 0, 0, 0
        lock = threading.Lock()
        request = limits.slot("x", capacity=3)

        def work(_: int) -> None:
            nonlocal inside, most, served
            with request:
                with lock:
                    inside += 1
                    most = max(most, inside)
                    served += 1
                with lock:
                    inside -= 1

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(100)))
        assert served == 100
        assert most <= 3
        until(lambda: Sight(live, "x").holders == [])

    @pytest.mark.usefixtures("live")
    def test_weights(self) -> None:
        """What could never be granted is refused at once, with field and fix."""
        with pytest.raises(InvalidInput, match="weight: expected at most 2"):
            limits.slot("x", weight=3, capacity=2).acquire()
        with pytest.raises(InvalidInput, match="weight: expected at most 5, the burst of r"):
            limits.rate("r", 10, burst=5, weight=6).acquire()
        with pytest.raises(InvalidInput, match="weight: expected a whole number"):
            limits.slot("x", weight=0).acquire()

    def test_declared_changes_take_effect(self, live: Store) -> None:
        """A waiter is let in when the capacity is raised."""
        with limits.slot("x", capacity=1), ThreadPoolExecutor(1) as pool:
            late = pool.submit(limits.slot("x", timeout=WAIT).acquire)
            until(lambda: Sight(live, "x").waiting == 1)
            limits.declare("x", capacity=2)
            late.result(WAIT).release()

    def test_a_confined_client_is_refused(self, live: Store) -> None:
        """Whoever sees one customer only cannot judge capacity."""
        with pytest.raises(Conflict, match="confined"):
            broker_of(live.scoped(1))


class TestWaiting:
    """However a wait ends, nothing stays behind."""

    def test_timeout_tells_who_holds(self, live: Store) -> None:
        """The error is retryable and names holders and the line; the ticket is gone."""
        with limits.slot("x", capacity=1):
            with pytest.raises(LimitTimeout, match=r"1 of 1 held by .*MainThread; ") as caught:
                limits.slot("x", timeout="50ms").acquire()
            assert caught.value.retryable
            assert caught.value.detail["limit"] == "x"
            until(lambda: Sight(live, "x").waiting == 0)
        assert "timeout" in Sight(live, "x").outcomes

    @pytest.mark.usefixtures("live")
    def test_a_closed_limit(self) -> None:
        """Nobody holds it and nobody ever will: the error says how to open it."""
        match = r"closed \(capacity 0\) and .* wait; `penstock limits set x --capacity 1` opens it"
        with pytest.raises(LimitTimeout, match=match):
            limits.slot("x", capacity=0, timeout="10ms").acquire()

    @pytest.mark.usefixtures("live")
    def test_a_full_line(self) -> None:
        """Beyond queue_max the answer comes at once."""
        with (
            limits.slot("x", capacity=1, queue_max=0),
            pytest.raises(LimitTimeout, match="line of limit x is full"),
        ):
            limits.slot("x").acquire()

    def test_async_cancellation(self, live: Store) -> None:
        """A cancelled task leaves the line, and holds nothing."""
        sight = Sight(live, "x")

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

    def test_a_grant_that_crosses_leaving_is_given_back(
        self, live: Store, open_store: OpenStore
    ) -> None:
        """Somebody leaves while their turn is being taken: the slot goes back."""
        troubled = Troubled(open_store(clock=None))
        crossed = Broker(troubled)
        desk = crossed.desk("x", limits.slot("x", capacity=1).options.terms)
        waiter = Waiter(desk, Want(request="r1", holder="me"), lambda: None)
        troubled.gate.clear()
        troubled.reached.clear()
        asking = threading.Thread(target=lambda: crossed.ask(waiter, direct=True))
        asking.start()
        assert troubled.reached.wait(WAIT)
        assert crossed.leave(waiter, "abandoned")
        troubled.gate.set()
        asking.join(WAIT)
        until(lambda: Sight(live, "x").holders == [])
        assert waiter.state is State.LEFT
        crossed.close()

    def test_an_interrupt_while_asking(
        self, live: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C in the middle of a turn that was committed leaves no slot behind."""
        store = open_store(clock=None)
        limits.use(store)
        broker = broker_of(store)
        broker.desk("x", limits.slot("x", capacity=1).options.terms)
        write = store.write

        def interrupted(body: object) -> object:
            write(body)  # type: ignore[arg-type]
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(store, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            limits.slot("x").acquire()
        until(lambda: Sight(live, "x").holders == [])
        broker.close()

    def test_a_lost_answer(self, live: Store, open_store: OpenStore) -> None:
        """A turn that was committed without our learning it is repeated: one lease, not two."""
        troubled = Troubled(open_store(clock=None))
        limits.use(troubled)
        broker_of(troubled).desk("x", limits.slot("x", capacity=2).options.terms)
        troubled.lost_answers = 1
        slot = limits.slot("x").acquire()
        assert len(Sight(live, "x").holders) == 1
        troubled.refusals = 1
        slot.release()
        until(lambda: Sight(live, "x").holders == [])
        broker_of(troubled).close()

    def test_a_lost_place_is_asked_for_again(self, live: Store, broker: Broker) -> None:
        """A ticket that was dropped as nobody's is taken anew by who still waits."""
        with limits.slot("x", capacity=1) as held, ThreadPoolExecutor(1) as pool:
            late = pool.submit(limits.slot("x", timeout=WAIT).acquire)
            until(lambda: Sight(live, "x").waiting == 1)
            number = Sight(live, "x").limit_id
            live.write(lambda tx: tx._connection.execute("DELETE FROM limit_tickets"))  # type: ignore[attr-defined]
            broker.renew_tickets()
            broker.look(is_woken=True)
            until(lambda: Sight(live, "x").waiting == 1)
            held.release()
            slot = late.result(WAIT)
            assert live.read(lambda tx: len(limit_holders(tx, number))) == 1
            slot.release()


class TestLeases:
    """Renewal, and what a holder learns who lost its slot."""

    def hold(self, **terms: object) -> Slot:
        return limits.slot("x", capacity=1, lease="1m", **terms).acquire()  # type: ignore[arg-type]

    def test_renewed_leases_last(self, still: Broker, clock: VirtualClock, store: Store) -> None:
        """A holder whose broker renews keeps its slot for longer than a lease."""
        slot = self.hold()
        for _ in range(10):
            clock.advance(seconds=30)
            still.holdings.renew_once()
        with pytest.raises(LimitTimeout):
            limits.slot("x", timeout=0).acquire()
        assert not slot.lost.is_set()
        assert len(Sight(store, "x").holders) == 1
        slot.release()

    def test_a_slot_that_was_taken_away_is_lost(
        self, still: Broker, clock: VirtualClock, store: Store
    ) -> None:
        """The next renewal tells the holder, and its release changes nothing."""
        slot = self.hold()
        number = Sight(store, "x").limit_id
        lease = store.read(lambda tx: limit_holders(tx, number))[0]
        store.write(lambda tx: limit_force_release(tx, lease.lease_id, actor="ada", why="stuck"))
        other = self.hold()
        clock.advance(seconds=30)
        still.holdings.renew_once()
        assert slot.lost.is_set()
        with pytest.raises(SlotLost, match="token"):
            slot.check()
        slot.release()
        assert not other.lost.is_set()
        assert len(Sight(store, "x").holders) == 1

    def test_a_store_that_is_away_loses_the_slot_in_time(
        self, clock: VirtualClock, store: Store
    ) -> None:
        """Without a renewal a holder is told no later than others may have its slot."""
        troubled = Troubled(store)
        limits.use(troubled)
        broker = broker_of(troubled, clock)
        slot = self.hold()
        troubled.refusals = 1_000
        clock.advance(seconds=59)
        broker.holdings.renew_once()
        assert not slot.lost.is_set()
        clock.advance(seconds=1)
        broker.holdings.renew_once()
        assert slot.lost.is_set()
        troubled.refusals = 0

    def test_a_fork_is_told(self, still: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        """A forked process is refused with the way out, and cannot release its parent's slots."""
        slot = self.hold()
        pid = still.pid
        monkeypatch.setattr("os.getpid", lambda: pid + 1)
        with pytest.raises(Conflict, match="forked"):
            self.hold()
        slot.release()
        monkeypatch.undo()
        assert len(Sight(still.store, "x").holders) == 1
        slot.release()


class TestOrder:
    """FIFO by ticket, for a thousand waiters, without a connection each."""

    def test_a_thousand_waiters_in_order(self, live: Store) -> None:
        """Tokens follow the order of asking without inversion; heavy ones are served like all."""
        order: list[tuple[int, int]] = []

        async def one(number: int) -> None:
            weight = 3 if number % 7 == 0 else 1
            async with limits.slot("x", capacity=3, weight=weight) as slot:
                order.append((slot.token, number))

        async def main() -> None:
            async with limits.slot("x", capacity=3, weight=3):
                tasks = [asyncio.create_task(one(number)) for number in range(1_000)]
                await asyncio.get_running_loop().run_in_executor(
                    None, lambda: until(lambda: Sight(live, "x").waiting == 1_000)
                )
            await asyncio.gather(*tasks)

        asyncio.run(main())
        assert len(order) == 1_000
        numbers = [number for _, number in sorted(order)]
        assert sum(a > b for a, b in itertools.pairwise(numbers)) == 0
