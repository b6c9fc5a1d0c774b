"""Admission: the order of claims. Fair ranks, ageing, pauses and ordering keys."""

from functools import partial
from typing import Any

import pytest

from penstock.access.shares import STRIDE
from penstock.access.store import registry
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.db.store import Row, Store, Tx
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.store import admission, runs
from tests.conftest import OpenStore
from tests.kits.world import World

READY, LATER, PAUSED, BLOCKED = 0, 1, 2, 3
SCOPES = ("all", "customer", "pipeline", "config")


class TestAdmit:
    """Later runs become ready."""

    def test_in_time_order_and_in_batches(self, world: World) -> None:
        """Due runs are admitted oldest first, at most as many as requested."""
        now = world.clock.now()
        times = [now + s * SECOND for s in (5, 1, 4, 2, 3, 90)]
        ids = world.insert_all([world.new(scheduled_time=t) for t in times])
        world.clock.advance(10 * SECOND)
        assert world.admit(n=2) == 2
        assert [h.run_id for h in world.claim()] == [ids[1], ids[3]]
        assert world.admit() == 3
        assert [h.run_id for h in world.claim()] == [ids[4], ids[2], ids[0]]
        assert world.admit() == 0
        assert world.read(admission.run_next_due_at) == times[5]

    def test_nothing_waits(self, world: World) -> None:
        """With nothing due later there is no next time."""
        world.insert_one()
        assert world.read(admission.run_next_due_at) is None

    def test_counts_by_pool(self, world: World) -> None:
        """The result has the pools that got work."""
        gpu = world.write(lambda tx: registry.pool_ensure(tx, "gpu"))
        world.pipeline_add("heavy", ["render"], pool=gpu)
        (render,) = world.processors("heavy")
        later = world.clock.now() + 1
        world.insert(3, scheduled_time=later)
        world.insert(2, scheduled_time=later, processor_key=render)
        world.clock.advance(1)
        counts = world.write(lambda tx: admission.run_admit_due(tx, 100))
        assert counts == {world.pool: 3, gpu: 2}


