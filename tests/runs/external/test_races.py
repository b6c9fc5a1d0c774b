"""Workers outside racing each other, the sweeper and a cancel, on both engines."""

from functools import partial

from penstock.core.clock import MINUTE
from penstock.core.errors import Conflict, RunCancelled
from penstock.runs.external.client.work import Claimed, Completion, Heartbeat, Pulse, Report, Worker
from tests.kits.desk import Desk
from tests.kits.external_worker import W1, claimed, running
from tests.schedules.test_client_races import race

ROUNDS = 5


def test_many_claims(desk: Desk) -> None:
    """Whoever claims at the same moment, each run has one holder with one lease."""
    for _ in range(ROUNDS):
        for _ in range(10):
            desk.submit("outside")
        answers: list[list[Claimed]] = race(
            *[partial(desk.client.work.claim, Worker(f"w{n}", "k"), 4) for n in range(4)]
        )
        taken = [one.run.run_id for answer in answers for one in answer]
        assert len(taken) == len(set(taken)) == 10
        assert desk.counts("leases") == {"leases": 10}
        desk.sql("DELETE FROM runs")
        desk.sql("DELETE FROM leases")


def test_claims_by_id(desk: Desk) -> None:
    """A run that a broker dispatched twice is claimed by one."""
    for _ in range(ROUNDS):
        run_id = desk.submit("outside")
        answers = race(
            *[partial(desk.client.work.claim_by_id, Worker(f"w{n}", "k"), run_id) for n in range(3)]
        )
        (one,) = [answer for answer in answers if isinstance(answer, Claimed)]
        assert desk.client.runs.get(run_id).claimed_by == one.run.claimed_by


def test_complete_against_the_sweep(desk: Desk) -> None:
    """A result that comes while its run is swept is stored or refused, never both."""
    for _ in range(ROUNDS):
        one = running(desk)
        run_id = one.run.run_id
        desk.clock.advance(6 * MINUTE)
        complete = partial(desk.client.work.complete, run_id, W1, token=one.run.token)
        answer, _ = race(complete, desk.sweeper.run_once)
        state = desk.client.runs.get(run_id).state
        assert state == ("FAILED" if isinstance(answer, Conflict) else "COMPLETED")


def test_start_against_a_cancel(desk: Desk) -> None:
    """A start goes through or learns of the cancel; either way the cancel is not lost."""
    for _ in range(ROUNDS):
        one = claimed(desk)
        run_id = one.run.run_id

        def start(run_id: int = run_id) -> Pulse | RunCancelled:
            try:
                return desk.client.work.start(run_id, W1)
            except RunCancelled as error:
                return error

        race(start, partial(desk.client.runs.cancel, run_id))
        assert desk.client.work.heartbeat(run_id, W1).cancel_requested
        assert desk.client.work.cancelled(run_id, W1).state == "CANCELLED"


def test_one_report_many_times(desk: Desk) -> None:
    """A report that is sent many times at once, singly and in batches, is stored once."""
    for _ in range(ROUNDS):
        ones = [running(desk) for _ in range(3)]
        first = ones[0].run
        done = Completion(result_summary={"n": 1})
        report = partial(desk.client.work.complete, first.run_id, W1, completion=done)
        reports = [Report(run_id=one.run.run_id, token=one.run.token) for one in ones]
        beats = [Heartbeat(run_id=one.run.run_id) for one in reversed(ones)]
        answers = race(
            report,
            report,
            partial(desk.client.work.complete_many, W1, reports),
            partial(desk.client.work.heartbeat_many, W1, beats),
        )
        assert answers[0].state == answers[1].state == answers[2][0].state == "COMPLETED"
        news = [answers[0].is_repeat, answers[1].is_repeat, answers[2][0].is_repeat]
        assert sorted(news) == [False, True, True]
    assert desk.counts("history", "leases") == {"history": 3 * ROUNDS, "leases": 0}
