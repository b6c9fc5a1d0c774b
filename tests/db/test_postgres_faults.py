"""PostgreSQL stops, restarts and kills connections; the same store object continues to work."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psycopg
import pytest

from penstock.access.store import registry
from penstock.core.errors import StoreUnavailable
from penstock.db import migrate
from penstock.db.postgres.store import PostgresStore
from penstock.db.store import Single, Tx
from penstock.testing.postgres.server import PostgresServer
from tests.conftest import OpenStore
from tests.db.test_drivers import add, has, together

pytestmark = [pytest.mark.postgres, pytest.mark.chaos]


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """Start a separate server that the tests can stop and start."""
    with PostgresServer() as server:
        store = PostgresStore(server.create_database("faults_template"))
        store.migrate()
        store.close()
        yield server


@pytest.fixture
def own_store(own_server: PostgresServer) -> Iterator[PostgresStore]:
    """Open a store on that server."""
    with psycopg.connect(own_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE faults TEMPLATE faults_template STRATEGY FILE_COPY")
    store = PostgresStore(own_server.dsn("faults"))
    yield store
    store.close()
    own_server.start()
    own_server.drop_database("faults")


def kill_connections(dsn: str) -> int:
    """Terminate all other connections to the database and wait for it. Return how many."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    return len(rows)


def fill_pool(store: PostgresStore, n: int) -> None:
    """Open `n` connections at once, so that the pool holds that many idle ones."""
    barrier = threading.Barrier(n)
    assert together(*[lambda: store.read(lambda _: barrier.wait(60))] * n) == []


def message(text: str) -> dict[str, str | None]:
    """Return a row of the outbox, which accepts the same message any number of times."""
    return {"topic": "t", "ordering_key": None, "payload": text}


def put(store: PostgresStore, text: str) -> None:
    """Write a message with a body of one statement."""
    store.write(Single(lambda tx: tx.run("outbox_put", message(text))))


def taken(store: PostgresStore) -> list[str]:
    """Take all messages."""
    rows = store.write(lambda tx: tx.rows("outbox_take", {"n": 100}))
    return [row[3] for row in sorted(rows)]


def test_stop_and_restart(own_server: PostgresServer, own_store: PostgresStore) -> None:
    """While the server is down, calls fail as unavailable; after its restart they work again."""
    add(own_store, "before")
    own_server.stop()
    for call in (own_store.read, own_store.write):
        with pytest.raises(StoreUnavailable):
            call(lambda tx: registry.customer_get(tx, "before"))
    own_server.start()
    assert has(own_store, "before")
    add(own_store, "after")
    assert has(own_store, "after")


def test_restart_between_calls(own_server: PostgresServer, own_store: PostgresStore) -> None:
    """A restart between two calls is transparent to the second."""
    fill_pool(own_store, 4)
    own_server.restart()
    add(own_store, "x")
    assert has(own_store, "x")


@pytest.mark.parametrize("idle", [1, 10])
def test_killed_idle_connections(
    own_server: PostgresServer, own_store: PostgresStore, idle: int
) -> None:
    """Dead connections in the pool, even all of them, are replaced transparently."""
    fill_pool(own_store, idle)
    assert kill_connections(own_server.dsn("faults")) >= idle
    for number in range(12):
        add(own_store, f"c{number}")
    assert has(own_store, "c11")


def test_killed_inside_a_transaction(own_server: PostgresServer, own_store: PostgresStore) -> None:
    """A connection killed inside a body fails that call, rolled back, and no later one."""

    def body(tx: Tx) -> None:
        registry.customer_ensure_many(tx, ["x"])
        kill_connections(own_server.dsn("faults"))
        registry.customer_ensure_many(tx, ["y"])

    with pytest.raises(StoreUnavailable) as raised:
        own_store.write(body)
    assert "\n" not in str(raised.value), "libpq's lines are one line of a log"
    assert not has(own_store, "x")
    add(own_store, "x")


def test_killed_before_commit(own_server: PostgresServer, own_store: PostgresStore) -> None:
    """A connection killed before COMMIT is reported as such, and callbacks do not run."""
    called: list[int] = []

    def body(tx: Tx) -> None:
        registry.customer_ensure_many(tx, ["x"])
        tx.after_commit(lambda: called.append(1))
        kill_connections(own_server.dsn("faults"))

    with pytest.raises(StoreUnavailable) as raised:
        own_store.write(body)
    assert raised.value.ambiguous
    assert called == []
    assert not has(own_store, "x")