class TestFairness:
    """One customer's backlog does not starve the others."""

    def flood(self, world: World, size: int) -> list[HeldRun]:
        """Insert a backlog, then 50 small customers. Return the order in which all are claimed."""
        world.insert(size)
        small = world.customers(*[f"small{i}" for i in range(50)])
        for customer in small:
            world.insert(10, customer_key=customer)
        return world.drain(batch=100)

    def test_flood(self, world: World) -> None:
        """Behind 2,000 runs of one customer, 500 runs of 50 others start within 1,000 claims."""
        order = self.flood(world, 2_000)
        assert len(order) == 2_500
        last = max(i for i, held in enumerate(order, 1) if held.customer_key != world.customer)
        assert last <= 1_000

    def test_flood_of_later_runs(self, world: World) -> None:
        """The same applies when everything becomes due at once and is admitted in batches."""
        due = world.clock.now() + SECOND
        world.insert(1_000, scheduled_time=due)
        for customer in world.customers(*[f"small{i}" for i in range(20)]):
            world.insert(10, customer_key=customer, scheduled_time=due)
        world.clock.advance(SECOND)
        while world.admit(n=100):
            pass
        order = world.drain(batch=50)
        last = max(i for i, held in enumerate(order, 1) if held.customer_key != world.customer)
        assert last <= 420

    def test_returning_customer(self, world: World) -> None:
        """A customer with an earlier backlog gets 10 runs among 1,000 of 100 others in time."""
        self.flood(world, 2_000)
        for customer in world.customers(*[f"day2_{i}" for i in range(100)]):
            world.insert(10, customer_key=customer)
        own = set(world.insert(10))
        order = world.drain(batch=50)
        last = max(i for i, held in enumerate(order, 1) if held.run_id in own)
        assert last <= 1_010
        first = min(i for i, held in enumerate(order, 1) if held.run_id in own)
        assert first <= 150

    def test_clock_is_monotone_and_kept(self, world: World, open_store: OpenStore) -> None:
        """The fairness clock follows the claimed ranks, never goes back, outlives the process."""
        value = "SELECT coalesce(max(fair_rank), 0) FROM fair_ranks WHERE customer = 0"
        world.insert(30)
        seen = [world.value(value)]
        first, second = world.claim(n=10), world.claim(n=10)
        for held in (first, second, [], first):
            world.write(partial(runs.fair_clock_raise, claimed=held))
            seen.append(world.value(value))
        seen.append(world.value(value))
        assert seen == sorted(seen)
        assert seen[-1] == 20 * STRIDE
        again = World(open_store(), world.clock)
        (late,) = again.customers("late")
        again.insert(customer_key=late)
        fair_rank = again.value(f"SELECT pass FROM runs WHERE customer = {late}")
        assert fair_rank == 21 * STRIDE

    def test_fair_ranks_are_unique(self, world: World) -> None:
        """Each ready run of a customer has a fair rank of its own, however it became ready."""
        world.insert(5)
        world.insert(5, scheduled_time=world.clock.now() + 1)
        held = world.claim(n=2)
        world.release(*held)
        world.clock.advance(1)
        world.admit()
        ranks = [row[0] for row in world.sql("SELECT pass FROM runs WHERE admission = 0")]
        assert len(ranks) == len(set(ranks)) == 10

    def test_single_inserts_equal_batches(self, world: World) -> None:
        """A run inserted alone gets the same admission and fair rank as in a batch.

        The same history runs twice, on two levels: run by run, and with another customer's run in
        every batch. A batch of one has a statement of its own on PostgreSQL.
        """
        named = ("a", "b", "paused", "away")
        a, b, paused, away = world.customers(*named)
        world.write(lambda tx: admission.pause_put(tx, "customer", paused, "x", "tester"))
        now = world.clock.now()
        story: list[dict[str, Any]] = [
            {"customer_key": a},
            {"customer_key": b, "parameters": '{"x": "é\\" \\\\"}', "correlation_id": "c"},
            {"customer_key": a, "scheduled_time": now + 5, "max_execution_us": 7, "sla_us": 9},
            {"customer_key": paused},
            {"customer_key": a, "ordering_key": "k", "partition": "p", "mode": "m"},
            {"customer_key": a, "ordering_key": "k"},
            {"customer_key": b, "occurrence_time": now - 1, "attempt": 2, "trigger_source": "api"},
            {"customer_key": a},
        ]
        rows_by_priority: dict[int, list[Row]] = {}
        for priority in (4, 6):
            for n, fields in enumerate(story):
                own = dict(fields)
                if "ordering_key" in own:
                    own["ordering_key"] += str(priority)
                batch = [world.new(priority=priority, **own)]
                if priority == 6:
                    batch.append(world.new(priority=priority, customer_key=away))
                run_id = world.insert_all(batch)[0]
                if n == 3:
                    held = [
                        h
                        for h in world.claim(n=9)
                        if h.level == priority and h.customer_key != away
                    ]
                    world.write(partial(runs.fair_clock_raise, claimed=held))
                columns = (
                    "customer, slot, scheduled_time, pass, admission, attempt, max_execution_us, "
                    "sla_us, partition, mode, parameters, correlation_id, trigger_source"
                )
                rows_by_priority.setdefault(priority, []).extend(
                    world.sql(f"SELECT {columns} FROM runs WHERE run_id = {run_id}")
                )
        assert rows_by_priority[4] == rows_by_priority[6]
        assert [row[4] for row in rows_by_priority[4]] == [0, 0, 1, 2, 0, 3, 0, 0]

    def test_high_priority_run_of_a_flooding_customer(self, world: World) -> None:
        """A high-priority run of a customer with a backlog puts no newcomer behind that backlog."""
        world.insert(1_000)
        world.insert(1, priority=9)
        (first,) = world.claim(n=1)
        world.write(lambda tx: runs.fair_clock_raise(tx, [first]))
        (late,) = world.customers("late")
        world.insert(5, customer_key=late)
        order = world.drain(batch=50)
        last = max(i for i, held in enumerate(order, 1) if held.customer_key == late)
        assert last <= 200


