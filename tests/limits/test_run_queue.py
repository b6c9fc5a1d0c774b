"""Runs before their limits: lines, room, all or none, turns, and every way to give back."""

import json
from functools import partial
from typing import Any

import pytest

from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.limits.store import run_queue
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.store import pipeline_register
from penstock.runs.admitter import Admitter
from penstock.runs.rows import Finish, HeldRun
from penstock.runs.store import admission, leases, runs
from penstock.services.upkeep import Pruner
from tests.kits.world import World

READY, LATER, PAUSED, BLOCKED, LIMITED, HELD = 0, 1, 2, 3, 4, 9
SCHEMA = {"type": "object", "properties": {"table": {"type": "string"}}}


def nothing(run: Any) -> None:
    """A processor."""


class Hall:
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
        return self.world.insert(n, processor=self.numbers[processor], **fields)

    def limit(self, name: str, **values: Any) -> None:
        """Change a limit behind everybody's back."""
        sets = ", ".join(f"{word} = {value}" for word, value in values.items())
        self.world.sql(f"UPDATE limits SET {sets} WHERE name = '{name}'")

    def held(self, name: str) -> int:
        """How much of a limit is held."""
        return int(self.world.value(
            "SELECT coalesce(sum(e.weight), 0) FROM limit_leases e JOIN limits l "
            f"ON l.limit_id = e.limit_id WHERE l.name = '{name}'"
        ))  # fmt: skip

    def admit(self) -> None:
        """The admitter's turn, with every look due."""
        self.world.clock.advance(2 * SECOND)
        self.admitter.run_once()

    def check(self) -> None:
        """What a run holds and stands in line for fits what its row says."""
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
def hall(world: World) -> Hall:
    """A world with limits."""
    return Hall(world)


def table(name: str) -> str:
    """Parameters that name a table."""
    return json.dumps({"table": name})


