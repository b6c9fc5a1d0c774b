"""Run queues of limits, statement by statement: never above capacity, no run missed."""

from typing import Any

import pytest

from penstock.access.store.registry import processor_list
from penstock.client import Client
from penstock.core.ids import decode, encode
from penstock.core.naming import PoolKey
from penstock.db.store import Store
from penstock.limits.store.run_queue import queue_enter
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.records import Submission
from penstock.runs.rows import HeldRun
from penstock.runs.store.admission import pause_put
from penstock.runs.store.runs import Claim, run_claim
from tests.harness.interleaving import Act, Outcome, Scene, explore
from tests.interleaving.stage import Stage, finish_act
from tests.interleaving.test_seeded_bugs import SEEDS, caught, patched

pytestmark = pytest.mark.postgres

READY, LIMITED = 0, 4


def nothing(run: Any) -> None:
    """Do nothing, as a processor."""


def pipeline() -> Pipeline:
    """One at a time, two at a time, and needs of two limits in either order of their names."""
    made = Pipeline("narrow")
    phase = made.phase("main")
    phase.processor("one", concurrency=1)(nothing)
    phase.processor("two", concurrency=2)(nothing)
    phase.processor("left", limits=["left"])(nothing)
    phase.processor("right", limits=["right"])(nothing)
    phase.processor("both", limits=["right", "left"])(nothing)
    return made


