"""Run queues of limits: capacity, all or none, fair ranks, and every way to release."""

import json
from functools import partial
from typing import Any

import pytest

from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.core.naming import ProcessorKey
from penstock.limits.store import run_queue
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.store import pipeline_register
from penstock.runs.admitter import Admitter
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.store import admission, leases, runs
from penstock.services.upkeep import Pruner
from tests.kits.world import World

READY, LATER, PAUSED, BLOCKED, LIMITED, HELD = 0, 1, 2, 3, 4, 9
SCHEMA = {"type": "object", "properties": {"table": {"type": "string"}}}


def nothing(run: Any) -> None:
    """Do nothing, as a processor."""


class LimitWorld:
    """A world whose pipeline `loads` has processors with limits."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.admitter = Admitter(world.store)
        self.pipeline = Pipeline("loads", parameters=SCHEMA)
        self.numbers: dict[str, int] = {}
        boot = {"boot_id": "w", "kind": "worker", "name": "w", "host": "h", "pid": 1,
                "pool": world.pool, "slots": 1, "lease_us": MINUTE}  # fmt: skip
        world.write(lambda tx: leases.session_open(tx, boot))

    def declare(self, **processors: dict[str, Any]) -> None:
        """Register processors with their options."""
        phase = self.pipeline.phase("main")
        for name, options in processors.items():
            phase.processor(name, **options)(nothing)
        numbers = self.world.write(lambda tx: pipeline_register(tx, self.pipeline))
        self.numbers = {name: number for (_, name), number in numbers.items()}

    def put(self, processor: str, n: int = 1, **fields: Any) -> list[int]:
        """Insert runs of a processor."""
        return self.world.insert(n, processor_key=self.numbers[processor], **fields)

    def limit(self, name: str, **values: Any) -> None:
        """Change a limit directly in the database."""
        sets = ", ".join(f"{word} = {value}" for word, value in values.items())
        self.world.sql(f"UPDATE limits SET {sets} WHERE name = '{name}'")

    def held(self, name: str) -> int:
        """Return the held weight of a limit."""
        return int(self.world.value(
            "SELECT coalesce(sum(e.weight), 0) FROM limit_leases e JOIN limits l "
            f"ON l.limit_id = e.limit_id WHERE l.name = '{name}'"
        ))  # fmt: skip

    def admit(self) -> None:
        """Run the admitter once, with every check due."""
        self.world.clock.advance(2 * SECOND)
        self.admitter.run_once()

    def check(self) -> None:
        """Check that a run's leases and queue entries match its row."""
        rows = self.world.sql(
            "SELECT r.admission, r.limits, "
            "(SELECT count(*) FROM limit_leases e WHERE e.run_id = r.run_id), "
            "(SELECT count(*) FROM run_limits w WHERE w.run_id = r.run_id) FROM runs r"
        )
        for mark, count, holds, waits in rows:
            assert holds == (count if mark in (READY, HELD) else 0)
            assert waits == (count if mark == LIMITED else 0)
        over = self.world.sql(
            "SELECT l.name FROM limits l WHERE l.capacity < (SELECT coalesce(sum(e.weight), 0) "
            "FROM limit_leases e WHERE e.limit_id = l.limit_id)"
        )
        assert over == []


@pytest.fixture
def limited(world: World) -> LimitWorld:
    """A world with limits."""
    return LimitWorld(world)


def table(name: str) -> str:
    """Return parameters that name a table."""
    return json.dumps({"table": name})