class TestRoom:
    """Only so many become claimable."""

    def test_a_processor_has_its_concurrency(self, hall: Hall) -> None:
        """Three at a time; an end lets the next one through in its transaction."""
        hall.declare(load={"concurrency": 3})
        ids = hall.put("load", 10)
        assert set(hall.world.marks(ids)) == {LIMITED}
        hall.admit()
        assert hall.world.marks(ids) == [READY] * 3 + [LIMITED] * 7
        held = hall.world.claim()
        assert [h.run_id for h in held] == ids[:3]
        assert hall.world.claim() == []
        hall.world.complete(held[0], held[2])
        assert [h.run_id for h in hall.world.claim()] == ids[3:5]
        assert hall.held("processor:loads/main/load") == 3
        hall.check()

    def test_limits_by_parameter_are_shared(self, hall: Hall) -> None:
        """A table's limit holds over processors; another table has its own."""
        hall.declare(one={"limits": ["bq:{table}"]}, two={"limits": ["bq:{table}"]})
        hall.put("one", 1, parameters=table("sales"))
        hall.admit()
        hall.limit("bq:sales", capacity=2)
        ones = hall.put("one", 3, parameters=table("sales"))
        twos = hall.put("two", 3, parameters=table("sales"))
        other = hall.put("two", 3, parameters=table("stock"))
        nothing = hall.put("two", 1)
        hall.admit()
        assert hall.world.marks([*ones, *twos]) == [READY] + [LIMITED] * 5
        assert hall.world.marks([*other, *nothing]) == [READY] * 4
        assert hall.held("bq:none") == 1
        hall.check()

    def test_per_customer_and_per_key(self, hall: Hall) -> None:
        """Each customer and each key has a limit of its own."""
        hall.declare(load={"per_customer": 1}, keyed={"per_key": "{table}"})
        acme, other = hall.world.customers("acme", "other")
        mine, theirs = hall.put("load", 2, customer=acme), hall.put("load", 2, customer=other)
        keyed = [hall.put("keyed", 2, parameters=table(name)) for name in ("a", "b")]
        hall.admit()
        assert hall.world.marks(mine) == hall.world.marks(theirs) == [READY, LIMITED]
        assert hall.world.marks(keyed[0]) == hall.world.marks(keyed[1]) == [READY, LIMITED]
        owners = hall.world.sql("SELECT customer FROM limits WHERE name LIKE '%customer:%'")
        assert sorted(row[0] for row in owners) == sorted([acme, other])
        hall.check()

    def test_a_heavy_run_is_not_overtaken(self, hall: Hall) -> None:
        """A run that needs more than is free keeps those behind it waiting."""
        hall.declare(light={"limits": ["disk"]}, heavy={"limits": {"disk": 9}})
        first = hall.put("light", 4)
        hall.admit()
        heavy = hall.put("heavy")
        last = hall.put("light", 4)
        hall.admit()
        assert hall.world.marks([*first, *heavy, *last]) == [READY] * 4 + [LIMITED] * 5
        held = hall.world.claim()
        hall.world.complete(*held[:2])
        assert hall.world.marks(heavy) == [LIMITED]
        hall.world.complete(held[2])
        assert hall.world.marks([*heavy, *last]) == [READY] + [LIMITED] * 4
        hall.check()

    def test_more_than_all_there_is_goes_alone(self, hall: Hall) -> None:
        """A weight above the capacity waits until nobody else holds anything."""
        hall.declare(light={"limits": ["disk"]}, heavy={"limits": {"disk": 99}})
        (light,) = hall.put("light")
        hall.admit()
        (heavy,) = hall.put("heavy")
        hall.admit()
        assert hall.world.marks([light, heavy]) == [READY, LIMITED]
        hall.world.complete(hall.world.claim_one())
        assert hall.world.marks([heavy]) == [READY]

    def test_capacity_changes_live(self, hall: Hall) -> None:
        """A raised capacity lets more through, a lowered one none until enough have ended."""
        hall.declare(load={"limits": ["disk"]})
        ids = hall.put("load", 30)
        hall.admit()
        assert hall.world.marks(ids).count(READY) == 10
        hall.limit("disk", capacity=15)
        hall.admit()
        assert hall.world.marks(ids).count(READY) == 15
        hall.limit("disk", capacity=2)
        hall.world.complete(*hall.world.claim(n=13))
        assert hall.world.marks(ids[15:]).count(READY) == 0
        hall.world.complete(*hall.world.claim(n=1))
        assert hall.world.marks(ids[15:]).count(READY) == 1

    def test_a_declared_capacity_follows_the_declaration(self, hall: Hall) -> None:
        """A new declaration changes the generated limit when the next run comes."""
        hall.declare(load={"concurrency": 1})
        ids = hall.put("load", 3)
        hall.admit()
        hall.pipeline = Pipeline("loads")
        hall.declare(load={"concurrency": 3})
        more = hall.put("load", 1)
        hall.admit()
        assert hall.world.marks([*ids, *more]) == [READY] * 3 + [LIMITED]

    def test_without_limits_any_more(self, hall: Hall) -> None:
        """Runs that stand before limits their processor no longer has become claimable."""
        hall.declare(load={"concurrency": 1})
        ids = hall.put("load", 3)
        hall.pipeline = Pipeline("loads")
        hall.declare(load={})
        hall.admit()
        assert hall.world.marks(ids) == [READY] * 3
        hall.check()