class TestAgeing:
    """Waiting raises a run's level."""

    def levels(self, world: World) -> list[int]:
        """Return the levels of all live runs by id."""
        return [row[0] for row in world.sql("SELECT level FROM runs ORDER BY run_id")]

    def age(self, world: World, times: int = 1, per_customer: int = 50) -> None:
        """Run the ageing step several times in a row."""
        for _ in range(times):
            world.write(lambda tx: admission.run_age(tx, per_customer))

    def test_one_level_per_ten_minutes(self, world: World) -> None:
        """Ten minutes of waiting are worth one level, however often the step runs."""
        world.insert(1, priority=5)
        self.age(world, 3)
        assert self.levels(world) == [5]
        world.clock.advance(10 * MINUTE - 1)
        self.age(world, 3)
        assert self.levels(world) == [5]
        world.clock.advance(1)
        self.age(world, 3)
        assert self.levels(world) == [6]
        world.clock.advance(25 * MINUTE)
        self.age(world, 5)
        assert self.levels(world) == [8]

    def test_never_above_ten(self, world: World) -> None:
        """Waiting never raises a run above level 10; its priority is unchanged."""
        (run_id,) = world.insert(1, priority=9)
        world.clock.advance(100 * HOUR)
        self.age(world, 5)
        assert self.levels(world) == [10]
        assert world.run(run_id).priority == 9

    def test_old_run_overtakes(self, world: World) -> None:
        """A low-priority run that waited long enough is claimed before a new, higher one."""
        (old,) = world.insert(1, priority=3)
        world.clock.advance(30 * MINUTE)
        self.age(world, 3)
        (fresh,) = world.insert(1, priority=5)
        assert [h.run_id for h in world.claim()] == [old, fresh]

    def test_raised_runs_are_bounded(self, world: World) -> None:
        """However long and often it ages, at most the cap of a customer's runs are raised."""
        world.insert(200)
        (other,) = world.customers("other")
        world.insert(3, customer_key=other)
        world.clock.advance(35 * MINUTE)
        self.age(world, 10, per_customer=20)
        rows = world.sql("SELECT customer, count(*) FROM runs WHERE level > 5 GROUP BY customer")
        assert dict(rows) == {world.customer: 20, other: 3}
        assert world.value("SELECT max(level) FROM runs") == 8
        raised = world.sql(
            f"SELECT run_id FROM runs WHERE level > 5 AND customer = {world.customer} "
            "ORDER BY run_id"
        )
        first = world.sql("SELECT run_id FROM runs ORDER BY run_id LIMIT 20")
        assert raised == first

    def test_only_ready_runs(self, world: World) -> None:
        """Paused, later and held runs do not age."""
        world.insert(2)
        world.claim(n=1)
        world.insert(1, scheduled_time=world.clock.now() + 100 * HOUR)
        world.clock.advance(HOUR)
        world.write(lambda tx: admission.pause_put(tx, "all", 0, "op", ""))
        self.age(world)
        assert self.levels(world) == [5, 5, 5]


