"""The stage of the interleaving tests: a database, an arena on it, and helpers to set up scenes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.client import Client
from penstock.core.clock import MINUTE, SECOND
from penstock.core.ids import decode
from penstock.core.naming import PoolKey
from penstock.db.postgres.store import PostgresStore
from penstock.db.store import Store
from penstock.runs import attempt_result
from penstock.runs.records import Submission
from penstock.runs.rows import HeldRun
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.leases import session_open
from penstock.runs.store.runs import Claim, run_claim
from penstock.testing.clock import VirtualClock
from tests.harness.interleaving import Act, Arena
from tests.harness.simulation import START, declared
from tests.kits.configs import create_config

LEASE_US = 30 * SECOND
_EMPTY = (
    "runs", "history", "journal", "seals", "outbox", "leases", "sessions", "ledger", "schedule",
    "config_health", "dead_letters", "pauses", "turns", "audit", "configs", "progress", "alerts",
    "requests", "run_sums", "cohort_sums", "flows", "flow_phases", "completions", "triggers",
    "nudges", "decisions", "generations", "breakers", "interventions", "overrides", "execution_log",
    "phase_completion_log", "dependency_check_log", "run_limits", "limit_leases", "limit_tickets",
    "expansions", "expansion_items", "item_completions", "item_counts", "customer_settings",
    "quota_retries",
)  # fmt: skip


class Stage:
    """One database, emptied for every scene."""

    def __init__(self, dsn: str) -> None:
        self.clock = VirtualClock(START)
        self.store = PostgresStore(dsn, self.clock)
        self.store.migrate()
        self.client = Client(self.store)
        self.client.register(declared())
        self.arena = Arena(dsn, self.clock, actors=4)
        self.pool = int(self.value("SELECT pool FROM pools WHERE name = 'default'"))
        self.processors = [
            row[0]
            for row in self.sql("SELECT processor FROM processors WHERE pool = %s", self.pool)
        ]
        self._boots = 0

    def close(self) -> None:
        """Release everything."""
        self.arena.close()
        self.store.close()

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        """Run any statement, bypassing the store."""
        cursor = self.arena._watch.execute(text.encode(), params)
        return cursor.fetchall() if cursor.description else []

    def value(self, text: str, *params: Any) -> Any:
        """Return the single value of a query."""
        return self.sql(text, *params)[0][0]

    def empty(self) -> None:
        """Start a new scene: no runs, no configs, no sessions."""
        self.arena._watch.execute(
            ";".join([*(f"DELETE FROM {name}" for name in _EMPTY),
                      "UPDATE customers SET audit_n = 0, audit_head = ''"]).encode()
        )  # fmt: skip

    def submit(self, n: int = 1, *, customer: str = "acme", key: str | None = None) -> list[int]:
        """Submit ready runs of the pipeline `single`."""
        wanted = Submission(pipeline="single", customer=customer, ordering_key=key)
        return [decode("run", self.client.runs.submit(wanted).run_id) for _ in range(n)]

    def session(self, lease_us: int = LEASE_US) -> int:
        """Open a live session of a worker."""
        self._boots += 1
        params = {"boot_id": f"boot-{self._boots}", "kind": "worker", "name": f"w{self._boots}",
                  "host": "here", "pid": 1, "pool": self.pool, "slots": 5,
                  "lease_us": lease_us}  # fmt: skip
        return self.store.write(lambda tx: session_open(tx, params))

    def claim(self, session_id: int, n: int = 5, *, start: bool = False) -> list[HeldRun]:
        """Claim immediately, outside the arena."""
        return claim_act(self, session_id, n, start=start)(self.store)  # type: ignore[no-any-return]

    def lapse(self) -> None:
        """Let every lease expire."""
        self.clock.advance(10 * MINUTE)

    def config(self, **more: Any) -> int:
        """Create a config of the pipeline `single`, every five minutes, due at the next advance."""
        given = {"pipeline_template": "single", "schedule_type": "INTERVAL",
                 "schedule_interval_minutes": 5, **more}  # fmt: skip
        return create_config(self.client, "acme", given).config_id


def claim_act(stage: Stage, session_id: int, n: int = 5, *, start: bool = False) -> Act:
    """Return a worker's claim."""
    claim = Claim(
        pool_key=PoolKey(stage.pool), processors=stage.processors, n=n, session_id=session_id,
        claimed_by=f"s{session_id}", start=start,
    )  # fmt: skip
    return lambda store: store.write(lambda tx: run_claim(tx, claim))


def finish_act(held: Sequence[HeldRun]) -> Act:
    """Return a worker's end of the runs it holds."""
    ends = [attempt_result.completed_result(run) for run in held]
    return lambda store: store.write(lambda tx: run_end_many(tx, ends))


def submit_act(stage: Stage, *, customer: str = "acme", key: str | None = None, n: int = 1) -> Act:
    """Return a client's submit."""

    def act(store: Store) -> list[int]:
        wanted = Submission(pipeline="single", customer=customer, ordering_key=key)
        client = Client(store)
        client._names._cache.declared = stage.client._names._cache.declared
        return [decode("run", run_id) for run_id in client.runs.submit_many([wanted] * n)]

    return act
