"""Penstock through a real PgBouncer, in transaction and in session mode."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from penstock.assembly import settings
from penstock.assembly.database import open_store
from penstock.assembly.process import run_pending
from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.client import Client
from penstock.core.errors import SettingsError
from penstock.db.postgres.pooler_detection import detect_pooler
from penstock.db.store import Store, Tx
from penstock.flows.records import FlowRequest
from penstock.monitoring.cli.doctor import _pooler
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import text
from penstock.runs.records import Submission
from penstock.testing.postgres.server import PostgresServer
from penstock.worker.context import RunContext
from tests.db.test_drivers import add, has, together
from tests.kits.pgbouncer import POOL_SIZE, pgbouncer, pgbouncer_find

pytestmark = pytest.mark.postgres

THREADS = 4 * POOL_SIZE
DATABASE = "pooled"
MODES = ("transaction", "session")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Start a server of our own, with an empty database for each mode."""
    pgbouncer_find()
    with PostgresServer() as server:
        for mode in MODES:
            server.create_database(f"{DATABASE}_{mode}")
        yield server


@pytest.fixture(scope="module", params=MODES)
def url(request: pytest.FixtureRequest, server: PostgresServer) -> Iterator[str]:
    """Return the URL of a database through a pooler."""
    with pgbouncer(server, request.param, 20 if request.param == "session" else POOL_SIZE) as port:
        yield f"postgresql://postgres@127.0.0.1:{port}/{DATABASE}_{request.param}"


def mode_of(url: str) -> str:
    return url.rpartition("_")[2]


def load(url: str, **more: str) -> settings.Settings:
    given = {"database_url": url, "database_pooler": mode_of(url), **more}
    return settings.load({}, overrides=given)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Open a store through the pooler."""
    store = open_store(load(url), migrate="always")
    yield store
    store.close()


def work(run: RunContext) -> None:
    """Do nothing."""


def test_work(store: Store) -> None:
    """Queue, flows and bus work, for the operator and for a customer under row-level security."""
    single = Pipeline("single", partition=text("day"))
    single.processor("work")(work)
    double = Pipeline("double", partition=text("day"))
    first = double.phase("first")
    first.processor("one")(work)
    double.phase("second", after=first).processor("two")(work)
    client = Client(store)
    client.register([single, double])
    for n in range(40):
        client.runs.submit(Submission(pipeline="single", customer="acme", partition=f"d{n}"))
    opened = client.flows.trigger(FlowRequest(pipeline="double", customer="acme", partition="d"))
    assert run_pending(client, [single, double]) == 42
    assert client.flows.get(opened.flow.flow_id).flow.state == "COMPLETE"
    acme = client.scoped("acme")
    assert len(acme.runs.list(limit=100).items) == 42
    client.topics.create(Topic(name="tasks"))
    wanted = Subscription(name="all-tasks", topic="tasks", ack_deadline=timedelta(minutes=1))
    client.subscriptions.declare(wanted)
    client.topics.publish("tasks", [NewMessage(data=f"{n}".encode()) for n in range(50)])
    pulled = client.subscriptions.pull("all-tasks", max_messages=100)
    assert len(pulled) == 50
    client.subscriptions.ack("all-tasks", [one.ack_id for one in pulled])
    assert client.subscriptions.get("all-tasks").backlog.ready == 0


def test_many_threads(store: Store, url: str) -> None:
    """More transactions at once than sessions; each has its settings, none leaves them behind."""

    def body(tx: Tx) -> list[tuple[str, ...]]:
        connection = tx._connection  # type: ignore[attr-defined]
        names = ("lock_timeout", "enable_seqscan", "jit")
        rows = [connection.execute(f"SHOW {name}").fetchone() for name in names]
        return [row for row in rows if row is not None]

    def one(number: int) -> None:
        for _ in range(5):
            assert store.write(body) == [("30s",), ("off",), ("off",)]
            assert store.read(body)[:2] == [("30s",), ("on",)]
            add(store, f"c{number}")
            assert has(store, f"c{number}")

    calls = [lambda number=number: one(number) for number in range(THREADS)]
    assert together(*calls) == []
    if mode_of(url) == "transaction":
        with psycopg.connect(url) as plain:
            assert plain.execute("SHOW enable_seqscan").fetchone() == ("on",)


def test_wakes(url: str, server: PostgresServer, store: Store) -> None:
    """Wake-ups of other processes arrive over a session; a transaction pooler has none."""
    assert store.capabilities.cross_process_wake == (mode_of(url) == "session")
    direct = server.dsn(f"{DATABASE}_{mode_of(url)}")
    listening = open_store(load(url, database_direct_url=direct))
    waiter = listening.listen(["a"])
    for _ in range(1_200):
        store.wake(["a"])
        if waiter.wait(0.05):
            break
    else:
        pytest.fail("no wake-up arrived")
    listening.vacuum(["runs"])
    listening.close()
    assert not any(t.name == "penstock-listen" for t in threading.enumerate())
    store.listen(["a"]).close()
    is_listening = any(thread.name == "penstock-listen" for thread in threading.enumerate())
    assert is_listening == (mode_of(url) == "session")


def test_pooler_not_set(url: str) -> None:
    """Without the setting the store is not opened, and the error names the setting."""
    with pytest.raises(SettingsError, match="database_pooler"):
        open_store(load(url, database_pooler="none"))


def test_doctor(url: str, server: PostgresServer, store: Store) -> None:
    """The pooler is detected, and a wrong or missing setting reported."""
    assert has(store, "nobody") is False
    direct = server.dsn(f"{DATABASE}_{mode_of(url)}")
    assert detect_pooler(direct) == "none"
    assert detect_pooler(url) == mode_of(url)
    verdicts = {
        pooler: [one.verdict for one in _pooler(load(url, database_pooler=pooler))]
        for pooler in ("none", "session", "transaction")
    }
    if mode_of(url) == "transaction":
        assert verdicts == {"none": ["FAIL"], "session": ["FAIL"], "transaction": ["WARN"]}
        chosen = load(url, database_direct_url=direct)
        assert [one.verdict for one in _pooler(chosen)] == ["OK"]
    else:
        assert verdicts["session"] == ["OK"]
