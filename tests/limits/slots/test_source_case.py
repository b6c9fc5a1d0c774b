"""The original use case of limits: 30 messages at once, one table, a quota, three processes."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock import limits
from penstock.client import Client
from penstock.limits.bigquery import DmlOptions, run_dml
from penstock.limits.slots.registry import broker_for_store
from penstock.limits.slots.retry import QuotaRetry
from penstock.limits.slots.slot import Slot
from tests.conftest import OpenStore
from tests.limits.slots.kit import StoredLimit, until
from tests.limits.slots.test_retry import Forbidden

TEAMS = 30
PROCESSES = 3


class Gatekeeper:
    """A real table that rejects more concurrent writers than its quota."""

    def __init__(self, path: Path, quota: int) -> None:
        self._table = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._table.execute("CREATE TABLE rosters (team INTEGER PRIMARY KEY, token INTEGER)")
        self._quota = quota
        self._lock = threading.Lock()
        self._active = 0
        self.most = 0
        self.errors = 0

    def merge(self, team: int, token: int) -> None:
        """Execute one MERGE, which takes 20 ms."""
        with self._lock:
            if self._active >= self._quota:
                self.errors += 1
                raise Forbidden("403 Quota exceeded: too many DML jobs", "quotaExceeded")
            self._active += 1
            self.most = max(self.most, self._active)
        threading.Event().wait(0.02)
        with self._lock:
            self._table.execute("INSERT INTO rosters VALUES (?, ?)", (team, token))
            self._active -= 1

    def close(self) -> int:
        """Close the table and return its number of rows."""
        (count,) = self._table.execute("SELECT count(*) FROM rosters").fetchone()
        self._table.close()
        return int(count)


def play(gate: Gatekeeper, open_store: OpenStore, capacity: int) -> None:
    """Handle all messages at once over three stores, and so three brokers, like three processes."""
    clients = [Client(open_store(clock=None)) for _ in range(PROCESSES)]
    limits.declare("bq:nba.rosters", capacity=capacity, adaptive=True, client=clients[0])
    quick = QuotaRetry(initial_us=20_000, random=lambda: 0.5)

    def handle(team: int) -> None:
        options = DmlOptions(client=clients[team % PROCESSES], retry=quick)

        def job(slot: Slot) -> None:
            gate.merge(team, slot.token)

        run_dml(job, table="nba.rosters", options=options)

    with ThreadPoolExecutor(TEAMS) as pool:
        list(pool.map(handle, range(TEAMS)))
    until(lambda: StoredLimit(clients[0].store, "bq:nba.rosters").holders == [])
    for client in clients:
        broker_for_store(client.store).close()


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.postgres
def test_a_configured_quota(open_store: OpenStore, tmp_path: Path) -> None:
    """If the capacity equals the quota, there are no quota errors and all messages are handled."""
    gate = Gatekeeper(tmp_path / "table.db", 10)
    play(gate, open_store, 10)
    assert gate.errors == 0
    assert gate.most <= 10
    assert gate.close() == TEAMS


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.postgres
def test_a_learned_quota(open_store: OpenStore, tmp_path: Path) -> None:
    """With capacity 10 and quota 4, a bounded number of errors lowers the capacity, and all
    messages are handled.
    """
    gate = Gatekeeper(tmp_path / "table.db", 4)
    play(gate, open_store, 10)
    assert gate.most <= 4
    assert gate.close() == TEAMS
    assert 0 < gate.errors <= TEAMS
