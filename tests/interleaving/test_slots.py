"""Slots of a limit, statement by statement: nobody gets in beside somebody else's turn."""

from collections.abc import Sequence
from contextlib import suppress

import pytest

from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import NotFound
from penstock.db.store import Store
from penstock.limits.rules import LimitTerms
from penstock.limits.store.grant import limit_serve
from penstock.limits.store.limits import (
    limit_alter,
    limit_declare,
    limit_force_release,
    limit_get,
    limit_renew_many,
)
from penstock.limits.store.reads import limit_holders, limit_queue
from penstock.limits.store.rows import Lease, Release, Served, Turn, Want
from tests.harness.interleaving import Act, Outcome, exhaust, explore
from tests.harness.interleaving import Scene as PlayedScene
from tests.interleaving.stage import Stage
from tests.interleaving.test_seeded_bugs import SEEDS, caught, patched

pytestmark = pytest.mark.postgres

NAME = "table"


class Scene:
    """A limit with nobody in it, on an emptied stage."""

    def __init__(self, stage: Stage, capacity: int) -> None:
        stage.empty()
        stage.sql("DELETE FROM limit_history")
        self.stage = stage
        terms = LimitTerms(capacity=capacity, lease_us=MINUTE)
        stage.store.write(lambda tx: limit_declare(tx, NAME, terms, actor="test"))
        limit = stage.store.read(lambda tx: limit_get(tx, NAME))
        assert limit is not None
        self.id = limit.limit_id

    def ask(self, request: str, broker: str = "a", **more: int) -> Act:
        want = Want(request=request, holder=request, **more)  # type: ignore[arg-type]
        return self.turn(Turn(broker=broker, wants=[want]))

    def give(self, lease: Lease, broker: str = "a") -> Act:
        return self.turn(Turn(broker=broker, releases=[Release(lease.lease_id, lease.token)]))

    def turn(self, turn: Turn) -> Act:
        return lambda store: store.write(lambda tx: limit_serve(tx, self.id, turn))

    def renew(self, lease: Lease) -> Act:
        pair = (lease.lease_id, lease.token)
        return lambda store: store.write(lambda tx: limit_renew_many(tx, [pair]))

    def now(self, act: Act) -> Served:
        found: Served = act(self.stage.store)
        return found

    def holders(self) -> list[str]:
        return [lease.request for lease in self._read(limit_holders)]

    def line(self) -> list[str]:
        return [ticket.request for ticket in self._read(limit_queue)]

    def _read(self, look: object) -> Sequence[Lease]:
        return self.stage.store.read(lambda tx: look(tx, self.id))  # type: ignore[operator]


def last_slot(stage: Stage) -> PlayedScene:
    """Three ask for the one slot there is."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 1)

        def check(outcomes: list[Outcome]) -> None:
            granted = [r for outcome in outcomes for r in outcome.value.leases]
            assert made.holders() == granted
            assert len(granted) == 1
            assert len(made.line()) == 2

        return [made.ask(f"r{n}", broker=f"b{n}") for n in range(3)], check

    return scene


def test_the_last_slot_goes_to_one(stage: Stage) -> None:
    """Of three who ask for the last slot at once, one holds and two wait, in every order."""
    assert explore(stage.arena, last_slot(stage), range(30)) > 5


def test_judging_without_the_lock_is_caught(stage: Stage) -> None:
    """Counting and then inserting, each right by itself, lets two into one slot."""
    with patched("limit_lock", ("FOR NO KEY UPDATE", "")):
        assert caught(stage, last_slot(stage)) <= len(SEEDS)


def test_two_who_ask_in_every_order(stage: Stage) -> None:
    """Weights that fit only one by one never fit together."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 3)

        def check(outcomes: list[Outcome]) -> None:
            assert len(made.holders()) == 1
            assert sum(len(outcome.value.leases) for outcome in outcomes) == 1

        acts = [made.ask(f"r{n}", broker=f"b{n}", weight=2) for n in range(2)]
        return acts, check

    assert exhaust(stage.arena, scene, 200) > 5


