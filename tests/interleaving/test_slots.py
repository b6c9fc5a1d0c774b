"""Slots of a limit, statement by statement: the capacity is never exceeded."""

from collections.abc import Sequence
from contextlib import suppress

import pytest

from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import NotFound
from penstock.db.store import Store
from penstock.limits.rules import LimitSettings
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.limits import (
    limit_alter,
    limit_declare,
    limit_force_release,
    limit_get,
    limit_renew_many,
)
from penstock.limits.store.reads import limit_holders, limit_queue
from penstock.limits.store.rows import GrantInput, GrantResult, LeaseRequest, LeaseRow, Release
from tests.harness.interleaving import Act, Outcome, exhaust, explore
from tests.harness.interleaving import Scene as PlayedScene
from tests.interleaving.stage import Stage
from tests.interleaving.test_seeded_bugs import SEEDS, caught, patched

pytestmark = pytest.mark.postgres

NAME = "table"


class Scene:
    """A limit without holders, on an emptied stage."""

    def __init__(self, stage: Stage, capacity: int) -> None:
        stage.empty()
        stage.sql("DELETE FROM limit_history")
        self.stage = stage
        terms = LimitSettings(capacity=capacity, lease_us=MINUTE)
        stage.store.write(lambda tx: limit_declare(tx, NAME, terms, actor="test"))
        limit = stage.store.read(lambda tx: limit_get(tx, NAME))
        assert limit is not None
        self.id = limit.limit_id

    def ask(self, request: str, broker: str = "a", **more: int) -> Act:
        want = LeaseRequest(request=request, holder=request, **more)  # type: ignore[arg-type]
        return self.grant(GrantInput(broker=broker, requests=[want]))

    def release(self, lease: LeaseRow, broker: str = "a") -> Act:
        return self.grant(
            GrantInput(broker=broker, releases=[Release(lease.lease_id, lease.token)])
        )

    def grant(self, grant_input: GrantInput) -> Act:
        return lambda store: store.write(lambda tx: limit_grant(tx, self.id, grant_input))

    def renew(self, lease: LeaseRow) -> Act:
        pair = (lease.lease_id, lease.token)
        return lambda store: store.write(lambda tx: limit_renew_many(tx, [pair]))

    def now(self, act: Act) -> GrantResult:
        found: GrantResult = act(self.stage.store)
        return found

    def holders(self) -> list[str]:
        return [lease.request for lease in self._read(limit_holders)]

    def queue(self) -> list[str]:
        return [ticket.request for ticket in self._read(limit_queue)]

    def _read(self, query: object) -> Sequence[LeaseRow]:
        return self.stage.store.read(lambda tx: query(tx, self.id))  # type: ignore[operator]


def last_slot(stage: Stage) -> PlayedScene:
    """Three requests for the only slot."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 1)

        def check(outcomes: list[Outcome]) -> None:
            granted = [r for outcome in outcomes for r in outcome.value.leases]
            assert made.holders() == granted
            assert len(granted) == 1
            assert len(made.queue()) == 2

        return [made.ask(f"r{n}", broker=f"b{n}") for n in range(3)], check

    return scene


def test_the_last_slot_goes_to_one(stage: Stage) -> None:
    """Of three concurrent requests for the last slot, one holds and two wait, in every order."""
    assert explore(stage.arena, last_slot(stage), range(30)) > 5


@pytest.mark.seeded
def test_counting_without_the_lock_is_caught(stage: Stage) -> None:
    """Counting and then inserting, each correct by itself, grants one slot twice."""
    with patched("limit_lock", ("FOR NO KEY UPDATE", "")):
        assert caught(stage, last_slot(stage)) <= len(SEEDS)


def test_two_requests_in_every_order(stage: Stage) -> None:
    """Weights that fit only one at a time are never granted together."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 3)

        def check(outcomes: list[Outcome]) -> None:
            assert len(made.holders()) == 1
            assert sum(len(outcome.value.leases) for outcome in outcomes) == 1

        acts = [made.ask(f"r{n}", broker=f"b{n}", weight=2) for n in range(2)]
        return acts, check

    assert exhaust(stage.arena, scene, 200) > 5