class TestCapacity:
    """Only as many runs as fit become claimable."""

    def test_a_processor_has_its_concurrency(self, limited: LimitWorld) -> None:
        """Three at a time; the transaction that ends one admits the next."""
        limited.declare(load={"concurrency": 3})
        ids = limited.put("load", 10)
        assert set(limited.world.marks(ids)) == {LIMITED}
        limited.admit()
        assert limited.world.marks(ids) == [READY] * 3 + [LIMITED] * 7
        held = limited.world.claim()
        assert [h.run_id for h in held] == ids[:3]
        assert limited.world.claim() == []
        limited.world.complete(held[0], held[2])
        assert [h.run_id for h in limited.world.claim()] == ids[3:5]
        assert limited.held("processor:loads/main/load") == 3
        limited.check()

    def test_limits_by_parameter_are_shared(self, limited: LimitWorld) -> None:
        """A table's limit applies across processors; another table has its own."""
        limited.declare(one={"limits": ["bq:{table}"]}, two={"limits": ["bq:{table}"]})
        limited.put("one", 1, parameters=table("sales"))
        limited.admit()
        limited.limit("bq:sales", capacity=2)
        ones = limited.put("one", 3, parameters=table("sales"))
        twos = limited.put("two", 3, parameters=table("sales"))
        other = limited.put("two", 3, parameters=table("stock"))
        nothing = limited.put("two", 1)
        limited.admit()
        assert limited.world.marks([*ones, *twos]) == [READY] + [LIMITED] * 5
        assert limited.world.marks([*other, *nothing]) == [READY] * 4
        assert limited.held("bq:none") == 1
        limited.check()

    def test_per_customer_and_per_key(self, limited: LimitWorld) -> None:
        """Each customer and each key has a limit of its own."""
        limited.declare(load={"per_customer": 1}, keyed={"per_key": "{table}"})
        acme, other = limited.world.customers("acme", "other")
        own, foreign = (
            limited.put("load", 2, customer_key=acme),
            limited.put("load", 2, customer_key=other),
        )
        keyed = [limited.put("keyed", 2, parameters=table(name)) for name in ("a", "b")]
        limited.admit()
        assert limited.world.marks(own) == limited.world.marks(foreign) == [READY, LIMITED]
        assert limited.world.marks(keyed[0]) == limited.world.marks(keyed[1]) == [READY, LIMITED]
        owners = limited.world.sql("SELECT customer FROM limits WHERE name LIKE '%customer:%'")
        assert sorted(row[0] for row in owners) == sorted([acme, other])
        limited.check()

    def test_a_heavy_run_is_not_overtaken(self, limited: LimitWorld) -> None:
        """A run that needs more than is free keeps the runs behind it waiting."""
        limited.declare(light={"limits": ["disk"]}, heavy={"limits": {"disk": 9}})
        first = limited.put("light", 4)
        limited.admit()
        heavy = limited.put("heavy")
        last = limited.put("light", 4)
        limited.admit()
        assert limited.world.marks([*first, *heavy, *last]) == [READY] * 4 + [LIMITED] * 5
        held = limited.world.claim()
        limited.world.complete(*held[:2])
        assert limited.world.marks(heavy) == [LIMITED]
        limited.world.complete(held[2])
        assert limited.world.marks([*heavy, *last]) == [READY] + [LIMITED] * 4
        limited.check()

    def test_weight_above_capacity_runs_alone(self, limited: LimitWorld) -> None:
        """A weight above the capacity waits until the limit is not held at all."""
        limited.declare(light={"limits": ["disk"]}, heavy={"limits": {"disk": 99}})
        (light,) = limited.put("light")
        limited.admit()
        (heavy,) = limited.put("heavy")
        limited.admit()
        assert limited.world.marks([light, heavy]) == [READY, LIMITED]
        limited.world.complete(limited.world.claim_one())
        assert limited.world.marks([heavy]) == [READY]

    def test_capacity_changes_live(self, limited: LimitWorld) -> None:
        """A raised capacity admits more runs; a lowered one admits none until enough have ended."""
        limited.declare(load={"limits": ["disk"]})
        ids = limited.put("load", 30)
        limited.admit()
        assert limited.world.marks(ids).count(READY) == 10
        limited.limit("disk", capacity=15)
        limited.admit()
        assert limited.world.marks(ids).count(READY) == 15
        limited.limit("disk", capacity=2)
        limited.world.complete(*limited.world.claim(n=13))
        assert limited.world.marks(ids[15:]).count(READY) == 0
        limited.world.complete(*limited.world.claim(n=1))
        assert limited.world.marks(ids[15:]).count(READY) == 1

    def test_a_declared_capacity_follows_the_declaration(self, limited: LimitWorld) -> None:
        """A new declaration changes the generated limit when the next run arrives."""
        limited.declare(load={"concurrency": 1})
        ids = limited.put("load", 3)
        limited.admit()
        limited.pipeline = Pipeline("loads")
        limited.declare(load={"concurrency": 3})
        more = limited.put("load", 1)
        limited.admit()
        assert limited.world.marks([*ids, *more]) == [READY] * 3 + [LIMITED]

    def test_limits_removed_from_the_declaration(self, limited: LimitWorld) -> None:
        """Queued runs whose processor no longer has limits become claimable."""
        limited.declare(load={"concurrency": 1})
        ids = limited.put("load", 3)
        limited.pipeline = Pipeline("loads")
        limited.declare(load={})
        limited.admit()
        assert limited.world.marks(ids) == [READY] * 3
        limited.check()