def test_a_release_against_those_who_ask(stage: Stage) -> None:
    """A slot that is given back goes to who waits, never to two, and is never forgotten."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 1)
        held = made.now(made.ask("r0")).leases["r0"]
        made.now(made.ask("first", broker="c"))

        def check(outcomes: list[Outcome]) -> None:
            del outcomes
            assert made.holders() == ["first"]
            assert sorted(made.line()) == ["r1", "r2"]

        acts = [made.give(held), made.give(held), made.ask("r1", "x"), made.ask("r2", "y")]
        return acts, check

    assert explore(stage.arena, scene, range(30)) > 5


def test_a_late_renewal_against_expiry(stage: Stage) -> None:
    """Either the renewal is answered and holds, or the slot is somebody else's: never both."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 1)
        held = made.now(made.ask("r0")).leases["r0"]
        stage.clock.advance(2 * MINUTE)

        def check(outcomes: list[Outcome]) -> None:
            renewed = held.lease_id in outcomes[0].value
            assert made.holders() == (["r0"] if renewed else ["r1"])
            assert made.line() == (["r1"] if renewed else [])

        sweep = made.turn(Turn(broker=""))
        return [made.renew(held), made.ask("r1", "b"), sweep], check

    assert explore(stage.arena, scene, range(40)) > 5


def test_a_capacity_that_shrinks(stage: Stage) -> None:
    """Whoever gets in beside a decrease was let in before it; after it nobody is."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 2)
        made.now(made.ask("r0"))
        terms = LimitTerms(capacity=1, lease_us=MINUTE)

        def shrink(store: Store) -> object:
            return store.write(lambda tx: limit_alter(tx, made.id, terms, actor="ada"))

        def check(outcomes: list[Outcome]) -> None:
            granted = [r for outcome in outcomes[1:] for r in outcome.value.leases]
            assert len(granted) <= 1
            assert sorted(made.holders()) == sorted(["r0", *granted])
            # Now it is lowered: one more turn lets nobody in.
            assert made.now(made.turn(Turn(broker="z"))).leases == {}
            assert len(made.holders()) == 1 + len(granted)

        return [shrink, made.ask("r1", "b"), made.ask("r2", "c")], check

    assert explore(stage.arena, scene, range(30)) > 5


def test_a_forced_release_against_the_holders_own(stage: Stage) -> None:
    """The slot is given back once, whoever does it, and handed on once."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 1)
        held = made.now(made.ask("r0")).leases["r0"]
        made.now(made.ask("r1", "b"))
        made.now(made.ask("r2", "b"))

        def force(store: Store) -> object:
            with suppress(NotFound):  # given back before
                store.write(
                    lambda tx: limit_force_release(tx, held.lease_id, actor="ada", why="stuck")
                )
            return None

        def check(outcomes: list[Outcome]) -> None:
            del outcomes
            assert made.holders() == ["r1"]
            assert made.line() == ["r2"]

        return [force, made.give(held), made.renew(held)], check

    assert explore(stage.arena, scene, range(30)) > 5


def test_tokens_rise_whoever_grants(stage: Stage) -> None:
    """The later a grant was committed, the higher its token."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 10)

        def check(outcomes: list[Outcome]) -> None:
            del outcomes
            rows = stage.sql("SELECT token FROM limit_leases ORDER BY lease_id")
            tokens = [row[0] for row in rows]
            assert tokens == sorted(set(tokens))
            assert len(tokens) == 3

        return [made.ask(f"r{n}", f"b{n}") for n in range(3)], check

    assert explore(stage.arena, scene, range(15)) > 3


def test_a_ticket_that_lapses_while_it_is_granted(stage: Stage) -> None:
    """A dead process's ticket is granted or dropped, and the next one is not forgotten."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 1)
        held = made.now(made.ask("r0")).leases["r0"]
        made.now(made.ask("dead", "b"))
        stage.clock.advance(20 * SECOND)
        made.now(made.renew(held))

        def check(outcomes: list[Outcome]) -> None:
            del outcomes
            assert made.holders() == ["alive"]
            assert made.line() == []

        return [made.give(held), made.ask("alive", "c"), made.turn(Turn(broker=""))], check

    assert explore(stage.arena, scene, range(20)) > 3
