"""What every driver guarantees: all or nothing, snapshots, callbacks, closing."""

import threading
from collections.abc import Callable

import pytest

from penstock.access.store import registry
from penstock.core.errors import StoreError, StoreUnavailable
from penstock.core.naming import CustomerKey
from penstock.db.store import Store, Transactions, Tx
from penstock.runs.store import runs
from penstock.testing.clock import VirtualClock
from tests.conftest import ALL_ENGINES, OpenStore
from tests.kits.world import World

every_engine = pytest.mark.parametrize("engine", ALL_ENGINES, indirect=True)


def add(store: Transactions, name: str) -> None:
    """Create a customer in its own transaction."""
    store.write(lambda tx: registry.customer_ensure_many(tx, [name]))


def has(store: Transactions, name: str) -> bool:
    """Whether a customer exists."""
    return store.read(lambda tx: registry.customer_get(tx, name)) is not None


def together(*calls: Callable[[], object]) -> list[BaseException]:
    """Run calls in separate threads. Return what they raised."""
    errors: list[BaseException] = []

    def guarded(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return errors


@every_engine
class TestTransactions:
    """All or nothing."""

    def test_value(self, store: Store) -> None:
        """A transaction returns the value of its body."""
        assert store.write(lambda tx: (tx.engine, 7))[1] == 7
        assert store.read(lambda tx: tx.engine) == store.capabilities.engine

    @pytest.mark.parametrize("error", [RuntimeError, StoreError, KeyboardInterrupt])
    def test_rollback(self, store: Store, error: type[BaseException]) -> None:
        """An exception of a body reaches the caller, rolls it back, and affects no later call."""

        def body(tx: Tx) -> None:
            registry.customer_ensure_many(tx, ["x"])
            raise error("no")

        with pytest.raises(error, match="no"):
            store.write(body)
        assert not has(store, "x")
        add(store, "y")
        assert has(store, "y")

    def test_database_error(self, store: Store) -> None:
        """A refused statement rolls the whole body back; the store continues to work."""

        def body(tx: Tx) -> None:
            registry.customer_ensure_many(tx, ["x"])
            tx.run("topic_ensure", {"topic": None})

        with pytest.raises(Exception, match=r"(?i)null"):
            store.write(body)
        assert not has(store, "x")
        add(store, "y")

    def test_suppressed_error(self, store: Store) -> None:
        """A body that suppresses a database error fails, or all its earlier writes are durable."""

        def body(tx: Tx) -> None:
            registry.customer_ensure_many(tx, ["x"])
            with pytest.raises(Exception, match=r"(?i)null"):
                tx.run("topic_ensure", {"topic": None})

        calls: list[str] = []

        def with_callback(tx: Tx) -> None:
            body(tx)
            tx.after_commit(lambda: calls.append("committed"))

        try:
            store.write(with_callback)
        except StoreError:
            assert not has(store, "x")
            assert calls == []
        else:
            assert has(store, "x")
            assert calls == ["committed"]

    def test_nested_write(self, store: Store) -> None:
        """A body that opens another transaction is refused instead of deadlocking."""
        with pytest.raises(AssertionError, match="must not open another"):
            store.write(lambda _: store.write(registry.pipeline_list))
        with pytest.raises(AssertionError, match="must not open another"):
            store.write(lambda _: store.read(registry.pipeline_list))
        assert not has(store, "x")

    def test_read_is_read_only(self, store: Store) -> None:
        """A read transaction cannot write."""
        with pytest.raises(Exception, match=r"(?i)read-?only"):
            store.read(lambda tx: registry.topic_ensure(tx, "t"))
        with pytest.raises(Exception, match=r"(?i)read-?only"):
            store.read(lambda tx: registry.customer_ensure_many(tx, ["x"]))
        assert not has(store, "x")
        add(store, "x")

    def test_after_commit(self, store: Store) -> None:
        """Callbacks run once, in order, after the commit; never on rollback."""
        seen: list[object] = []

        def body(tx: Tx) -> None:
            registry.customer_ensure_many(tx, ["x"])
            tx.after_commit(lambda: seen.append(has(store, "x")))
            tx.after_commit(lambda: seen.append("second"))
            assert seen == []

        store.write(body)
        assert seen == [True, "second"]

        def failing(tx: Tx) -> None:
            tx.after_commit(lambda: seen.append("never"))
            raise RuntimeError("no")

        with pytest.raises(RuntimeError):
            store.write(failing)
        add(store, "y")
        assert seen == [True, "second"]

    def test_time(self, store: Store, clock: VirtualClock) -> None:
        """A transaction uses the store's clock."""
        assert store.read(lambda tx: tx.now()) == clock.now()
        clock.advance(5)
        assert store.write(lambda tx: tx.now()) == clock.now()

    def test_database_time(self, open_store: OpenStore) -> None:
        """Without a clock, the database's time is used, in microseconds, and never goes back."""
        store = open_store(clock=None)
        first, second = store.read(lambda tx: (tx.now(), tx.now()))
        if store.capabilities.engine == "postgres":
            assert first == second, "a snapshot asks the server once"
        times = [store.read(lambda tx: tx.now()) for _ in range(20)]
        assert times == sorted(times)
        assert 1_700_000_000_000_000 < times[0] < 5_000_000_000_000_000

    def test_close(self, store: Store) -> None:
        """A closed store raises an error; closing twice is allowed."""
        store.close()
        store.close()
        for call in (store.read, store.write):
            with pytest.raises(StoreUnavailable):
                call(lambda tx: registry.customer_get(tx, "x"))

    def test_hostile_text_in_batches(self, world: World) -> None:
        """Text in a batch arrives unchanged, whatever an array literal would make of it."""
        texts = [
            "", " ", "NULL", "null", "\\", '"', "'", "{}", "{a,b}", "a,b", "\n", "\t", "\\N", "%s",
            "%(x)s", ":now", "{{now}}", "ü€🙂", "x" * 10_000, '\\"', "a\\", None, "t", "1",
        ]  # fmt: skip
        ids = world.insert_all([world.new(parameters=t, partition=t) for t in texts])
        assert [world.run(i).parameters for i in ids] == texts
        assert [world.run(i).partition for i in ids] == texts
        same = world.insert_all([world.new(parameters='a"\\', partition="")] * 3)
        assert [world.run(i).parameters for i in same] == ['a"\\'] * 3
        assert [world.run(i).partition for i in same] == [""] * 3


class TestConcurrency:
    """Many callers at once."""

    @every_engine
    def test_many_threads(self, store: Store) -> None:
        """Bodies of many threads commit; one that fails does not affect the others."""
        gate, waiting = threading.Event(), threading.Event()

        def slow(tx: Tx) -> None:
            registry.customer_ensure_many(tx, ["slow"])
            waiting.set()
            assert gate.wait(60)

        def one(number: int) -> None:
            def body(tx: Tx) -> int:
                registry.customer_ensure_many(tx, [f"c{number}"])
                if number % 4 == 0:
                    raise RuntimeError(f"no {number}")
                if number % 4 == 1:
                    tx.run("topic_ensure", {"topic": None})
                return number

            assert store.write(body) == number

        holder = threading.Thread(target=lambda: store.write(slow))
        holder.start()
        assert waiting.wait(60)
        threading.Timer(0.2, gate.set).start()
        # On PostgreSQL, these rows do not conflict with those of the slow body.
        errors = together(*[lambda n=n: one(n) for n in range(24)])
        holder.join(60)
        assert len(errors) == 12
        assert sum(isinstance(error, RuntimeError) for error in errors) == 6
        for number in range(24):
            assert has(store, f"c{number}") == (number % 4 > 1), number
        assert has(store, "slow")

    def test_claims_from_many_threads(self, world: World, open_store: OpenStore) -> None:
        """No two holders ever hold the same run, across several stores and threads."""
        ids = set(world.insert(300))
        worlds = [World(open_store(), world.clock) for _ in range(2)]
        got: list[int] = []

        def work(one: World) -> None:
            while held := one.claim(n=7):
                got.extend(h.run_id for h in held)
                one.complete(*held)

        assert together(*[lambda w=w: work(w) for w in (*worlds, *worlds)]) == []
        assert len(got) == 300
        assert set(got) == ids
        assert world.value("SELECT count(*) FROM history") == 300

    def test_same_run_ended_by_many(self, world: World, open_store: OpenStore) -> None:
        """Of many holders of one token racing to end a run, one succeeds."""
        worlds = [World(open_store(), world.clock) for _ in range(3)]
        for _ in range(10):
            held = world.running()
            ended: list[object] = []
            errors = together(
                *[lambda w=w, h=held, e=ended: e.extend(w.complete(h)) for w in worlds]
            )
            assert errors == []
            assert len(ended) == 1
        assert world.value("SELECT count(*) FROM history") == 10
        assert world.value("SELECT sum(runs) FROM run_sums") == 10

    def test_fair_ranks_with_two_writers(self, world: World, open_store: OpenStore) -> None:
        """Writers inserting for the same customers at once never assign a fair rank twice."""
        worlds = [World(open_store(), world.clock) for _ in range(3)]
        customers = world.customers("a", "b", "c")
        for customer in customers:
            world.insert(customer_key=customer)

        def insert(one: World, offset: int) -> None:
            for _ in range(10):
                order = customers[offset:] + customers[:offset]
                one.insert_all([one.new(customer_key=c) for c in order for _ in range(3)])

        assert together(*[lambda i=i, w=w: insert(w, i) for i, w in enumerate(worlds)]) == []
        rows = world.sql("SELECT customer, count(*), count(DISTINCT pass) FROM runs GROUP BY 1")
        assert sorted(rows) == [(c, 91, 91) for c in customers]

    def test_snapshot(self, store: Store, open_store: OpenStore) -> None:
        """A read transaction sees one snapshot, whatever commits concurrently."""
        other = open_store()

        def body(tx: Tx) -> list[CustomerKey | None]:
            seen = [registry.customer_get(tx, "x")]
            add(other, "x")
            seen.append(registry.customer_get(tx, "x"))
            return seen

        assert store.read(body) == [None, None]
        assert has(store, "x")

    @every_engine
    def test_more_readers_than_connections(self, store: Store) -> None:
        """More readers than the store has connections wait for one."""
        add(store, "x")
        assert together(*[lambda: [has(store, "x") for _ in range(5)] for _ in range(30)]) == []

    @every_engine
    def test_reserved(self, store: Store) -> None:
        """A reserved store reads and writes the same state, even while the first is busy."""
        reserved = store.reserved()
        add(reserved, "x")
        assert has(store, "x")
        assert has(reserved, "x")


class TestWake:
    """Hints across stores."""

    def woken(self, waiter: object, send_hint: Callable[[], None]) -> bool:
        """Send hints until the waiter receives one (a hint may be lost), for some seconds."""
        for _ in range(1_200):
            send_hint()
            if waiter.wait(0.05):  # type: ignore[attr-defined]
                return True
        return False

    @every_engine
    def test_own_process(self, store: Store) -> None:
        """A wake-up reaches only the waiters on its channels; an interrupt reaches any waiter."""
        runs_waiter = store.listen(["runs:default", "cancel"])
        other = store.listen(["schedule"])
        store.wake(["runs:default"])
        assert runs_waiter.wait(60)
        assert not other.wait(0.01)
        other.interrupt()
        assert other.wait(0)
        assert not other.wait(0)
        for waiter in (runs_waiter, other):
            waiter.close()
            waiter.close()
        store.wake(["runs:default"])
        assert not runs_waiter.wait(0.01)

    def test_other_store(self, store: Store, open_store: OpenStore) -> None:
        """A wake-up reaches other stores on the same database."""
        other = open_store()
        waiter = other.listen(["runs:default"])
        assert not waiter.wait(0)
        assert self.woken(waiter, lambda: store.wake(["x", "runs:default"]))
        waiter.close()

    def test_after_the_listener_is_closed(self, store: Store, open_store: OpenStore) -> None:
        """Waking after the only listener closed is allowed, and so is listening again."""
        other = open_store()
        other.listen(["a"])
        other.close()
        store.wake(["a"])
        third = open_store()
        waiter = third.listen(["a"])
        assert self.woken(waiter, lambda: store.wake(["a"]))

    @every_engine
    def test_wake_after_commit(self, world: World) -> None:
        """A hint sent with a transaction arrives once its rows are visible."""
        waiter = world.store.listen(["runs:default"])

        def body(tx: Tx) -> None:
            runs.run_insert_many(tx, [world.new()], "tester")
            tx.after_commit(lambda: world.store.wake(["runs:default"]))

        world.write(body)
        assert waiter.wait(60)
        assert len(world.claim()) == 1
