"""Claims that start above dead index entries, and tables that stay fast beside a snapshot."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.access.shares import STRIDE
from penstock.core.naming import PoolKey
from penstock.db.postgres.store import PostgresStore
from penstock.db.statements import load
from penstock.runs.claim_start import HEAD_SECONDS, HEAD_SHARE, SETTLE_SECONDS, ClaimStart
from penstock.runs.rows import HeldRun
from penstock.runs.store import runs
from penstock.runs.store.runs import Claim
from penstock.testing.clock import VirtualClock
from tests.kits.world import World


def claim_from(world: World, starts: dict[int, int] | None, n: int = 100) -> list[HeldRun]:
    """Claim from fair ranks."""
    claim = Claim(
        pool_key=PoolKey(world.pool), processors=[world.processor], n=n, start_ranks=starts
    )
    return world.write(lambda tx: runs.run_claim(tx, claim))


def from_rank(rank: int) -> dict[int, int]:
    """Return the same start for every level."""
    return dict.fromkeys(range(10, 0, -1), rank)


class TestClaimStart:
    """When a claim may start above the head."""

    def held(self, world: World, n: int) -> list[HeldRun]:
        """Insert and claim runs."""
        world.insert(n)
        return world.claim(n=n)

    def test_head_until_ranks_settle(self, world: World) -> None:
        """Claimed ranks count once the clock has had them for a while."""
        start, runs_held = ClaimStart(), self.held(world, 3)
        start.head_claimed(0.0, 0.0)
        start.clock_raised(runs_held, 0.0)
        assert start.next_claim(HEAD_SECONDS / 2) is None
        start.head_claimed(SETTLE_SECONDS, SETTLE_SECONDS)
        starts = start.next_claim(SETTLE_SECONDS)
        assert starts is not None
        assert list(starts) == list(range(10, 0, -1))
        assert starts[5] == max(run.fair_rank for run in runs_held)
        assert starts[4] == 0

    def test_head_is_read_as_often_as_it_is_cheap(self, world: World) -> None:
        """The next claim from the head comes after a multiple of the last one's duration."""
        start = ClaimStart()
        start.clock_raised(self.held(world, 1), 0.0)
        for began, seconds, pause in ((10.0, 0.0, HEAD_SECONDS), (20.0, 0.4, HEAD_SHARE * 0.4)):
            start.head_claimed(began, began + seconds)
            assert start.next_claim(began + seconds + pause * 0.99) is not None
            assert start.next_claim(began + seconds + pause) is None


class TestStore:
    """Claims from a fair rank."""

    def test_order_and_size(self, world: World) -> None:
        """Levels in order, each from its fair rank on; SQLite reads everything."""
        low = world.insert(4, priority=3)
        high = world.insert(4, priority=8)
        found = [held.run_id for held in claim_from(world, from_rank(3 * STRIDE), n=3)]
        is_postgres = world.store.capabilities.engine == "postgres"
        assert found == ([*high[2:], low[2]] if is_postgres else high[:3])
        rest = [held.run_id for held in claim_from(world, None)]
        assert sorted(found + rest) == sorted(low + high)

    def test_every_run_is_claimed_once(self, world: World) -> None:
        """Claims from above and from the head together claim each run once."""
        ids = set(world.insert(20))
        seen: list[int] = []
        for starts in (from_rank(5), from_rank(11), None, from_rank(1), None):
            seen += [held.run_id for held in claim_from(world, starts, n=6)]
        assert len(seen) == len(set(seen)) == 20
        assert set(seen) == ids


@pytest.fixture
def postgres_world(pg_migrated_dsn: str, clock: VirtualClock) -> Iterator[World]:
    """A world on PostgreSQL."""
    store = PostgresStore(pg_migrated_dsn, clock)
    yield World(store, clock)
    store.close()


def buffers(dsn: str, text: str, params: dict[str, Any]) -> int:
    """Return how many pages a statement reads; its effects are rolled back.

    The fewest of three: an insert that extends a table or splits a page reads more, once.
    """
    pages = []
    with psycopg.connect(dsn, options="-c enable_seqscan=off") as connection:
        for _ in range(3):
            (plan,) = connection.execute(
                ("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + text).encode(), params
            ).fetchone() or ([],)
            connection.rollback()
            top = plan[0]["Plan"]
            pages.append(int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"]))
    return min(pages)


@pytest.mark.postgres
class TestBesideASnapshot:
    """A session that holds a snapshot does not make single statements slower and slower."""

    def churn(self, world: World, times: int, size: int = 20) -> list[HeldRun]:
        """Submit, claim and end runs, one transaction each; return the last claimed."""
        held: list[HeldRun] = []
        for _ in range(times):
            world.insert(size)
            held = world.claim(n=size)
            world.complete(*held)
            world.write(lambda tx, held=held: runs.fair_clock_raise(tx, held))  # type: ignore[misc]
        return held

    def test_claims(self, postgres_world: World, pg_migrated_dsn: str) -> None:
        """A claim from a fair rank reads no more pages than before; one from the head does."""
        world = postgres_world
        common = {
            "pool": world.pool, "processors": [world.processor], "n": 5, "session_id": None,
            "claimed_by": "t", "start": True, "customer": None, "now": None,
        }  # fmt: skip
        texts = {name: load("postgres")[name].texts[0] for name in ("run_claim", "run_claim_from")}

        def pages(last: list[HeldRun]) -> tuple[int, int]:
            starts = from_rank(max(run.fair_rank for run in last))
            above = {"levels": list(starts), "fair_ranks": list(starts.values())}
            return (
                buffers(pg_migrated_dsn, texts["run_claim"], common),
                buffers(pg_migrated_dsn, texts["run_claim_from"], common | above),
            )

        with psycopg.connect(pg_migrated_dsn) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1 FROM runs")
            last = self.churn(world, 1)
            world.insert(5)
            _, before = pages(last)
            last = self.churn(world, 30, size=100)
            world.insert(5)
            head, above = pages(last)
        assert above <= before + 40, (before, head, above)
        assert head > above + 80, (before, head, above)

    @pytest.mark.parametrize("is_single", [True, False])
    def test_inserts(self, postgres_world: World, pg_migrated_dsn: str, is_single: bool) -> None:
        """The fair rank of a customer is found at once, however often it has been raised."""
        world = postgres_world
        statement = load("postgres")["run_insert_many"]
        row = dict.fromkeys((c.name for c in statement.batch), None) | {
            "customer": world.customer, "processor": world.processor, "priority": 5, "attempt": 1,
            "trigger_source": "manual", "item_key": "",
        }  # fmt: skip
        if is_single:
            text, params = statement.one[0], {f"o_{k}": v for k, v in row.items()}
        else:
            text, params = statement.texts[0], {f"b_{k}": [v] * 2 for k, v in row.items()}
        params |= {"actor": "t", "now": None}
        with psycopg.connect(pg_migrated_dsn) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1 FROM fair_ranks")
            self.churn(world, 1)
            with psycopg.connect(pg_migrated_dsn) as churning:
                churning.execute(
                    "DO $$ BEGIN FOR i IN 1..4000 LOOP"
                    " UPDATE fair_ranks SET fair_rank = fair_rank + 1; END LOOP; END $$"
                )
            pages = buffers(pg_migrated_dsn, text, params)
        assert pages <= 60