class TestPause:
    """Pause and resume on four scopes."""

    def subject(self, world: World, scope: str, config: int) -> int:
        """Return what to pause so that runs of `config` stop."""
        return {
            "all": 0, "customer": world.customer, "pipeline": world.pipeline, "config": config,
        }[scope]  # fmt: skip

    @pytest.mark.parametrize("scope", SCOPES)
    def test_scope(self, world: World, scope: str) -> None:
        """A pause stops what it covers, waiting or new, and nothing else; a resume releases it."""
        config = world.config(cadence=None)
        world.pipeline_add("other", ["x"])
        (other_processor,) = world.processors("other")
        (beta,) = world.customers("beta")
        later = world.clock.now() + MINUTE
        covered = [world.insert_one(config_id=config, occurrence_time=s) for s in (1, 2)]
        covered.append(world.insert_one(config_id=config, occurrence_time=3, scheduled_time=later))
        free = world.insert_one(customer_key=beta, processor_key=other_processor)
        held = world.claim(n=1)
        assert held[0].run_id == covered.pop(0)
        subject = self.subject(world, scope, config)

        assert world.write(lambda tx: admission.pause_put(tx, scope, subject, "op", "why"))
        assert not world.write(lambda tx: admission.pause_put(tx, scope, subject, "op", "why"))
        covered.append(world.insert_one(config_id=config, occurrence_time=4))
        covered.append(world.insert_one(config_id=config, occurrence_time=5, scheduled_time=later))
        assert world.marks(covered) == [PAUSED] * 4
        world.clock.advance(HOUR)
        world.admit()
        assert world.marks(covered) == [PAUSED] * 4
        expected = [] if scope == "all" else [free]
        assert [h.run_id for h in world.claim()] == expected
        assert world.states([held[0].run_id]) == ["CLAIMED"]
        (pause,) = world.read(admission.pause_list)
        assert (pause.scope, pause.subject, pause.paused_by, pause.reason) == (
            scope, subject, "op", "why",
        )  # fmt: skip

        assert world.write(lambda tx: admission.pause_drop(tx, scope, subject))
        assert not world.write(lambda tx: admission.pause_drop(tx, scope, subject))
        world.admit()
        freed = {h.run_id for h in world.claim()}
        assert freed == {*covered, *([free] if scope == "all" else [])}

    def test_two_pauses(self, world: World) -> None:
        """A run covered twice stays paused until both pauses are gone."""
        run_id = world.insert_one()
        put, drop = admission.pause_put, admission.pause_drop
        world.write(lambda tx: put(tx, "customer", world.customer, "op", ""))
        world.write(lambda tx: put(tx, "pipeline", world.pipeline, "op", ""))
        world.write(lambda tx: drop(tx, "customer", world.customer))
        assert world.marks([run_id]) == [PAUSED]
        world.write(lambda tx: drop(tx, "pipeline", world.pipeline))
        assert world.marks([run_id]) == [LATER]

    def test_later_stays_later(self, world: World) -> None:
        """Pausing and resuming does not make a run due early."""
        run_id = world.insert_one(scheduled_time=world.clock.now() + HOUR)
        world.write(lambda tx: admission.pause_put(tx, "all", 0, "op", ""))
        world.write(lambda tx: admission.pause_drop(tx, "all", 0))
        world.admit()
        assert world.marks([run_id]) == [LATER]

    def test_missed_pauses_are_repaired(self, world: World) -> None:
        """Runs that missed a pause or a resume are corrected."""
        slipped, later = world.insert_one(), world.insert_one(scheduled_time=2**60)
        world.sql("INSERT INTO pauses VALUES ('all', 0, 1, 'op', '')")
        assert world.write(admission.pauses_apply) == 2
        assert world.marks([slipped, later]) == [PAUSED, PAUSED]
        assert world.write(admission.pauses_apply) == 0
        world.sql("DELETE FROM pauses")
        assert world.write(admission.pauses_apply) == 2
        world.admit()
        assert world.marks([slipped, later]) == [READY, LATER]

    def test_admission_checks_pauses(self, world: World) -> None:
        """A run that missed a pause and becomes due is paused, not admitted."""
        run_id = world.insert_one(scheduled_time=world.clock.now() + 1)
        world.sql("INSERT INTO pauses VALUES ('all', 0, 1, 'op', '')")
        world.clock.advance(1)
        world.admit()
        assert world.marks([run_id]) == [PAUSED]

    def test_released_and_retried_runs_are_covered(self, world: World) -> None:
        """A run that returns to the queue while it is paused stays there."""
        one, two = world.running(), world.running()
        world.write(lambda tx: admission.pause_put(tx, "all", 0, "op", ""))
        world.release(one)
        (ended,) = world.fail(two, retry_delay_us=0)
        world.admit()
        assert ended.retry_run_id is not None
        assert world.marks([one.run_id, ended.retry_run_id]) == [PAUSED, PAUSED]


