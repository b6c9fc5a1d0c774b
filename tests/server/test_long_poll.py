"""Long polls: answered when there is a run, and almost free before."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.audit.telemetry import Served as ServedEvent
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.records import Submission
from penstock.server.polling.poll_hub import POLL_SECONDS
from tests.conftest import OpenStore
from tests.kits.client_harness import Harness
from tests.server.kit import ServedApi

SECONDS = 50
CLAIM = "/scheduler/claim-runs"


class Poll(threading.Thread):
    """A worker that long-polls for a run."""

    def __init__(self, served: ServedApi, name: str = "worker", **asked: Any) -> None:
        super().__init__(daemon=True)
        self._by = served.by(name)
        self._asked = {"worker_id": "w1", "wait_seconds": SECONDS, **asked}
        self.claimed: list[dict[str, Any]] | None = None
        self.status = 0
        self.start()

    def run(self) -> None:
        """Send one claim request."""
        reply = self._by.post(CLAIM, self._asked)
        self.status = reply.status
        self.claimed = reply.json.get("claimed_runs")

    def claimed_runs(self, seconds: float = 20) -> list[dict[str, Any]]:
        """Return the claimed runs."""
        self.join(seconds)
        assert not self.is_alive(), "it is still waiting"
        assert self.claimed is not None, self.status
        return self.claimed


class Attempts:
    """Counts claim attempts; nothing else writes to the database here."""

    def __init__(self, served: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n = 0
        self._lock = threading.Lock()
        write = served.harness.store.write

        def counted(body: Any) -> Any:
            with self._lock:
                self.n += 1
            return write(body)

        monkeypatch.setattr(served.harness.store, "write", counted)


def waiting(served: ServedApi, n: int) -> None:
    """Wait until n workers are waiting."""
    until(lambda: served.api.waiting.count == n)


def server_threads() -> set[str]:
    """Return the names of Penstock's threads; those of the thread pool are bounded elsewhere."""
    return {one.name for one in threading.enumerate() if one.name.startswith("penstock")}