class TestSeveralLimits:
    """Runs with several limits take all or none."""

    def test_takes_all_or_none_and_lets_other_runs_pass(self, limited: LimitWorld) -> None:
        """A run that waits for one limit does not hold the other."""
        limited.declare(
            both={"limits": ["a", "b"]}, a={"limits": ["a"]}, b={"limits": ["b"]},
        )  # fmt: skip
        limited.put("both")
        limited.admit()
        limited.limit("a", capacity=1)
        limited.limit("b", capacity=1)
        limited.world.complete(limited.world.claim_one())
        (on_b,) = limited.put("b")
        limited.admit()
        (both,) = limited.put("both")
        limited.admit()
        (on_a,) = limited.put("a")
        limited.admit()
        assert limited.world.marks([on_b, both, on_a]) == [READY, LIMITED, READY]
        for held in limited.world.claim():
            limited.world.complete(held)
        assert limited.world.marks([both]) == [READY]
        assert (limited.held("a"), limited.held("b")) == (1, 1)
        limited.check()

    def test_no_run_starves(self, limited: LimitWorld) -> None:
        """A run that needs two contended limits is eventually admitted."""
        limited.declare(
            both={"limits": ["a", "b"]}, a={"limits": ["a"]}, b={"limits": ["b"]},
        )  # fmt: skip
        limited.put("both")
        limited.admit()
        limited.limit("a", capacity=1)
        limited.limit("b", capacity=1)
        limited.world.complete(limited.world.claim_one())
        limited.put("a", 2)
        limited.put("b", 2)
        limited.admit()
        (both,) = limited.put("both")
        claimed: list[HeldRun] = []
        passed = 0
        for step in range(30):
            limited.world.clock.advance(MINUTE)
            limited.admitter.run_once()
            claimed += limited.world.claim()
            if both in [h.run_id for h in claimed]:
                break
            # The two limits are never free at the same time.
            done = [h for h in claimed if h.processor_key == limited.numbers["ab"[step % 2]]]
            claimed = [h for h in claimed if h not in done]
            passed += len(limited.world.complete(*done))
            limited.put("a", 1)
            limited.put("b", 1)
            limited.check()
        else:
            pytest.fail("it starved")
        assert passed > 5, "other runs were admitted before it was escalated"

    def test_escalated_runs_keep_what_comes_free(self, limited: LimitWorld) -> None:
        """After ten minutes no run passes it: a free limit is kept until the other is free."""
        limited.declare(
            both={"limits": ["a", "b"]}, a={"limits": ["a"]}, b={"limits": ["b"]},
        )  # fmt: skip
        limited.put("both")
        limited.admit()
        limited.limit("a", capacity=1)
        limited.limit("b", capacity=1)
        limited.world.complete(limited.world.claim_one())
        limited.put("a")
        limited.put("b")
        limited.admit()
        on_a, on_b = sorted(limited.world.claim(), key=lambda h: h.processor_key)[:2]
        (both,) = limited.put("both")
        limited.admit()
        limited.world.clock.advance(11 * MINUTE)
        limited.admit()
        later = limited.put("a")
        limited.admit()
        by_name = {h.processor_key: h for h in (on_a, on_b)}
        limited.world.complete(by_name[ProcessorKey(limited.numbers["a"])])
        limited.admit()
        assert limited.world.marks([both, *later]) == [LIMITED, LIMITED]
        limited.world.complete(by_name[ProcessorKey(limited.numbers["b"])])
        assert limited.world.marks([both, *later]) == [READY, LIMITED]
        limited.check()