def test_single_after_killed_connections(
    own_server: PostgresServer, own_store: PostgresStore
) -> None:
    """A body of one statement skips dead idle connections, and is not written twice."""
    fill_pool(own_store, 3)
    assert kill_connections(own_server.dsn("faults")) >= 3
    for number in range(6):
        put(own_store, f"m{number}")
    assert taken(own_store) == [f"m{number}" for number in range(6)]


def test_single_killed_in_flight(own_server: PostgresServer, own_store: PostgresStore) -> None:
    """If killed between the check and the response, the outcome of a single body is unknown."""
    called: list[int] = []

    def body(tx: Tx) -> None:
        tx.after_commit(lambda: called.append(1))
        kill_connections(own_server.dsn("faults"))
        tx.run("outbox_put", message("lost"))

    with pytest.raises(StoreUnavailable) as raised:
        own_store.write(Single(body))
    assert raised.value.ambiguous
    assert called == []
    assert taken(own_store) == []


def test_single_is_one_statement(own_store: PostgresStore) -> None:
    """A second statement of a single body is refused before it is sent."""

    def body(tx: Tx) -> None:
        tx.run("outbox_put", message("first"))
        tx.run("outbox_put", message("second"))

    with pytest.raises(AssertionError, match="one statement"):
        own_store.write(Single(body))
    assert taken(own_store) == ["first"]


def test_listener_reconnects(own_server: PostgresServer, own_store: PostgresStore) -> None:
    """After its connection was killed, a listener receives hints again."""
    other = PostgresStore(own_server.dsn("faults"))
    waiter = own_store.listen(["a"])

    def hint_arrives() -> bool:
        for _ in range(1_200):
            other.wake(["a"])
            if waiter.wait(0.05):
                return True
        return False

    assert hint_arrives()
    kill_connections(own_server.dsn("faults"))
    waiter.wait(0)
    assert hint_arrives()
    other.close()


def test_migrations_wait_for_no_worker(
    own_server: PostgresServer, own_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a worker uses a table, migrations release all others and start again."""
    made = SimpleNamespace(number=9_999, name="new")
    monkeypatch.setattr(migrate, "missing", lambda *_: [made])
    monkeypatch.setattr(migrate, "scripts", lambda _: ["LOCK TABLE configs, runs"])
    monkeypatch.setattr(migrate, "record_sql", lambda *_: "SELECT 1")
    again = threading.Semaphore(0)
    back_off = PostgresStore._back_off

    def noted(store: PostgresStore, attempt: int) -> None:
        again.release()
        back_off(store, attempt)

    monkeypatch.setattr(PostgresStore, "_back_off", noted)
    with psycopg.connect(own_server.dsn("faults")) as worker, ThreadPoolExecutor(1) as threads:
        worker.execute("LOCK TABLE runs IN ACCESS SHARE MODE")
        migrated = threads.submit(own_store.migrate)
        for _ in range(2):
            assert again.acquire(timeout=60)
        worker.execute("LOCK TABLE configs IN ACCESS SHARE MODE")  # no deadlock
        worker.commit()
        assert migrated.result(60) == ["9999_new"]


def test_deadlock_is_repeated(own_store: PostgresStore) -> None:
    """Deadlocked bodies are repeated until both have committed, each callback once."""
    add(own_store, "a")
    add(own_store, "b")
    both = threading.Barrier(2)
    called: list[str] = []
    tries: list[str] = []

    def body(first: str, second: str) -> None:
        def lock(tx: Tx) -> None:
            tries.append(first)
            for name in (first, second):
                number = registry.customer_get(tx, name)
                tx.rows("customer_lock_many", batch=[(number,)])
                if len(tries) <= 2 and name == first:
                    both.wait(60)
            tx.after_commit(lambda: called.append(first))

        own_store.write(lock)

    assert together(lambda: body("a", "b"), lambda: body("b", "a")) == []
    assert sorted(called) == ["a", "b"]
    assert len(tries) >= 3  # the repeated one may meet the other again before it goes on


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_reserved_connection(open_store: OpenStore) -> None:
    """Heartbeats have a connection even if all others are in use."""
    store = open_store(clock=None)
    reserved = store.reserved()
    gate = threading.Event()
    ready = threading.Barrier(11)

    def hold(_: Tx) -> None:
        ready.wait(60)
        assert gate.wait(60)

    threads = [threading.Thread(target=lambda: store.read(hold)) for _ in range(10)]
    for thread in threads:
        thread.start()
    ready.wait(60)
    add(reserved, "beat")
    gate.set()
    for thread in threads:
        thread.join(60)
    assert has(store, "beat")