class LimitScenes:
    """Scenes of limited runs."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.client.register([pipeline()])
        self.processors = [
            row.processor_key
            for row in stage.store.read(processor_list)
            if row.pipeline == "narrow"
        ]

    def empty(self) -> None:
        """Start a new scene; named limits have capacity one."""
        self.stage.empty()
        self.stage.sql("UPDATE limits SET capacity = 1 WHERE name IN ('left', 'right')")

    def submit(self, *processors: str, customer: str = "acme") -> list[int]:
        """Submit runs that wait to be queued."""
        wanted = [
            Submission(pipeline="narrow", processor=name, customer=customer) for name in processors
        ]
        runs = self.stage.client.runs
        return [decode("run", runs.submit(one).run_id) for one in wanted]

    def enqueue(self, *processors: str, customer: str = "acme") -> list[int]:
        """Submit and queue runs, in order."""
        ids = self.submit(*processors, customer=customer)
        self.stage.store.write(lambda tx: queue_enter(tx, 100))
        return ids

    def claim(self) -> list[HeldRun]:
        """Claim everything that is ready."""
        claim = Claim(
            pool_key=PoolKey(self.stage.pool), processors=self.processors, n=10, claimed_by="me"
        )
        return self.stage.store.write(lambda tx: run_claim(tx, claim))

    def marks(self) -> dict[int, int]:
        """Return admission values by run."""
        return dict(self.stage.sql("SELECT run_id, admission FROM runs"))

    def check(self) -> None:
        """Check that the capacity is never exceeded, and that rows and admissions agree."""
        over = self.stage.sql(
            "SELECT l.name FROM limits l WHERE l.capacity < (SELECT coalesce(sum(e.weight), 0)"
            " FROM limit_leases e WHERE e.limit_id = l.limit_id)"
        )
        assert over == []
        wrong = self.stage.sql(
            "SELECT r.run_id, r.admission, r.limits FROM runs r WHERE"
            " (SELECT count(*) FROM limit_leases e WHERE e.run_id = r.run_id)"
            " <> CASE WHEN r.admission IN (0, 9) THEN r.limits ELSE 0 END"
            " OR (SELECT count(*) FROM run_limits w WHERE w.run_id = r.run_id)"
            " <> CASE WHEN r.admission = 4 THEN r.limits ELSE 0 END"
        )
        assert wrong == []
        orphaned = self.stage.sql(
            "SELECT e.run_id FROM limit_leases e WHERE NOT EXISTS"
            " (SELECT 1 FROM runs r WHERE r.run_id = e.run_id)"
        )
        assert orphaned == []


@pytest.fixture
def scenes(stage: Stage) -> LimitScenes:
    """The stage with limits."""
    return LimitScenes(stage)


def enter_act(n: int) -> Act:
    """Return an admitter that queues some runs."""
    return lambda store: store.write(lambda tx: queue_enter(tx, n))


def entry_scene(scenes: LimitScenes) -> Scene:
    """Two admitters, each with a run that needs the only slot."""

    def scene():  # type: ignore[no-untyped-def]
        scenes.empty()
        ids = scenes.submit("one", "one")

        def check(_: list[Outcome]) -> None:
            scenes.check()
            assert sorted(scenes.marks()[run_id] for run_id in ids) == [READY, LIMITED]

        return [enter_act(1), enter_act(1)], check

    return scene


def test_two_runs_for_one_slot(scenes: LimitScenes) -> None:
    assert explore(scenes.stage.arena, entry_scene(scenes), range(15)) > 3


@pytest.mark.seeded
def test_counting_without_the_lock_is_caught(scenes: LimitScenes) -> None:
    """Counting and then granting, each correct by itself, admits two runs to one slot."""
    with patched("queue_lock", ("FOR NO KEY UPDATE", "")):
        assert caught(scenes.stage, entry_scene(scenes)) <= len(SEEDS)


def test_an_end_against_an_entry(scenes: LimitScenes) -> None:
    """In either order, the next run is admitted without another check."""

    def scene():  # type: ignore[no-untyped-def]
        scenes.empty()
        scenes.enqueue("one")
        held = scenes.claim()
        (behind,) = scenes.submit("one")

        def check(_: list[Outcome]) -> None:
            scenes.check()
            assert scenes.marks() == {behind: READY}

        return [finish_act(held), enter_act(5)], check

    assert explore(scenes.stage.arena, scene, range(15)) > 3


def test_two_ends_let_two_through(scenes: LimitScenes) -> None:
    def scene():  # type: ignore[no-untyped-def]
        scenes.empty()
        scenes.enqueue("two", "two")
        held = scenes.claim()
        behind = scenes.enqueue("two", "two", "two")

        def check(_: list[Outcome]) -> None:
            scenes.check()
            assert [scenes.marks()[run_id] for run_id in behind] == [READY, READY, LIMITED]

        return [finish_act(held[:1]), finish_act(held[1:])], check

    assert explore(scenes.stage.arena, scene, range(15)) > 3


def test_a_cancel_against_the_admission_of_the_same_run(scenes: LimitScenes) -> None:
    """The cancelled run neither keeps the slot nor takes it from the next run."""

    def scene():  # type: ignore[no-untyped-def]
        scenes.empty()
        scenes.enqueue("one")
        held = scenes.claim()
        first, second = scenes.enqueue("one", "one")

        def cancel(store: Store) -> str:
            client = Client(store)
            client._names._cache.declared = scenes.stage.client._names._cache.declared
            return client.runs.cancel(encode("run", first)).outcome

        def check(outcomes: list[Outcome]) -> None:
            scenes.check()
            assert outcomes[1].value == "cancelled"
            assert scenes.marks() == {second: READY}

        return [finish_act(held), cancel], check

    assert explore(scenes.stage.arena, scene, range(20)) > 3


def test_a_pause_against_the_admission_of_the_same_run(scenes: LimitScenes) -> None:
    def scene():  # type: ignore[no-untyped-def]
        scenes.empty()
        scenes.enqueue("one")
        held = scenes.claim()
        (first,) = scenes.enqueue("one", customer="slow")
        (second,) = scenes.enqueue("one")
        slow = scenes.stage.value("SELECT customer FROM customers WHERE customer_id = 'slow'")

        def pause(store: Store) -> bool:
            return store.write(lambda tx: pause_put(tx, "customer", slow, "me", ""))

        def check(_: list[Outcome]) -> None:
            scenes.check()
            assert scenes.marks() == {first: 2, second: READY}

        return [finish_act(held), pause], check

    assert explore(scenes.stage.arena, scene, range(20)) > 3


def test_two_limits_come_free_at_once(scenes: LimitScenes) -> None:
    """A run that needs both is not missed by two transactions that each free one of them."""

    def scene():  # type: ignore[no-untyped-def]
        scenes.empty()
        scenes.enqueue("left", "right")
        scenes.stage.sql("UPDATE limits SET capacity = 1 WHERE name IN ('left', 'right')")
        held = scenes.claim()
        (both,) = scenes.enqueue("both")

        def check(_: list[Outcome]) -> None:
            scenes.check()
            assert scenes.marks() == {both: READY}

        return [finish_act(held[:1]), finish_act(held[1:])], check

    assert explore(scenes.stage.arena, scene, range(20)) > 3
