"""Races of external workers with each other, the sweeper and a cancel, on both engines."""

from functools import partial

from penstock.core.clock import MINUTE
from penstock.core.errors import Conflict, RunCancelled
from penstock.runs.external.client.work import (
    Claimed,
    ClaimStatus,
    CompletionItem,
    CompletionResult,
    ExternalWorker,
    Heartbeat,
)
from tests.kits.client_harness import Harness
from tests.kits.external_worker import W1, claimed, running
from tests.schedules.test_client_races import race

REPEATS = 5


def test_many_claims(harness: Harness) -> None:
    """With concurrent claims, each run has one holder and one lease."""
    for _ in range(REPEATS):
        for _ in range(10):
            harness.submit("outside")
        results: list[list[Claimed]] = race(
            *[partial(harness.client.work.claim, ExternalWorker(f"w{n}", "k"), 4) for n in range(4)]
        )
        taken = [one.run.run_id for result in results for one in result]
        assert len(taken) == len(set(taken)) == 10
        assert harness.counts("leases") == {"leases": 10}
        harness.sql("DELETE FROM runs")
        harness.sql("DELETE FROM leases")


def test_claims_by_id(harness: Harness) -> None:
    """A run that a broker dispatches several times is claimed by one worker."""
    for _ in range(REPEATS):
        run_id = harness.submit("outside")
        results = race(
            *[
                partial(harness.client.work.claim_by_id, ExternalWorker(f"w{n}", "k"), run_id)
                for n in range(3)
            ]
        )
        (one,) = [result for result in results if isinstance(result, Claimed)]
        assert harness.run(run_id).claimed_by == one.run.claimed_by


def test_complete_against_the_sweep(harness: Harness) -> None:
    """A result reported while its run is swept is either stored or refused."""
    for _ in range(REPEATS):
        one = running(harness)
        run_id = one.run.run_id
        harness.clock.advance(6 * MINUTE)
        complete = partial(harness.client.work.complete, run_id, W1, token=one.run.token)
        result, _ = race(complete, harness.sweeper.run_once)
        state = harness.run(run_id).state
        assert state == ("FAILED" if isinstance(result, Conflict) else "COMPLETED")


def test_start_against_a_cancel(harness: Harness) -> None:
    """A start succeeds or raises RunCancelled; in both cases the cancel request is kept."""
    for _ in range(REPEATS):
        one = claimed(harness)
        run_id = one.run.run_id

        def start(run_id: int = run_id) -> ClaimStatus | RunCancelled:
            try:
                return harness.client.work.start(run_id, W1)
            except RunCancelled as error:
                return error

        race(start, partial(harness.cancel, run_id))
        assert harness.client.work.heartbeat(run_id, W1).cancel_requested
        assert harness.client.work.cancelled(run_id, W1).state == "CANCELLED"


def test_one_report_many_times(harness: Harness) -> None:
    """A report that is repeated concurrently, singly and in batches, is stored once."""
    for _ in range(REPEATS):
        ones = [running(harness) for _ in range(3)]
        first = ones[0].run
        done = CompletionResult(result_summary={"n": 1})
        report = partial(harness.client.work.complete, first.run_id, W1, completion=done)
        reports = [CompletionItem(run_id=one.run.run_id, token=one.run.token) for one in ones]
        heartbeats = [Heartbeat(run_id=one.run.run_id) for one in reversed(ones)]
        results = race(
            report,
            report,
            partial(harness.client.work.complete_many, W1, reports),
            partial(harness.client.work.heartbeat_many, W1, heartbeats),
        )
        assert results[0].state == results[1].state == results[2][0].state == "COMPLETED"
        repeats = [results[0].is_repeat, results[1].is_repeat, results[2][0].is_repeat]
        assert sorted(repeats) == [False, True, True]
    assert harness.counts("history", "leases") == {"history": 3 * REPEATS, "leases": 0}