class TestOrder:
    """The order of admission."""

    def test_priority_then_fair_rank_then_age(self, limited: LimitWorld) -> None:
        """A backlog is behind another customer's first run; a high priority precedes both."""
        limited.declare(load={"concurrency": 1})
        acme, other = limited.world.customers("acme", "other")
        flood = limited.put("load", 20, customer_key=acme)
        limited.admit()
        late = limited.put("load", 2, customer_key=other)
        first = limited.put("load", 1, customer_key=acme, priority=9)
        limited.admit()
        order = [h.run_id for h in limited.world.drain(batch=1)]
        assert order[:2] == [flood[0], first[0]]
        assert order.index(late[0]) <= 4
        assert order.index(late[1]) <= 6
        assert sorted(order) == sorted([*flood, *late, *first])

    def test_waiting_raises_the_level(self, limited: LimitWorld) -> None:
        """Ten minutes in the queue count as much as one level of priority."""
        limited.declare(load={"concurrency": 1})
        limited.put("load")
        limited.admit()
        (old,) = limited.put("load", priority=5)
        limited.admit()
        limited.world.clock.advance(21 * MINUTE)
        limited.admit()
        limited.world.clock.advance(MINUTE)
        limited.admit()
        (new,) = limited.put("load", priority=6)
        limited.admit()
        limited.world.complete(limited.world.claim_one())
        assert limited.world.marks([old, new]) == [READY, LIMITED]


class TestRelease:
    """Every way to release, and states that never hold."""

    @pytest.fixture
    def pair(self, limited: LimitWorld) -> list[int]:
        """Queue two runs for a limit of one; the first is admitted."""
        limited.declare(load={"concurrency": 1})
        ids = limited.put("load", 2)
        limited.admit()
        assert limited.world.marks(ids) == [READY, LIMITED]
        return ids

    def claimed(self, limited: LimitWorld) -> HeldRun:
        """Claim the admitted run."""
        return limited.world.claim_one()

    def test_a_failure_with_a_retry(self, limited: LimitWorld, pair: list[int]) -> None:
        """The retry waits for its due time without holding, then is queued like any other."""
        (end,) = limited.world.fail(self.claimed(limited), retry_delay_us=SECOND)
        assert end.retry_run_id is not None
        assert limited.world.marks([pair[1], end.retry_run_id]) == [READY, LATER]
        limited.admit()
        assert limited.world.marks([end.retry_run_id]) == [LIMITED]
        limited.world.complete(self.claimed(limited))
        assert limited.world.marks([end.retry_run_id]) == [READY]
        limited.check()

    def test_release_and_snooze(self, limited: LimitWorld, pair: list[int]) -> None:
        """A requeued run holds nothing; the next one is admitted."""
        limited.world.release(self.claimed(limited), delay_us=MINUTE)
        assert limited.world.marks(pair) == [LATER, READY]
        limited.check()

    def test_lapse(self, limited: LimitWorld, pair: list[int]) -> None:
        """A lapsed claim releases what it held."""
        limited.world.lapse(self.claimed(limited))
        assert limited.world.marks(pair) == [LATER, READY]
        limited.check()

    def test_late_and_double_ends_free_nothing(self, limited: LimitWorld, pair: list[int]) -> None:
        """An end with an old token changes nothing, however often it is repeated."""
        held = self.claimed(limited)
        limited.world.release(held)
        assert limited.world.complete(held) == []
        assert limited.world.marks(pair) == [LATER, READY]
        assert limited.held("processor:loads/main/load") == 1
        limited.check()

    def test_cancel_when_queued_and_when_ready(self, limited: LimitWorld, pair: list[int]) -> None:
        """A cancelled run leaves its queue; if it held the limit, the next one is admitted."""
        (third,) = limited.put("load")
        limited.admit()
        for run_id in (pair[1], pair[0]):
            token = limited.world.write(partial(runs.run_cancel_pending, run_id=run_id))
            assert token is not None
            assert limited.world.finish_all([RunEnd(run_id, token, "CANCELLED", None)])
        assert limited.world.marks([third]) == [READY]
        limited.check()

    def test_pause_and_resume(self, limited: LimitWorld, pair: list[int]) -> None:
        """A paused run neither holds nor waits; after a resume it is queued again."""
        other = limited.world.customers("other")[0]
        (foreign,) = limited.put("load", customer_key=other)
        limited.admit()
        acme = limited.world.customer
        limited.world.write(lambda tx: admission.pause_put(tx, "customer", acme, "me", ""))
        assert limited.world.marks([*pair, foreign]) == [PAUSED, PAUSED, READY]
        limited.check()
        limited.world.write(lambda tx: admission.pause_drop(tx, "customer", acme))
        limited.admit()
        assert limited.world.marks([*pair, foreign]) == [LIMITED, LIMITED, READY]
        limited.check()

    def test_missed_releases_are_repaired(self, limited: LimitWorld, pair: list[int]) -> None:
        """Leases of a run that is gone are found and released."""
        limited.world.sql(f"DELETE FROM runs WHERE run_id = {pair[0]}")
        limited.world.clock.advance(MINUTE)
        limited.admit()
        assert limited.world.marks(pair[1:]) == [READY]
        limited.check()

    def test_ready_in_a_pool_without_workers(self, limited: LimitWorld) -> None:
        """Slots held in a pool without workers go to runs that can use them, in turn."""
        limited.declare(
            dead={"limits": ["disk"], "pool": "gone"}, live={"limits": ["disk"]},
        )  # fmt: skip
        (dead,) = limited.put("dead")
        limited.admit()
        limited.limit("disk", capacity=1)
        (live,) = limited.put("live")
        limited.admit()
        assert limited.world.marks([dead, live]) == [READY, LIMITED]
        limited.world.clock.advance(2 * MINUTE)
        limited.admit()
        limited.admit()
        assert limited.world.marks([dead, live]) == [LIMITED, READY]
        limited.check()