def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds."""
    gate = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        gate.wait(0.01)
    raise AssertionError("the condition never held")


class TestAnswers:
    """Responses to waiting claims."""

    def test_a_run_is_submitted(self, served: ServedApi) -> None:
        """A waiting worker receives a run submitted over the API."""
        poll = Poll(served)
        waiting(served, 1)
        made = served.by("operator").ok(
            "POST", "/customers/acme/pipeline-runs", {"pipeline_template": "outside"}
        )
        (run,) = poll.claimed_runs()
        assert run["run_id"] == made["run_id"]
        waiting(served, 0)

    def test_work_that_is_there(self, served: ServedApi) -> None:
        """A claim does not wait if a run is ready."""
        served.harness.submit("outside")
        assert len(Poll(served).claimed_runs()) == 1

    def test_no_work(self, served: ServedApi) -> None:
        """Without work the response is empty: after the waiting time, or at once without one."""
        assert Poll(served, wait_seconds=0.2).claimed_runs() == []
        assert Poll(served, wait_seconds=0).claimed_runs() == []
        waiting(served, 0)

    def test_another_store(self, served: ServedApi, open_store: OpenStore) -> None:
        """A run submitted through another store of the same database wakes the worker."""
        poll = Poll(served)
        waiting(served, 1)
        Harness(open_store(), served.harness.clock).submit("outside")
        assert len(poll.claimed_runs()) == 1

    def test_another_process(self, served: ServedApi, store: Store, request: Any) -> None:
        """A run submitted by another process wakes the worker, on either engine."""
        where = request.getfixturevalue("pg_migrated_dsn" if is_postgres(store) else "tmp_path")
        opened = "PostgresStore(w)" if is_postgres(store) else "SqliteStore(w + '/penstock.db')"
        module = "postgres" if is_postgres(store) else "sqlite"
        program = (
            f"from penstock.db.{module}.store import *\n"
            "from penstock.client import Client\nfrom penstock.runs.records import Submission\n"
            f"w = {str(where)!r}\ns = {opened}\n"
            "Client(s).runs.submit(Submission(pipeline='outside', customer='acme'))\ns.close()\n"
        )
        # The virtual clock is in the past; the other process's run is due once it is advanced.
        served.harness.clock.advance_to(2_000_000_000_000_000)
        poll = Poll(served)
        waiting(served, 1)
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
        assert len(poll.claimed_runs()) == 1

    def test_polled_subscriptions_need_no_threads(self, served: ServedApi) -> None:
        """However many subscriptions callers poll, the server starts no thread for them."""
        by = served.by("admin")
        by.ok("POST", "/topics", {"name": "events"})
        names = [f"reader-{n}" for n in range(12)]
        for name in names:
            by.ok("POST", "/subscriptions", {"name": name, "topic": "events"})
        before = server_threads()
        found: dict[str, int] = {}

        def pull(name: str) -> None:
            reply = served.by("worker").ok(
                "POST", f"/subscriptions/{name}/pull", {"wait_seconds": SECONDS}
            )
            found[name] = len(reply["received_messages"])

        polls = [threading.Thread(target=pull, args=(name,), daemon=True) for name in names]
        for poll in polls:
            poll.start()
        waiting(served, len(names))
        assert server_threads() - before <= {"penstock-listen"}, "one for the whole process"
        by.ok("POST", "/topics/events/publish", {"messages": [{"data": "MQ=="}]})
        for poll in polls:
            poll.join(60)
        assert found == dict.fromkeys(names, 1), "each of them is woken"
        waiting(served, 0)

    def test_with_a_key_there_is_no_wait(self, served: ServedApi) -> None:
        """A claim with an Idempotency-Key is answered at once and its response is final."""
        by = served.by("worker")
        body = {"worker_id": "w1", "wait_seconds": SECONDS}
        assert by.ok("POST", CLAIM, body, Idempotency_Key="k") == {"claimed_runs": []}
        served.harness.submit("outside")
        assert by.ok("POST", CLAIM, body, Idempotency_Key="k") == {"claimed_runs": []}

    @pytest.mark.parametrize("asked", [{"pool": "nowhere"}, {"processors": ["no/such/one"]}])
    def test_refused_before_it_waits(self, served: ServedApi, asked: dict[str, Any]) -> None:
        """An invalid claim is refused immediately, and no channel is listened to for it."""
        before = threading.active_count()
        for _ in range(5):
            reply = served.by("worker").post(
                CLAIM, {"worker_id": "w1", "wait_seconds": SECONDS, **asked}
            )
            assert reply.status == 400
        assert threading.active_count() <= before + 1
        waiting(served, 0)
        poll = Poll(served)
        waiting(served, 1)
        served.harness.submit("outside")
        assert len(poll.claimed_runs()) == 1, "a failed attempt consumes no wake-up"


class TestQueues:
    """Many waiting workers."""

    def test_fifty_waiters_one_run(
        self, served: ServedApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One of fifty workers receives the run; the wake-up costs few queries, not fifty."""
        attempts = Attempts(served, monkeypatch)
        polls = [Poll(served, worker_id=f"w{n}") for n in range(50)]
        waiting(served, 50)
        until(
            lambda: attempts.n >= 50 and served.api.app.active == 0
        )  # no attempt is running any more
        before = attempts.n
        served.harness.submit("outside")
        until(lambda: any(not poll.is_alive() for poll in polls))
        waiting(served, 49)
        # The one that got it, the next that found nothing, and those of the timer.
        assert attempts.n - before <= 20
        claimed = [poll for poll in polls if not poll.is_alive()]
        assert len(claimed) == 1
        served.api.waiting.is_stopping = True
        served.api.waiting.release()
        claims = [poll.claimed_runs() for poll in polls]
        assert sorted(len(runs) for runs in claims) == [0] * 49 + [1]

    def test_many_runs(self, served: ServedApi) -> None:
        """Ten waiting workers receive ten runs submitted at once."""
        polls = [Poll(served, worker_id=f"w{n}") for n in range(10)]
        waiting(served, 10)
        wanted = Submission(pipeline="outside", customer="acme")
        served.harness.client.runs.submit_many([wanted] * 10)
        runs = [run["run_id"] for poll in polls for run in poll.claimed_runs()]
        assert len(set(runs)) == 10

    def test_wakeups_by_customer_and_processor(self, served: ServedApi) -> None:
        """A wake-up is not spent on a worker of another customer or processor."""
        other = Pipeline("other")
        other.phase("main").external("pull")
        served.harness.client.register([other])
        wrong = [Poll(served, "globex-worker", worker_id=f"g{n}") for n in range(8)]
        wrong += [Poll(served, worker_id=f"o{n}", processors=["other"]) for n in range(8)]
        waiting(served, 16)
        right = Poll(served, "acme-worker", worker_id="right", processors=["outside"])
        waiting(served, 17)
        served.harness.submit("outside")
        # In one queue of seventeen the timer would reach it only after many seconds.
        assert len(right.claimed_runs(4 * POLL_SECONDS)) == 1
        assert all(poll.is_alive() for poll in wrong)