class TestSeveral:
    """All or none."""

    def test_takes_all_or_none_and_lets_others_pass(self, hall: Hall) -> None:
        """A run that waits for one limit holds nothing of the other."""
        hall.declare(
            both={"limits": ["a", "b"]}, a={"limits": ["a"]}, b={"limits": ["b"]},
        )  # fmt: skip
        hall.put("both")
        hall.admit()
        hall.limit("a", capacity=1)
        hall.limit("b", capacity=1)
        hall.world.complete(hall.world.claim_one())
        (on_b,) = hall.put("b")
        hall.admit()
        (both,) = hall.put("both")
        hall.admit()
        (on_a,) = hall.put("a")
        hall.admit()
        assert hall.world.marks([on_b, both, on_a]) == [READY, LIMITED, READY]
        for held in hall.world.claim():
            hall.world.complete(held)
        assert hall.world.marks([both]) == [READY]
        assert (hall.held("a"), hall.held("b")) == (1, 1)
        hall.check()

    def test_nobody_starves(self, hall: Hall) -> None:
        """With both limits always wanted by others, a run that needs both gets its turn."""
        hall.declare(
            both={"limits": ["a", "b"]}, a={"limits": ["a"]}, b={"limits": ["b"]},
        )  # fmt: skip
        hall.put("both")
        hall.admit()
        hall.limit("a", capacity=1)
        hall.limit("b", capacity=1)
        hall.world.complete(hall.world.claim_one())
        hall.put("a", 2)
        hall.put("b", 2)
        hall.admit()
        (both,) = hall.put("both")
        hand: list[HeldRun] = []
        passed = 0
        for step in range(30):
            hall.world.clock.advance(MINUTE)
            hall.admitter.run_once()
            hand += hall.world.claim()
            if both in [h.run_id for h in hand]:
                break
            # Never both at once: one of the limits is always taken when the other comes free.
            done = [h for h in hand if h.processor == hall.numbers["ab"[step % 2]]]
            hand = [h for h in hand if h not in done]
            passed += len(hall.world.complete(*done))
            hall.put("a", 1)
            hall.put("b", 1)
            hall.check()
        else:
            pytest.fail("it starved")
        assert passed > 5, "it was passed while it was not urgent"

    def test_urgent_runs_keep_what_comes_free(self, hall: Hall) -> None:
        """After ten minutes nobody passes: the free limit is kept until the other is free too."""
        hall.declare(
            both={"limits": ["a", "b"]}, a={"limits": ["a"]}, b={"limits": ["b"]},
        )  # fmt: skip
        hall.put("both")
        hall.admit()
        hall.limit("a", capacity=1)
        hall.limit("b", capacity=1)
        hall.world.complete(hall.world.claim_one())
        hall.put("a")
        hall.put("b")
        hall.admit()
        on_a, on_b = sorted(hall.world.claim(), key=lambda h: h.processor)[:2]
        (both,) = hall.put("both")
        hall.admit()
        hall.world.clock.advance(11 * MINUTE)
        hall.admit()
        later = hall.put("a")
        hall.admit()
        by_name = {h.processor: h for h in (on_a, on_b)}
        hall.world.complete(by_name[hall.numbers["a"]])
        hall.admit()
        assert hall.world.marks([both, *later]) == [LIMITED, LIMITED]
        hall.world.complete(by_name[hall.numbers["b"]])
        assert hall.world.marks([both, *later]) == [READY, LIMITED]
        hall.check()


class TestLine:
    """Who is next."""

    def test_priority_then_turn_then_age(self, hall: Hall) -> None:
        """One customer's flood stands behind another's first; an urgent run before both."""
        hall.declare(load={"concurrency": 1})
        acme, other = hall.world.customers("acme", "other")
        flood = hall.put("load", 20, customer=acme)
        hall.admit()
        late = hall.put("load", 2, customer=other)
        first = hall.put("load", 1, customer=acme, priority=9)
        hall.admit()
        order = [h.run_id for h in hall.world.drain(batch=1)]
        assert order[:2] == [flood[0], first[0]]
        assert order.index(late[0]) <= 4
        assert order.index(late[1]) <= 6
        assert sorted(order) == sorted([*flood, *late, *first])

    def test_waiting_raises(self, hall: Hall) -> None:
        """Ten minutes in line count as much as one level of priority."""
        hall.declare(load={"concurrency": 1})
        hall.put("load")
        hall.admit()
        (old,) = hall.put("load", priority=5)
        hall.admit()
        hall.world.clock.advance(21 * MINUTE)
        hall.admit()
        hall.world.clock.advance(MINUTE)
        hall.admit()
        (new,) = hall.put("load", priority=6)
        hall.admit()
        hall.world.complete(hall.world.claim_one())
        assert hall.world.marks([old, new]) == [READY, LIMITED]


