"""Maxima of customers and expiry, statement by statement, against claims, ends and submissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from penstock.core.clock import MINUTE, SECOND
from penstock.core.ids import decode
from penstock.db.store import Store
from penstock.limits.store.customer_caps import caps_apply
from penstock.limits.store.run_queue import queue_enter
from penstock.runs.records import Submission
from penstock.runs.store.expiry import run_expire_many, run_expired
from penstock.runs.store.shares import run_rerank
from tests.harness.interleaving import Act, Outcome, explore
from tests.interleaving.stage import Stage, claim_act, finish_act, submit_act

pytestmark = pytest.mark.postgres

SEEDS = range(20)
Played: TypeAlias = tuple[list[Act], Callable[[list[Outcome]], None]]


def expire_act(stage: Stage, wait_us: int) -> Act:
    """Return a sweeper's step at a later time."""

    def act(store: Store) -> int:
        stage.clock.advance(wait_us)
        return store.write(lambda tx: run_expire_many(tx, run_expired(tx, 10)))

    return act


def apply_act(store: Store) -> None:
    """Apply changed maxima, as the admitter does."""
    store.write(lambda tx: caps_apply(tx, 0))


def enter_act(store: Store) -> None:
    """Queue and admit runs that wait for limits."""
    store.write(lambda tx: queue_enter(tx, 100))


def in_progress(stage: Stage) -> int:
    """Count ready, claimed and running runs."""
    return int(stage.value("SELECT count(*) FROM runs WHERE admission IN (0, 9)"))


def test_a_run_is_claimed_or_expires(stage: Stage) -> None:
    """Of a claim and two sweepers, one gets the run: it runs, or it has ended as EXPIRED."""

    def scene() -> Played:
        stage.empty()
        wanted = Submission(pipeline="single", customer="acme", expires_after="1m")
        run_id = decode("run", stage.client.runs.submit(wanted).run_id)
        session = stage.session()

        def check(outcomes: list[Outcome]) -> None:
            claimed = outcomes[0].value
            live = stage.sql("SELECT state FROM runs WHERE run_id = %s", run_id)
            ended = stage.sql("SELECT final_state FROM history WHERE run_id = %s", run_id)
            if claimed:
                assert (live, ended) == ([("RUNNING",)], [])
            else:
                assert (live, ended) == ([], [("EXPIRED",)])

        acts = [
            claim_act(stage, session, start=True),
            expire_act(stage, MINUTE),
            expire_act(stage, SECOND),
        ]
        return acts, check

    assert explore(stage.arena, scene, SEEDS) > 2


def test_a_maximum_is_never_exceeded(stage: Stage) -> None:
    """While runs end, are submitted and are queued, at most two are ready or in progress."""

    def scene() -> Played:
        stage.empty()
        stage.submit(1)
        stage.client.customers.set("acme", concurrency=2)
        apply_act(stage.store)
        stage.submit(3)
        enter_act(stage.store)
        held = stage.claim(stage.session(), start=True)
        assert len(held) == 2

        def check(_: list[Outcome]) -> None:
            enter_act(stage.store)
            assert in_progress(stage) == 2

        return [finish_act(held), submit_act(stage, n=2), enter_act, enter_act], check

    assert explore(stage.arena, scene, SEEDS) > 3


def test_a_maximum_is_applied_beside_claims_and_ends(stage: Stage) -> None:
    """A new maximum counts runs that are claimed or end concurrently; no slot leaks."""

    def scene() -> Played:
        stage.empty()
        stage.submit(6)
        session = stage.session()
        held = stage.claim(session, 2, start=True)
        stage.client.customers.set("acme", concurrency=2)

        def check(_: list[Outcome]) -> None:
            for _again in range(3):
                apply_act(stage.store)
                enter_act(stage.store)
            own = "SELECT count(*) FROM limit_leases e JOIN runs r ON r.run_id = e.run_id"
            assert stage.value(own) == in_progress(stage)
            assert stage.value("SELECT count(*) FROM limit_leases") == in_progress(stage)
            claimed = stage.value("SELECT count(*) FROM runs WHERE admission = 9")
            assert in_progress(stage) == max(2, claimed)

        return [apply_act, finish_act(held), claim_act(stage, session, 2, start=True)], check

    assert explore(stage.arena, scene, SEEDS) > 3


def test_no_run_is_lost_while_a_weight_is_applied(stage: Stage) -> None:
    """All runs stay ready while some are ranked again and others are inserted."""

    def scene() -> Played:
        stage.empty()
        stage.submit(4)
        stage.client.customers.set("acme", weight=4)

        def check(_: list[Outcome]) -> None:
            while stage.store.write(lambda tx: run_rerank(tx, 100)) is not None:
                pass
            assert stage.value("SELECT rerank_after IS NULL FROM customer_settings")
            assert stage.value("SELECT count(*) FROM runs WHERE admission = 0") == 8

        acts: list[Act] = [
            lambda store: store.write(lambda tx: run_rerank(tx, 2)),
            lambda store: store.write(lambda tx: run_rerank(tx, 100)),
            submit_act(stage, n=2),
            submit_act(stage, n=2),
        ]
        return acts, check

    assert explore(stage.arena, scene, SEEDS) > 3