class TestLeaving:
    """Disconnected workers claim nothing."""

    def test_disconnected_waiters_leave(self, served: ServedApi) -> None:
        """A worker whose connection is closed leaves the queue and claims nothing."""
        connections = [hanging(served) for _ in range(5)]
        waiting(served, 5)
        for connection in connections:
            connection.close()
        waiting(served, 0)
        run = served.harness.submit("outside")
        assert served.harness.run(run).state == "PENDING"
        assert len(Poll(served).claimed_runs()) == 1

    def test_next_waiter_is_called(self, served: ServedApi) -> None:
        """The next worker is called if the first one has left."""
        first = hanging(served)
        waiting(served, 1)
        poll = Poll(served)
        waiting(served, 2)
        first.close()
        waiting(
            served, 1
        )  # before the server notices, the run may be claimed for the disconnected one
        served.harness.submit("outside")
        assert len(poll.claimed_runs()) == 1

    def test_stop_releases_them(self, served: ServedApi) -> None:
        """Stopping answers all waiting workers with an empty response."""
        polls = [Poll(served) for _ in range(5)]
        waiting(served, 5)
        served.stop()
        assert [poll.claimed_runs() for poll in polls] == [[]] * 5
        assert {poll.status for poll in polls} == {200}

    def test_waiting_is_not_active(self, harness: Harness) -> None:
        """Waiting workers are not in flight and do not affect the metrics."""
        served = ServedApi(harness, inflight=2)
        try:
            polls = []
            for n in range(5):
                polls.append(Poll(served))
                waiting(served, n + 1)
                until(lambda: served.api.app.active == 0)
            assert served.by("worker").get("/pipeline-runs").status == 200
            assert b"penstock_http_waiting 5.0" in served.by("viewer").get("/metrics").body
            served.api.waiting.is_stopping = True
            served.api.waiting.release()
            assert [poll.claimed_runs() for poll in polls] == [[]] * 5
            until(lambda: served.api.app.active == 0)
            done = [e for e in served.received if isinstance(e, ServedEvent) and CLAIM in e.path]
            assert len(done) == 5
        finally:
            served.stop()


def hanging(served: ServedApi) -> socket.socket:
    """Open a connection on which a claim waits."""
    raw = json.dumps({"worker_id": "gone", "wait_seconds": SECONDS}).encode()
    connection = socket.create_connection(("127.0.0.1", served.server.port), timeout=60)
    head = (
        f"POST /api/v1{CLAIM} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {served.keys['worker']}\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    connection.sendall(head.encode() + raw)
    return connection


def is_postgres(store: Store) -> bool:
    """Return whether the store is PostgreSQL."""
    return store.capabilities.engine == "postgres"