class TestGivingBack:
    """Every way out of holding, and what never holds."""

    @pytest.fixture
    def pair(self, hall: Hall) -> list[int]:
        """Two runs before a limit of one; the first may go."""
        hall.declare(load={"concurrency": 1})
        ids = hall.put("load", 2)
        hall.admit()
        assert hall.world.marks(ids) == [READY, LIMITED]
        return ids

    def claimed(self, hall: Hall) -> HeldRun:
        """Claim the one that may go."""
        return hall.world.claim_one()

    def test_a_failure_with_a_retry(self, hall: Hall, pair: list[int]) -> None:
        """The retry waits for its time without holding, then stands in line like anybody."""
        (end,) = hall.world.fail(self.claimed(hall), retry_delay_us=SECOND)
        assert end.retry_run_id is not None
        assert hall.world.marks([pair[1], end.retry_run_id]) == [READY, LATER]
        hall.admit()
        assert hall.world.marks([end.retry_run_id]) == [LIMITED]
        hall.world.complete(self.claimed(hall))
        assert hall.world.marks([end.retry_run_id]) == [READY]
        hall.check()

    def test_release_and_snooze(self, hall: Hall, pair: list[int]) -> None:
        """A run that is put back holds nothing; the next one goes."""
        hall.world.release(self.claimed(hall), delay_us=MINUTE)
        assert hall.world.marks(pair) == [LATER, READY]
        hall.check()

    def test_lapse(self, hall: Hall, pair: list[int]) -> None:
        """A lapsed claim gives back what it held."""
        hall.world.lapse(self.claimed(hall))
        assert hall.world.marks(pair) == [LATER, READY]
        hall.check()

    def test_late_and_double_ends_free_nothing(self, hall: Hall, pair: list[int]) -> None:
        """An end under an old token changes nothing, however often it comes."""
        held = self.claimed(hall)
        hall.world.release(held)
        assert hall.world.complete(held) == []
        assert hall.world.marks(pair) == [LATER, READY]
        assert hall.held("processor:loads/main/load") == 1
        hall.check()

    def test_cancel_in_line_and_when_ready(self, hall: Hall, pair: list[int]) -> None:
        """A cancelled run leaves its line; one that held lets the next one through."""
        (third,) = hall.put("load")
        hall.admit()
        for run_id in (pair[1], pair[0]):
            token = hall.world.write(partial(runs.run_cancel_pending, run_id=run_id))
            assert token is not None
            assert hall.world.finish_all([Finish(run_id, token, "CANCELLED", None)])
        assert hall.world.marks([third]) == [READY]
        hall.check()

    def test_pause_and_resume(self, hall: Hall, pair: list[int]) -> None:
        """A paused run neither holds nor waits in line; resumed, it lines up again."""
        other = hall.world.customers("other")[0]
        (theirs,) = hall.put("load", customer=other)
        hall.admit()
        acme = hall.world.customer
        hall.world.write(lambda tx: admission.pause_put(tx, "customer", acme, "me", ""))
        assert hall.world.marks([*pair, theirs]) == [PAUSED, PAUSED, READY]
        hall.check()
        hall.world.write(lambda tx: admission.pause_drop(tx, "customer", acme))
        hall.admit()
        assert hall.world.marks([*pair, theirs]) == [LIMITED, LIMITED, READY]
        hall.check()

    def test_what_no_door_freed(self, hall: Hall, pair: list[int]) -> None:
        """Leases of a run that is gone are found and freed."""
        hall.world.sql(f"DELETE FROM runs WHERE run_id = {pair[0]}")
        hall.world.clock.advance(MINUTE)
        hall.admit()
        assert hall.world.marks(pair[1:]) == [READY]
        hall.check()

    def test_ready_where_nobody_works(self, hall: Hall) -> None:
        """Slots held for a pool without workers go to those who can use them, in turns."""
        hall.declare(
            dead={"limits": ["disk"], "pool": "gone"}, live={"limits": ["disk"]},
        )  # fmt: skip
        (dead,) = hall.put("dead")
        hall.admit()
        hall.limit("disk", capacity=1)
        (live,) = hall.put("live")
        hall.admit()
        assert hall.world.marks([dead, live]) == [READY, LIMITED]
        hall.world.clock.advance(2 * MINUTE)
        hall.admit()
        hall.admit()
        assert hall.world.marks([dead, live]) == [LIMITED, READY]
        hall.check()


