"""Claim, start, finish, rescue and sessions against each other, statement by statement."""

import pytest

from penstock.access.shares import STRIDE
from penstock.client import Client
from penstock.core.errors import Conflict, IllegalTransition
from penstock.core.ids import decode, encode
from penstock.db.store import Store
from penstock.runs import attempt_result
from penstock.runs.admitter import Admitter
from penstock.runs.rows import FinishedRun, HeldRun
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.leases import session_expire, session_heartbeat
from penstock.runs.store.runs import run_start_many
from penstock.runs.sweeper import Sweeper
from tests.harness.interleaving import Act, Outcome, exhaust, explore
from tests.interleaving.stage import LEASE_US, Stage, claim_act, finish_act, submit_act

pytestmark = pytest.mark.postgres


def sweep(store: Store) -> object:
    return Sweeper(store, jitter=lambda: 0.0).run_once()


def conserved(stage: Stage, ids: list[int]) -> None:
    """Check that each run is live or ended exactly once, and that only retries were created."""
    rows = stage.sql(
        "SELECT run_id FROM runs WHERE parent_run_id IS NULL"
        " UNION ALL SELECT run_id FROM history WHERE parent_run_id IS NULL"
    )
    assert sorted(row[0] for row in rows) == sorted(ids)


def test_two_claims_never_share_a_run(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        ids = stage.submit(3)
        first, second = stage.session(), stage.session()

        def check(outcomes: list[Outcome]) -> None:
            taken = [run.run_id for outcome in outcomes for run in outcome.value]
            assert len(taken) == len(set(taken))
            tokens = [run.token for outcome in outcomes for run in outcome.value]
            assert len(tokens) == len(set(tokens))
            conserved(stage, ids)

        return [claim_act(stage, first, 2), claim_act(stage, second, 2)], check

    assert exhaust(stage.arena, scene, 100) > 1


def test_a_claim_against_the_rescue_of_the_same_runs(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        ids = stage.submit(2)
        stage.claim(stage.session())
        stage.lapse()
        live = stage.session()

        def admit_and_claim(store: Store) -> list[HeldRun]:
            Admitter(store).run_once()
            taken: list[HeldRun] = claim_act(stage, live)(store)
            return taken

        def check(outcomes: list[Outcome]) -> None:
            conserved(stage, ids)
            for run in outcomes[2].value:
                held = stage.sql("SELECT session_id, token FROM runs WHERE run_id = %s", run.run_id)
                assert held == [(live, run.token)]

        return [sweep, sweep, admit_and_claim], check

    assert explore(stage.arena, scene, range(25)) > 5


def test_a_completed_run_never_comes_back(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        ids = stage.submit(2)
        held = stage.claim(stage.session(), start=True)
        stage.lapse()

        def check(outcomes: list[Outcome]) -> None:
            conserved(stage, ids)
            done = {end.run_id for end in outcomes[0].value}
            states = dict(stage.sql("SELECT run_id, final_state FROM history"))
            assert all(states[run_id] == "COMPLETED" for run_id in done)
            retried = {row[0] for row in stage.sql("SELECT parent_run_id FROM runs")}
            assert retried == set(ids) - done

        return [finish_act(held), sweep], check

    assert explore(stage.arena, scene, range(25)) > 3


def test_a_lapse_against_the_start_of_the_same_run(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        stage.submit(1)
        held = stage.claim(stage.session())
        stage.lapse()
        pairs = [(run.run_id, run.token) for run in held]

        def start_and_finish(store: Store) -> list[FinishedRun]:
            if not store.write(lambda tx: run_start_many(tx, pairs)):
                return []
            ends = [attempt_result.completed_result(run) for run in held]
            return store.write(lambda tx: run_end_many(tx, ends))

        def check(outcomes: list[Outcome]) -> None:
            rows = stage.sql("SELECT state, lapses FROM runs WHERE parent_run_id IS NULL")
            ended = stage.sql("SELECT final_state FROM history")
            retries = stage.sql("SELECT state FROM runs WHERE parent_run_id IS NOT NULL")
            if outcomes[0].value:
                assert (rows, ended, retries) == ([], [("COMPLETED",)], [])
            elif ended:
                assert (rows, ended, len(retries)) == ([], [("FAILED",)], 1)
            else:
                assert rows == [("PENDING", 1)]

        return [start_and_finish, sweep], check

    assert explore(stage.arena, scene, range(25)) > 3


def test_a_heartbeat_against_the_expiry_of_its_session(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        session_id = stage.session()
        stage.lapse()

        def heartbeat(store: Store) -> bool:
            return store.write(lambda tx: session_heartbeat(tx, session_id, LEASE_US))

        def check(outcomes: list[Outcome]) -> None:
            alive, expired = outcomes[0].value, bool(outcomes[1].value)
            there = bool(stage.sql("SELECT 1 FROM sessions WHERE session_id = %s", session_id))
            assert alive == there
            assert alive != expired

        return [heartbeat, lambda store: store.write(session_expire)], check

    assert exhaust(stage.arena, scene, 60) > 1


def test_one_run_of_an_ordering_key_is_free(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        stage.submit(1, key="k")
        held = stage.claim(stage.session())
        add = submit_act(stage, key="k")

        def check(_: list[Outcome]) -> None:
            one_free(stage, at_least=0)
            sweep(stage.store)
            one_free(stage, at_least=1)

        return [finish_act(held), add, add], check

    assert explore(stage.arena, scene, range(30)) > 5


def one_free(stage: Stage, *, at_least: int) -> None:
    free = stage.value(
        "SELECT count(*) FROM runs WHERE ordering_key IS NOT NULL AND admission <> 3"
    )
    assert at_least <= free <= 1, f"{free} runs of one key are free"


def test_two_inserts_of_a_new_ordering_key(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        return [submit_act(stage, key="k")] * 2, lambda _: one_free(stage, at_least=1)

    assert exhaust(stage.arena, scene, 60) > 1


def test_fair_ranks_of_a_customer_are_unique(stage: Stage) -> None:
    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        stage.submit(1)  # creates the customer's row, which is then locked
        before = stage.value("SELECT max(fair_rank) FROM fair_ranks WHERE customer > 0")

        def check(_: list[Outcome]) -> None:
            passes = [row[0] for row in stage.sql("SELECT pass FROM runs ORDER BY pass")]
            assert passes == [before + STRIDE * n for n in range(7)]
            assert (
                stage.value("SELECT max(fair_rank) FROM fair_ranks WHERE customer > 0")
                == before + 6 * STRIDE
            )

        return [submit_act(stage, n=2)] * 3, check

    assert explore(stage.arena, scene, range(15)) > 3


def test_concurrent_retries_of_a_dead_run(stage: Stage) -> None:
    """Replays of its dead letter, a manual retry, and a discard: at most one new run."""

    def errors_returned(act: Act) -> Act:
        def safe(store: Store) -> object:
            try:
                return act(store) or "done"
            except (Conflict, IllegalTransition):
                return None

        return safe

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        (run_id,) = stage.submit()
        failure = attempt_result.AttemptFailure(error_type="DATA_QUALITY", force_retry=False)
        held = stage.claim(stage.session(), start=True)
        ends = [attempt_result.failed(run, failure, jitter=0.0) for run in held]
        stage.store.write(lambda tx: run_end_many(tx, ends))
        (dead_letter,) = stage.client.dead_letters.list().items
        number = dead_letter.dead_letter_id

        def check(outcomes: list[Outcome]) -> None:
            retries = stage.value("SELECT count(*) FROM runs")
            done = sum(outcome.value is not None for outcome in outcomes[:2])
            assert (retries, done) == ((1, 1) if outcomes[2].value is None else (retries, retries))
            assert retries <= 1
            status = stage.value("SELECT status FROM dead_letters")
            assert status == ("discarded" if outcomes[2].value else "replayed")

        return [
            errors_returned(lambda store: Client(store).dead_letters.replay(number)),
            errors_returned(lambda store: Client(store).runs.retry(encode("run", run_id))),
            errors_returned(lambda store: Client(store).dead_letters.discard(number, "enough")),
        ], check

    assert explore(stage.arena, scene, range(20)) > 5


def test_concurrent_retries_of_one_work(stage: Stage) -> None:
    """Retries of a dead run and of the dead run that retried it: one new run."""

    def die(run_ids: list[int]) -> None:
        failure = attempt_result.AttemptFailure(error_type="DATA_QUALITY", force_retry=False)
        held = stage.claim(stage.session(), start=True)
        assert [run.run_id for run in held] == run_ids
        ends = [attempt_result.failed(run, failure, jitter=0.0) for run in held]
        stage.store.write(lambda tx: run_end_many(tx, ends))

    def retry(run_id: int) -> Act:
        def act(store: Store) -> object:
            try:
                return Client(store).runs.retry(encode("run", run_id))
            except Conflict:
                return None

        return act

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        (run_id,) = stage.submit()
        die([run_id])
        again = decode("run", stage.client.runs.retry(encode("run", run_id)).run_id)
        die([again])

        def check(outcomes: list[Outcome]) -> None:
            assert stage.value("SELECT count(*) FROM runs") == 1
            assert sum(one.value is not None for one in outcomes) == 1

        return [retry(run_id), retry(again)], check

    assert explore(stage.arena, scene, range(15)) > 3