def test_a_release_against_requests(stage: Stage) -> None:
    """A released slot goes to a waiting request, never to two, and is never lost."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 1)
        held = made.now(made.ask("r0")).leases["r0"]
        made.now(made.ask("first", broker="c"))

        def check(outcomes: list[Outcome]) -> None:
            del outcomes
            assert made.holders() == ["first"]
            assert sorted(made.queue()) == ["r1", "r2"]

        acts = [made.release(held), made.release(held), made.ask("r1", "x"), made.ask("r2", "y")]
        return acts, check

    assert explore(stage.arena, scene, range(30)) > 5


def test_a_late_renewal_against_expiry(stage: Stage) -> None:
    """Either the renewal succeeds and the lease holds, or the slot is granted again: never both."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 1)
        held = made.now(made.ask("r0")).leases["r0"]
        stage.clock.advance(2 * MINUTE)

        def check(outcomes: list[Outcome]) -> None:
            renewed = held.lease_id in outcomes[0].value
            assert made.holders() == (["r0"] if renewed else ["r1"])
            assert made.queue() == (["r1"] if renewed else [])

        sweep = made.grant(GrantInput(broker=""))
        return [made.renew(held), made.ask("r1", "b"), sweep], check

    assert explore(stage.arena, scene, range(40)) > 5


def test_a_capacity_that_shrinks(stage: Stage) -> None:
    """A request granted concurrently with a decrease was granted before it; none is after it."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 2)
        made.now(made.ask("r0"))
        terms = LimitSettings(capacity=1, lease_us=MINUTE)

        def shrink(store: Store) -> object:
            return store.write(lambda tx: limit_alter(tx, made.id, terms, actor="ada"))

        def check(outcomes: list[Outcome]) -> None:
            granted = [r for outcome in outcomes[1:] for r in outcome.value.leases]
            assert len(granted) <= 1
            assert sorted(made.holders()) == sorted(["r0", *granted])
            # The capacity is lowered now: another grant transaction grants nothing.
            assert made.now(made.grant(GrantInput(broker="z"))).leases == {}
            assert len(made.holders()) == 1 + len(granted)

        return [shrink, made.ask("r1", "b"), made.ask("r2", "c")], check

    assert explore(stage.arena, scene, range(30)) > 5


def test_a_forced_release_against_the_holders_own(stage: Stage) -> None:
    """The slot is released once, by either of them, and granted again once."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 1)
        held = made.now(made.ask("r0")).leases["r0"]
        made.now(made.ask("r1", "b"))
        made.now(made.ask("r2", "b"))

        def force(store: Store) -> object:
            with suppress(NotFound):  # already released
                store.write(
                    lambda tx: limit_force_release(tx, held.lease_id, actor="ada", why="stuck")
                )
            return None

        def check(outcomes: list[Outcome]) -> None:
            del outcomes
            assert made.holders() == ["r1"]
            assert made.queue() == ["r2"]

        return [force, made.release(held), made.renew(held)], check

    assert explore(stage.arena, scene, range(30)) > 5


def test_tokens_increase_across_brokers(stage: Stage) -> None:
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


def test_a_ticket_that_expires_while_it_is_granted(stage: Stage) -> None:
    """A dead process's ticket is granted or dropped, and the next request is not missed."""

    def scene():  # type: ignore[no-untyped-def]
        made = Scene(stage, 1)
        held = made.now(made.ask("r0")).leases["r0"]
        made.now(made.ask("dead", "b"))
        stage.clock.advance(20 * SECOND)
        made.now(made.renew(held))

        def check(outcomes: list[Outcome]) -> None:
            del outcomes
            assert made.holders() == ["alive"]
            assert made.queue() == []

        return [
            made.release(held),
            made.ask("alive", "c"),
            made.grant(GrantInput(broker="")),
        ], check

    assert explore(stage.arena, scene, range(20)) > 3
