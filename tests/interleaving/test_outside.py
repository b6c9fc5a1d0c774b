"""External workers against each other, the sweeper and a cancel, statement by statement."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.errors import (
    Conflict,
    IllegalTransition,
    NotHolder,
    RunCancelled,
    RunInterrupted,
    StaleToken,
)
from penstock.core.ids import decode, encode
from penstock.db.store import Store
from penstock.runs.external.client.work import (
    Claimed,
    ClaimStatus,
    CompletionItem,
    ExternalWork,
    ExternalWorker,
    FailureReport,
    Heartbeat,
)
from penstock.runs.records import Submission
from penstock.runs.sweeper import Sweeper
from tests.harness.interleaving import Act, Outcome, exhaust, explore
from tests.interleaving.stage import Stage
from tests.kits.effort import effort

pytestmark = pytest.mark.postgres

W1 = ExternalWorker("w1", "k")


def submit(stage: Stage, n: int = 1) -> list[int]:
    """Submit ready runs for external workers."""
    stage.empty()
    wanted = [Submission(pipeline="outside", customer="acme")] * n
    return [decode("run", run_id) for run_id in stage.client.runs.submit_many(wanted)]


def held(stage: Stage, n: int = 1, *, start: bool = True) -> list[Claimed]:
    """Claim runs for w1."""
    submit(stage, n)
    ones = stage.client.work.claim(W1, n)
    if start:
        for one in ones:
            stage.client.work.start(one.run.run_id, W1)
    return ones


def by(stage: Stage, deed: Callable[[ExternalWork], Any]) -> Act:
    """Return a call of an external worker on its own connection; refusals are returned."""
    stage.client._names.cached_pipelines()

    def act(store: Store) -> Any:
        try:
            return deed(stage.client.with_store(store).work)
        except (Conflict, RunInterrupted) as error:
            return error

    return act


def sweep(store: Store) -> object:
    return Sweeper(store, jitter=lambda: 0.0).run_once()


def ends(stage: Stage) -> list[str]:
    return [row[0] for row in stage.sql("SELECT final_state FROM history ORDER BY run_id")]


def test_two_claims_never_share_a_run(stage: Stage) -> None:
    """The runs of each claim are its own, with a lease that has its token."""

    def scene():  # type: ignore[no-untyped-def]
        ids = submit(stage, 3)

        def check(outcomes: list[Outcome]) -> None:
            taken = [one for outcome in outcomes for one in outcome.value]
            assert len({one.run.run_id for one in taken}) == len(taken) <= len(ids)
            leases = stage.sql("SELECT subject, token FROM leases ORDER BY 1")
            assert leases == sorted((one.run.run_id, one.run.token) for one in taken)

        acts = [by(stage, lambda w, k=k: w.claim(ExternalWorker("w", k), 2)) for k in ("a", "b")]  # type: ignore[misc]
        return acts, check

    assert explore(stage.arena, scene, range(20)) > 5


def test_a_report_against_the_sweep(stage: Stage) -> None:
    """Of a completion and a sweep of the same silent run, only one has an effect."""

    def scene():  # type: ignore[no-untyped-def]
        (one,) = held(stage)
        stage.lapse()

        def check(outcomes: list[Outcome]) -> None:
            response = outcomes[0].value
            if not isinstance(response, Exception):
                assert ends(stage) == ["COMPLETED"]
                return
            assert isinstance(response, StaleToken | IllegalTransition)
            assert ends(stage) == ["FAILED"]
            assert stage.value("SELECT count(*) FROM runs") == 1

        complete = by(stage, lambda w: w.complete(one.run.run_id, W1, token=one.run.token))
        return [complete, sweep, sweep], check

    assert explore(stage.arena, scene, range(effort(16, 40))) > effort(3, 5)


@pytest.mark.parametrize("start", [True, False], ids=["running", "claimed"])
def test_a_late_heartbeat_against_the_sweep(stage: Stage, start: bool) -> None:
    """An accepted heartbeat counts: no sweep that read before it takes the run away."""

    def scene():  # type: ignore[no-untyped-def]
        (one,) = held(stage, start=start)
        run_id = one.run.run_id
        stage.lapse()

        def check(outcomes: list[Outcome]) -> None:
            response = outcomes[0].value
            rows = stage.sql("SELECT state FROM runs WHERE run_id = %s AND admission = 9", run_id)
            if isinstance(response, ClaimStatus):
                assert rows == [("RUNNING" if start else "CLAIMED",)]
                until = stage.value("SELECT until_at FROM leases")
                assert until == response.claim_expiry_time > stage.clock.now()
                return
            assert isinstance(response, StaleToken)
            assert rows == []

        heartbeat = by(stage, lambda w: w.heartbeat(run_id, W1, token=one.run.token))
        return [heartbeat, sweep, sweep], check

    assert explore(stage.arena, scene, range(effort(16, 40))) > effort(3, 5)


def test_a_start_against_a_cancel(stage: Stage) -> None:
    """Either the start is refused, or the next heartbeat reports the cancel."""

    def scene():  # type: ignore[no-untyped-def]
        (one,) = held(stage, start=False)
        run_id = one.run.run_id

        def check(outcomes: list[Outcome]) -> None:
            assert outcomes[1].value == "asked"
            assert stage.client.work.heartbeat(run_id, W1).cancel_requested
            assert isinstance(outcomes[0].value, ClaimStatus | RunCancelled)
            assert stage.client.work.cancelled(run_id, W1).state == "CANCELLED"

        def cancel(store: Store) -> str:
            runs = stage.client.with_store(store).runs
            return runs.cancel(encode("run", run_id)).outcome

        return [by(stage, lambda w: w.start(run_id, W1)), cancel], check

    assert exhaust(stage.arena, scene, effort(60, 200)) > 1


def test_a_call_and_its_repeat_at_once(stage: Stage) -> None:
    """A report sent twice at the same time ends the run once, and both get the same response."""

    def scene():  # type: ignore[no-untyped-def]
        (one,) = held(stage)

        def check(outcomes: list[Outcome]) -> None:
            responses = [outcome.value for outcome in outcomes]
            assert not any(isinstance(outcome.value, Exception) for outcome in outcomes), outcomes
            assert {response._replace(is_repeat=False) for response in responses} == {
                responses[0]._replace(is_repeat=False)
            }
            assert sorted(response.is_repeat for response in responses) == [False, True]
            assert ends(stage) == ["FAILED"]
            assert stage.value("SELECT count(*) FROM runs") == 1

        fail = by(stage, lambda w: w.fail(one.run.run_id, W1, FailureReport(error_type="BOOM")))
        return [fail, fail], check

    assert explore(stage.arena, scene, range(20)) > 3


def test_a_lost_claim_against_its_old_holder(stage: Stage) -> None:
    """A run that lapsed and was claimed again is never started by its previous holder."""

    def scene():  # type: ignore[no-untyped-def]
        (one,) = held(stage, start=False)
        run_id = one.run.run_id
        stage.lapse()
        Sweeper(stage.store, jitter=lambda: 0.0).run_once()
        stage.sql("UPDATE runs SET admission = 0, pass = 1")

        def check(outcomes: list[Outcome]) -> None:
            assert isinstance(outcomes[0].value, StaleToken)
            assert isinstance(outcomes[1].value, IllegalTransition | NotHolder)
            (new,) = outcomes[2].value
            state, token = stage.sql("SELECT state, token FROM runs")[0]
            assert (state, token) == ("CLAIMED", new.run.token)

        acts = [
            by(stage, lambda w: w.start(run_id, W1, token=one.run.token)),
            by(stage, lambda w: w.start(run_id, W1)),
            by(stage, lambda w: w.claim(ExternalWorker("w2", "k"))),
        ]
        return acts, check

    assert explore(stage.arena, scene, range(20)) > 5


def test_batches_in_opposite_orders(stage: Stage) -> None:
    """Batches with the same runs in opposite orders both succeed."""

    def scene():  # type: ignore[no-untyped-def]
        ones = held(stage, 3)
        pairs = [(one.run.run_id, one.run.token) for one in ones]

        def check(outcomes: list[Outcome]) -> None:
            assert not any(isinstance(outcome.value, Exception) for outcome in outcomes), outcomes
            assert ends(stage) == ["COMPLETED"] * 3
            assert stage.value("SELECT count(*) FROM leases") == 0

        heartbeats = [Heartbeat(run_id=run_id, token=token) for run_id, token in pairs]
        reports = [CompletionItem(run_id=run_id, token=token) for run_id, token in reversed(pairs)]
        acts = [
            by(stage, lambda w: w.heartbeat_many(W1, heartbeats)),
            by(stage, lambda w: w.complete_many(W1, reports)),
            by(stage, lambda w: w.complete_many(W1, list(reversed(reports)))),
        ]
        return acts, check

    assert explore(stage.arena, scene, range(20)) > 5