class TestOrderingKeys:
    """Runs of one key: one at a time, in order."""

    def step(self, world: World) -> list[HeldRun]:
        """Admit and claim everything that can be claimed."""
        world.admit()
        return world.claim()

    def test_one_at_a_time_in_order(self, world: World) -> None:
        """Runs of a key are claimed one by one in order of creation."""
        ids = world.insert(3, ordering_key="k") + world.insert(2, ordering_key="k")
        free = world.insert_one(ordering_key="other")
        assert world.marks(ids) == [READY, BLOCKED, BLOCKED, BLOCKED, BLOCKED]
        order = []
        held = self.step(world)
        assert {h.run_id for h in held} == {ids[0], free}
        held = [h for h in held if h.run_id != free]
        while held:
            assert len(held) == 1
            order.append(held[0].run_id)
            assert self.step(world) == []
            world.complete(*held)
            held = self.step(world)
        assert order == ids

    def test_priority_does_not_overtake(self, world: World) -> None:
        """Within a key, order takes precedence over priority."""
        first = world.insert_one(ordering_key="k", priority=1)
        world.insert_one(ordering_key="k", priority=10)
        assert [h.run_id for h in self.step(world)] == [first]

    def test_order_through_retries(self, world: World) -> None:
        """A failing run keeps its key through every retry; its successor waits."""
        first, second = world.insert(2, ordering_key="k")
        (held,) = self.step(world)
        assert held.run_id == first
        for _ in range(3):
            (ended,) = world.fail(held, retry_delay_us=MINUTE)
            assert self.step(world) == []
            world.clock.advance(MINUTE)
            (held,) = self.step(world)
            assert held.run_id == ended.retry_run_id
        world.complete(held)
        assert [h.run_id for h in self.step(world)] == [second]

    def test_dead_run_frees_the_key(self, world: World) -> None:
        """A dead letter does not block its key."""
        _, second = world.insert(2, ordering_key="k")
        world.fail(*self.step(world), is_dead=True)
        assert [h.run_id for h in self.step(world)] == [second]

    def test_lapse_and_release_keep_the_key(self, world: World) -> None:
        """A run that returns to the queue stays at the head of its key."""
        first, _ = world.insert(2, ordering_key="k")
        world.lapse(*self.step(world))
        (held,) = self.step(world)
        world.release(held, delay_us=SECOND)
        assert self.step(world) == []
        world.clock.advance(SECOND)
        assert [h.run_id for h in self.step(world)] == [first]

    def test_cancelled_in_the_middle(self, world: World) -> None:
        """Cancelling a waiting run neither frees nor blocks its key."""
        first, second, third = world.insert(3, ordering_key="k")
        (held,) = self.step(world)

        def cancel(tx: Tx) -> None:
            token = runs.run_cancel_pending(tx, second)
            assert token is not None
            runs.run_finish_many(tx, [RunEnd(second, token, "CANCELLED", None)])

        world.write(cancel)
        assert held.run_id == first
        assert self.step(world) == []
        world.complete(held)
        assert [h.run_id for h in self.step(world)] == [third]

    def test_missed_release_is_found(self, world: World) -> None:
        """A key whose head stayed blocked is found and freed by the sweep."""
        first, second = world.insert(2, ordering_key="k")
        world.sql(f"DELETE FROM runs WHERE run_id = {first}")
        assert self.step(world) == []
        assert world.read(lambda tx: admission.blocked_keys(tx, 10)) == ["k"]
        assert world.write(lambda tx: runs.run_unblock(tx, ["k"])) == 1
        assert world.write(lambda tx: runs.run_unblock(tx, ["k"])) == 0
        assert world.read(lambda tx: admission.blocked_keys(tx, 10)) == []
        assert [h.run_id for h in self.step(world)] == [second]

    @pytest.mark.parametrize("scope", ["all", "customer"])
    def test_inserted_while_paused(self, world: World, scope: str) -> None:
        """Runs of a key that arrive during a pause still run one at a time after it."""
        subject = 0 if scope == "all" else world.customer
        world.write(lambda tx: admission.pause_put(tx, scope, subject, "op", ""))
        ids = world.insert(3, ordering_key="k")
        world.write(lambda tx: admission.pause_drop(tx, scope, subject))
        for expected in ids:
            held = self.step(world)
            assert [h.run_id for h in held] == [expected]
            world.complete(*held)

    def test_inserted_behind_a_running_one_while_paused(self, world: World) -> None:
        """A run that arrives during a pause waits for the running one of its key."""
        world.insert_one(ordering_key="k")
        (running,) = self.step(world)
        world.write(lambda tx: admission.pause_put(tx, "all", 0, "op", ""))
        second = world.insert_one(ordering_key="k")
        world.write(lambda tx: admission.pause_drop(tx, "all", 0))
        assert self.step(world) == []
        world.complete(running)
        assert [h.run_id for h in self.step(world)] == [second]

    def test_paused_head_blocks(self, world: World) -> None:
        """While the head of a key is paused, the next run does not overtake it."""
        first, second = world.insert(2, ordering_key="k")
        world.write(lambda tx: admission.pause_put(tx, "all", 0, "op", ""))
        world.write(lambda tx: runs.run_unblock(tx, ["k"]))
        assert world.marks([first, second]) == [PAUSED, BLOCKED]
        assert self.step(world) == []

    def test_keys_span_transactions(self, world: World, store: Store) -> None:
        """Two inserts in one transaction see each other's key."""

        def body(tx: Tx) -> list[int]:
            new = [world.new(ordering_key="k")]
            return runs.run_insert_many(tx, new, "a") + runs.run_insert_many(tx, new, "a")

        assert world.marks(store.write(body)) == [READY, BLOCKED]
