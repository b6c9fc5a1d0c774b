"""Lines before limits, statement by statement: never too many at a time, nobody forgotten."""

from typing import Any

import pytest

from penstock.access.store.registry import processor_list
from penstock.client import Client
from penstock.db.store import Store
from penstock.limits.store.run_queue import lines_enter
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.client.runs import Submission
from penstock.runs.rows import HeldRun
from penstock.runs.store.admission import pause_put
from penstock.runs.store.runs import Claim, run_claim
from tests.harness.interleaving import Act, Outcome, Scene, explore
from tests.interleaving.stage import Stage, finish_act
from tests.interleaving.test_seeded_bugs import SEEDS, caught, patched

pytestmark = pytest.mark.postgres

READY, LIMITED = 0, 4


def nothing(run: Any) -> None:
    """A processor."""


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


class Lines:
    """Scenes of limited runs."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.client.register([pipeline()])
        self.processors = [
            row.processor for row in stage.store.read(processor_list) if row.pipeline == "narrow"
        ]

    def empty(self) -> None:
        """A fresh scene; named limits hold one."""
        self.stage.empty()
        self.stage.sql("UPDATE limits SET capacity = 1 WHERE name IN ('left', 'right')")

    def submit(self, *processors: str, customer: str = "acme") -> list[int]:
        """Runs that wait for a place in line."""
        return [
            self.stage.client.runs.submit(
                Submission(pipeline="narrow", processor=name, customer=customer)
            )
            for name in processors
        ]

    def line_up(self, *processors: str, customer: str = "acme") -> list[int]:
        """Runs in line, each behind those before."""
        ids = self.submit(*processors, customer=customer)
        self.stage.store.write(lambda tx: lines_enter(tx, 100))
        return ids

    def claim(self) -> list[HeldRun]:
        """Claim whatever is ready."""
        claim = Claim(pool=self.stage.pool, processors=self.processors, n=10, claimed_by="me")
        return self.stage.store.write(lambda tx: run_claim(tx, claim))

    def marks(self) -> dict[int, int]:
        """Admission marks by run."""
        return dict(self.stage.sql("SELECT run_id, admission FROM runs"))

    def check(self) -> None:
        """Never more than the capacity; rows and marks agree."""
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
        strays = self.stage.sql(
            "SELECT e.run_id FROM limit_leases e WHERE NOT EXISTS"
            " (SELECT 1 FROM runs r WHERE r.run_id = e.run_id)"
        )
        assert strays == []


@pytest.fixture
def lines(stage: Stage) -> Lines:
    """The stage with limits."""
    return Lines(stage)


def enter_act(n: int) -> Act:
    """An admitter that gives some runs their places."""
    return lambda store: store.write(lambda tx: lines_enter(tx, n))


def entry_scene(lines: Lines) -> Scene:
    """Two admitters, each with a run that needs the one slot there is."""

    def scene():  # type: ignore[no-untyped-def]
        lines.empty()
        ids = lines.submit("one", "one")

        def check(_: list[Outcome]) -> None:
            lines.check()
            assert sorted(lines.marks()[run_id] for run_id in ids) == [READY, LIMITED]

        return [enter_act(1), enter_act(1)], check

    return scene


def test_two_enter_where_one_may_go(lines: Lines) -> None:
    assert explore(lines.stage.arena, entry_scene(lines), range(15)) > 3


def test_judging_without_the_lock_is_caught(lines: Lines) -> None:
    """Counting and then granting, each right by itself, lets two into one place."""
    with patched("line_lock", ("FOR NO KEY UPDATE", "")):
        assert caught(lines.stage, entry_scene(lines)) <= len(SEEDS)


def test_an_end_against_an_entry(lines: Lines) -> None:
    """Whoever comes first: the next one goes without anybody looking again."""

    def scene():  # type: ignore[no-untyped-def]
        lines.empty()
        lines.line_up("one")
        held = lines.claim()
        (behind,) = lines.submit("one")

        def check(_: list[Outcome]) -> None:
            lines.check()
            assert lines.marks() == {behind: READY}

        return [finish_act(held), enter_act(5)], check

    assert explore(lines.stage.arena, scene, range(15)) > 3


def test_two_ends_let_two_through(lines: Lines) -> None:
    def scene():  # type: ignore[no-untyped-def]
        lines.empty()
        lines.line_up("two", "two")
        held = lines.claim()
        behind = lines.line_up("two", "two", "two")

        def check(_: list[Outcome]) -> None:
            lines.check()
            assert [lines.marks()[run_id] for run_id in behind] == [READY, READY, LIMITED]

        return [finish_act(held[:1]), finish_act(held[1:])], check

    assert explore(lines.stage.arena, scene, range(15)) > 3


def test_a_cancel_against_the_turn_of_the_same_run(lines: Lines) -> None:
    """The cancelled run neither keeps the slot nor takes it away from the one behind it."""

    def scene():  # type: ignore[no-untyped-def]
        lines.empty()
        lines.line_up("one")
        held = lines.claim()
        first, second = lines.line_up("one", "one")

        def cancel(store: Store) -> str:
            client = Client(store)
            client._names._cache.declared = lines.stage.client._names._cache.declared
            return client.runs.cancel(first)

        def check(outcomes: list[Outcome]) -> None:
            lines.check()
            assert outcomes[1].value == "cancelled"
            assert lines.marks() == {second: READY}

        return [finish_act(held), cancel], check

    assert explore(lines.stage.arena, scene, range(20)) > 3


def test_a_pause_against_the_turn_of_the_same_run(lines: Lines) -> None:
    def scene():  # type: ignore[no-untyped-def]
        lines.empty()
        lines.line_up("one")
        held = lines.claim()
        (first,) = lines.line_up("one", customer="slow")
        (second,) = lines.line_up("one")
        slow = lines.stage.value("SELECT customer FROM customers WHERE customer_id = 'slow'")

        def pause(store: Store) -> bool:
            return store.write(lambda tx: pause_put(tx, "customer", slow, "me", ""))

        def check(_: list[Outcome]) -> None:
            lines.check()
            assert lines.marks() == {first: 2, second: READY}

        return [finish_act(held), pause], check

    assert explore(lines.stage.arena, scene, range(20)) > 3


def test_two_limits_come_free_at_once(lines: Lines) -> None:
    """A run that needs both is not missed by two who each free one of them."""

    def scene():  # type: ignore[no-untyped-def]
        lines.empty()
        lines.line_up("left", "right")
        lines.stage.sql("UPDATE limits SET capacity = 1 WHERE name IN ('left', 'right')")
        held = lines.claim()
        (both,) = lines.line_up("both")

        def check(_: list[Outcome]) -> None:
            lines.check()
            assert lines.marks() == {both: READY}

        return [finish_act(held[:1]), finish_act(held[1:])], check

    assert explore(lines.stage.arena, scene, range(20)) > 3