class TestRate:
    """Tokens are taken when a run is let through."""

    def test_so_many_per_second(self, hall: Hall) -> None:
        """A burst at once, then one per tenth of a second; the admitter knows when to come back."""
        hall.declare(load={"limits": ["api"]})
        hall.put("load", 1)
        hall.admit()
        hall.limit("api", capacity="NULL", rate=10.0, burst=5)
        ids = hall.put("load", 30)
        step = hall.admitter.run_once()
        assert hall.world.marks(ids).count(READY) == 5
        assert step.next_at is not None
        assert 0 < step.next_at - step.now <= 100_001
        hall.world.clock.advance(step.next_at - step.now)
        hall.admitter.run_once()
        assert hall.world.marks(ids).count(READY) == 6
        hall.world.clock.advance(SECOND)
        hall.admitter.run_once()
        assert hall.world.marks(ids).count(READY) == 11


class TestTickets:
    """The same limit, held by user code."""

    def test_leases_and_older_tickets_count(self, hall: Hall) -> None:
        """What user code holds, and waits for since before, is not room for runs."""
        hall.declare(load={"limits": ["disk"]})
        hall.put("load")
        hall.admit()
        hall.world.complete(hall.world.claim_one())
        hall.limit("disk", capacity=2)
        now = hall.world.clock.now()
        limit = hall.world.value("SELECT limit_id FROM limits WHERE name = 'disk'")
        hall.world.sql(
            "INSERT INTO limit_leases (limit_id, token, holder, request, asked_at, since_at, "
            f"until_at) VALUES ({limit}, 1, 'me', 'x', {now}, {now}, {now + MINUTE})"
        )
        ids = hall.put("load", 3)
        hall.admit()
        assert hall.world.marks(ids) == [READY, LIMITED, LIMITED]
        hall.world.clock.advance(2 * MINUTE)
        hall.admit()
        assert hall.world.marks(ids) == [READY, READY, LIMITED]


def test_entering_is_bounded_and_complete(hall: Hall) -> None:
    """A batch larger than the admitter's is lined up in several transactions."""
    hall.declare(load={"concurrency": 2})
    hall.admitter = Admitter(hall.world.store, batch=4)
    ids = hall.put("load", 11)
    step = hall.admitter.run_once()
    assert (step.lined, step.promoted) == (11, 2)
    assert hall.world.marks(ids) == [READY] * 2 + [LIMITED] * 9
    assert hall.world.read(run_queue.lines_look) == ([], None)
    hall.check()


def test_limits_of_keys_that_no_longer_come_are_forgotten(hall: Hall) -> None:
    """Not while anybody uses them, and not what a person has set."""
    hall.declare(keyed={"per_key": "{table}"})
    names = ["idle", "used", "kept"]
    for name in names:
        hall.put("keyed", parameters=table(name))
    hall.admit()
    hall.world.complete(*[h for h in hall.world.claim() if "used" not in (h.parameters or "")])
    hall.world.sql("UPDATE limits SET updated_by = 'ann' WHERE name LIKE '%kept'")
    assert Pruner(hall.world.store).run_once().removed["limits"] == 0
    hall.world.clock.advance(8 * DAY)
    assert Pruner(hall.world.store).run_once().removed["limits"] == 1
    left = [row[0].rpartition(":")[2] for row in hall.world.sql("SELECT name FROM limits")]
    assert sorted(left) == ["kept", "used"]
    hall.put("keyed", parameters=table("idle"))
    hall.admit()
    assert hall.world.value("SELECT count(*) FROM limits") == 3