class TestRate:
    """Tokens are taken when a run is admitted."""

    def test_rate_per_second(self, limited: LimitWorld) -> None:
        """A burst at once, then one per tenth of a second; the admitter knows when to continue."""
        limited.declare(load={"limits": ["api"]})
        limited.put("load", 1)
        limited.admit()
        limited.limit("api", capacity="NULL", rate=10.0, burst=5)
        ids = limited.put("load", 30)
        step = limited.admitter.run_once()
        assert limited.world.marks(ids).count(READY) == 5
        assert step.next_at is not None
        assert 0 < step.next_at - step.now <= 100_001
        limited.world.clock.advance(step.next_at - step.now)
        limited.admitter.run_once()
        assert limited.world.marks(ids).count(READY) == 6
        limited.world.clock.advance(SECOND)
        limited.admitter.run_once()
        assert limited.world.marks(ids).count(READY) == 11


class TestTickets:
    """The same limit, held by user code."""

    def test_leases_and_older_tickets_count(self, limited: LimitWorld) -> None:
        """Leases and earlier tickets of user code reduce the capacity left for runs."""
        limited.declare(load={"limits": ["disk"]})
        limited.put("load")
        limited.admit()
        limited.world.complete(limited.world.claim_one())
        limited.limit("disk", capacity=2)
        now = limited.world.clock.now()
        limit = limited.world.value("SELECT limit_id FROM limits WHERE name = 'disk'")
        limited.world.sql(
            "INSERT INTO limit_leases (limit_id, token, holder, request, asked_at, since_at, "
            f"until_at) VALUES ({limit}, 1, 'me', 'x', {now}, {now}, {now + MINUTE})"
        )
        ids = limited.put("load", 3)
        limited.admit()
        assert limited.world.marks(ids) == [READY, LIMITED, LIMITED]
        limited.world.clock.advance(2 * MINUTE)
        limited.admit()
        assert limited.world.marks(ids) == [READY, READY, LIMITED]


def test_entering_is_bounded_and_complete(limited: LimitWorld) -> None:
    """A batch larger than the admitter's is queued in several transactions."""
    limited.declare(load={"concurrency": 2})
    limited.admitter = Admitter(limited.world.store, batch=4)
    ids = limited.put("load", 11)
    step = limited.admitter.run_once()
    assert (step.queued, step.promoted) == (11, 2)
    assert limited.world.marks(ids) == [READY] * 2 + [LIMITED] * 9
    assert limited.world.read(run_queue.queue_check) == ([], None)
    limited.check()


def test_unused_generated_limits_are_pruned(limited: LimitWorld) -> None:
    """Limits in use and limits set by a person are kept."""
    limited.declare(keyed={"per_key": "{table}"})
    names = ["idle", "used", "kept"]
    for name in names:
        limited.put("keyed", parameters=table(name))
    limited.admit()
    limited.world.complete(
        *[h for h in limited.world.claim() if "used" not in (h.parameters or "")]
    )
    limited.world.sql("UPDATE limits SET updated_by = 'ann' WHERE name LIKE '%kept'")
    assert Pruner(limited.world.store).run_once().removed["limits"] == 0
    limited.world.clock.advance(8 * DAY)
    assert Pruner(limited.world.store).run_once().removed["limits"] == 1
    left = [row[0].rpartition(":")[2] for row in limited.world.sql("SELECT name FROM limits")]
    assert sorted(left) == ["kept", "used"]
    limited.put("keyed", parameters=table("idle"))
    limited.admit()
    assert limited.world.value("SELECT count(*) FROM limits") == 3
