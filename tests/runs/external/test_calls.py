"""Calls of external workers, one by one: claims, heartbeats, results, failures, batches."""

import itertools
import json
from typing import Any

import pytest

from penstock.access.shares import STRIDE
from penstock.core.clock import HOUR, MINUTE, SECOND, to_datetime
from penstock.core.errors import (
    Conflict,
    IllegalTransition,
    InvalidInput,
    NotFound,
    NotHolder,
    PenstockError,
)
from penstock.runs.external.client.work import (
    CompletionItem,
    CompletionResult,
    ExternalWorker,
    FailureReport,
    Heartbeat,
    ProgressReport,
)
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg
from tests.kits.external_worker import W1, asked, claimed, ended, lapsed, running, state_dump


class TestClaim:
    """Claims of runs."""

    def test_response(self, harness: Harness) -> None:
        """A claim returns the run, its token, its processor's names and the claim's expiry."""
        run_id = harness.submit("outside", partition="2026-01-01")
        (one,) = harness.client.work.claim(W1, 10, lease_seconds=10)
        assert (one.run.run_id, one.run.claimed_by, one.run.state) == (run_id, "w1", "CLAIMED")
        assert (one.pipeline, one.phase, one.processor) == ("outside", "main", "push")
        assert one.claim_expiry_time == harness.clock.now() + 10 * SECOND
        assert one.run.token > 0
        assert harness.client.work.claim(W1, 10) == []

    def test_only_external(self, harness: Harness) -> None:
        """Runs of built-in processors cannot be claimed, neither by pool nor by id."""
        run_id = harness.submit("nightly")
        assert harness.client.work.claim(W1, 10) == []
        with pytest.raises(InvalidInput, match="pool"):
            harness.client.work.claim(W1, 10, pool="default")
        with pytest.raises(Conflict, match="built-in"):
            harness.client.work.claim_by_id(W1, run_id)
        assert harness.run(run_id).state == "PENDING"

    def test_filter(self, harness: Harness) -> None:
        """A worker can serve only some pipelines or processors; a typo gets a suggestion."""
        harness.submit("outside")
        work = harness.client.work
        with pytest.raises(InvalidInput, match=r"Did you mean 'outside/main/push'"):
            work.claim(W1, processors=["outside/main/pusch"])
        assert len(work.claim(W1, processors=["outside/main/push"])) == 1
        harness.submit("outside")
        assert len(work.claim(W1, processors=["outside"])) == 1

    @pytest.mark.parametrize(
        "bad",
        [
            {"n": 0},
            {"n": 1001},
            {"n": True},
            {"lease_seconds": 9},
            {"lease_seconds": 3601},
            {"lease_seconds": float("nan")},
            {"worker": ExternalWorker(None, "k")},
            {"worker": ExternalWorker("")},
        ],
    )
    def test_bad_input(self, harness: Harness, bad: dict[str, Any]) -> None:
        """Numbers and names out of bounds are refused."""
        with pytest.raises(InvalidInput):
            harness.client.work.claim(**{"worker": W1, **bad})

    def test_by_id(self, harness: Harness) -> None:
        """A ready run can be claimed by its id; a repeat by the same worker is harmless."""
        run_id = harness.submit("outside")
        work = harness.client.work
        one = work.claim_by_id(W1, run_id)
        assert work.claim_by_id(W1, run_id) == one
        for other in (ExternalWorker("w2", "key1"), ExternalWorker("w1", "key2")):
            with pytest.raises(NotHolder):
                work.claim_by_id(other, run_id)
        work.start(run_id, W1)
        with pytest.raises(NotHolder):
            work.claim_by_id(W1, run_id)
        work.complete(run_id, W1)
        with pytest.raises(IllegalTransition):
            work.claim_by_id(W1, run_id)
        with pytest.raises(NotFound):
            work.claim_by_id(W1, 10_000)
        later = harness.submit("outside", at=to_datetime(harness.clock.now() + HOUR))
        with pytest.raises(Conflict, match="not due yet"):
            work.claim_by_id(W1, later)

    def test_unknown_customer(self, harness: Harness) -> None:
        """A claim for an unknown customer returns no runs and no error."""
        assert harness.client.work.claim(W1, customer="unknown") == []

    def test_fair_clock_follows(self, harness: Harness) -> None:
        """Claims advance the fair clock, so that a new customer does not go first."""
        for _ in range(5):
            harness.submit("outside", customer="flood")
        assert len(harness.client.work.claim(W1, 4)) == 4
        (clock,) = harness.column("SELECT fair_rank FROM fair_ranks WHERE customer = 0")
        assert clock == 4 * STRIDE
        harness.submit("outside", customer="newcomer")
        assert harness.client.work.claim(W1)[0].run.customer_id == "flood"

    def test_order(self, harness: Harness) -> None:
        """Runs are claimed by priority, then alternating between customers."""
        for customer, priority in (("a", 5), ("a", 5), ("b", 5), ("c", 9)):
            harness.submit("outside", customer=customer, priority=priority)
        got = [one.run.customer_id for one in harness.client.work.claim(W1, 10)]
        assert got == ["c", "a", "b", "a"]


class TestHolding:
    """Starts and heartbeats."""

    def test_progress_is_kept(self, harness: Harness) -> None:
        """Fields that a heartbeat omits keep their values."""
        one = claimed(harness)
        run_id, work = one.run.run_id, harness.client.work
        work.start(run_id, W1, pod="pod-1", region="eu")
        first = harness.detail(run_id).progress
        assert first is not None
        assert (first.current_state, first.pod, first.region, first.worker) == (
            "INITIALIZING", "pod-1", "eu", "w1",
        )  # fmt: skip
        work.heartbeat(
            run_id, W1, progress=ProgressReport(stage="load", percent=10, records_loaded=7)
        )
        harness.clock.advance(MINUTE)
        work.heartbeat(
            run_id, W1, progress=ProgressReport(percent=20.5, current_state="FINALIZING")
        )
        got = harness.detail(run_id).progress
        assert got is not None
        assert (got.stage, got.percent, got.records_loaded) == ("load", 20.5, 7)
        assert (got.pod, got.current_state) == ("pod-1", "FINALIZING")
        assert got.last_heartbeat_at == to_datetime(harness.clock.now())

    def test_heartbeats_extend_the_lease(self, harness: Harness) -> None:
        """A run with a heartbeat every four minutes is never swept; after five without, it is."""
        one = running(harness)
        run_id = one.run.run_id
        for _ in range(10):
            harness.clock.advance(4 * MINUTE)
            status = harness.client.work.heartbeat(run_id, W1)
            assert status.claim_expiry_time == harness.clock.now() + 5 * MINUTE
            assert harness.sweeper.run_once().total == 0
        harness.clock.advance(5 * MINUTE)
        assert harness.sweeper.run_once().total == 0
        harness.clock.advance(1)
        assert harness.sweeper.run_once().stale == 1
        run = harness.run(run_id)
        assert (run.state, run.error_type) == ("FAILED", "STALE_EXECUTION")
        harness.admitter.run_once()
        (again,) = harness.client.work.claim(ExternalWorker("w2", "key1"))
        assert (again.run.parent_run_id, again.run.attempt) == (run_id, 2)

    def test_a_start_ends_a_long_claim(self, harness: Harness) -> None:
        """A claim lasts as long as requested; once started, the lease is five minutes."""
        harness.submit("outside")
        (one,) = harness.client.work.claim(W1, lease_seconds=3600)
        harness.clock.advance(30 * MINUTE)
        held = harness.client.work.heartbeat(one.run.run_id, W1)
        assert held.claim_expiry_time == one.claim_expiry_time
        status = harness.client.work.start(one.run.run_id, W1)
        assert status.claim_expiry_time == harness.clock.now() + 5 * MINUTE
        assert status.timeout_at == harness.clock.now() + HOUR

    def test_a_heartbeat_extends_a_claim(self, harness: Harness) -> None:
        """A heartbeat extends the claim of a run that has not started; its progress is ignored."""
        one = claimed(harness)
        for _ in range(3):
            harness.clock.advance(4 * MINUTE)
            harness.client.work.heartbeat(one.run.run_id, W1, progress=ProgressReport(percent=50))
            assert harness.sweeper.run_once().total == 0
        assert harness.counts("progress") == {"progress": 0}
        harness.clock.advance(6 * MINUTE)
        assert harness.sweeper.run_once().lapsed == 1

    def test_five_lapses(self, harness: Harness) -> None:
        """A run that is claimed five times and never started becomes a dead letter."""
        run_id = harness.submit("outside")
        for n in range(5):
            (one,) = harness.client.work.claim(ExternalWorker(f"w{n}", "k"), lease_seconds=10)
            harness.clock.advance(11 * SECOND)
            harness.sweeper.run_once()
            harness.admitter.run_once()
            with pytest.raises(PenstockError):
                harness.client.work.start(run_id, ExternalWorker(f"w{n}", "k"), token=one.run.token)
        run = harness.run(run_id)
        assert (run.state, run.error_type, run.is_dead) == ("FAILED", "CLAIM_LAPSED", True)

    def test_cancel_is_reported(self, harness: Harness) -> None:
        """A heartbeat reports a cancel request and holds the run until the worker confirms."""
        one = asked(harness)
        status = harness.client.work.heartbeat(one.run.run_id, W1)
        assert status.cancel_requested
        assert harness.sweeper.run_once().total == 0
        end = harness.client.work.cancelled(one.run.run_id, W1)
        assert (end.state, end.status, end.retry_run_id) == ("CANCELLED", None, None)
        (entry,) = [j for j in harness.detail(one.run.run_id).journal if j.to_state == "CANCELLED"]
        assert entry.actor == "tester"

    @pytest.mark.parametrize(
        "progress",
        [
            ProgressReport(percent=101),
            ProgressReport(percent=float("nan")),
            ProgressReport(current_state="DONE"),
            ProgressReport(stage=""),
            ProgressReport(records_loaded=-1),
            ProgressReport(bytes_processed=2**63),
            ProgressReport(estimated_completion_at=-1),
        ],
    )
    def test_bad_progress(self, harness: Harness, progress: ProgressReport) -> None:
        """Progress that cannot be stored is refused, and the lease is not extended."""
        one = running(harness)
        before = state_dump(harness)
        with pytest.raises(InvalidInput):
            harness.client.work.heartbeat(one.run.run_id, W1, progress=progress)
        assert state_dump(harness) == before


class TestEnding:
    """Completions and failures."""

    def test_stored_completion(self, harness: Harness) -> None:
        """A completion is stored with its result, counts and stages, and journaled once."""
        one = running(harness)
        done = CompletionResult(
            status="PARTIAL_SUCCESS",
            result_summary={"records_loaded": 5},
            records_processed=5,
            bytes_processed=500,
            stages={"load": 1.5},
        )
        end = harness.client.work.complete(one.run.run_id, W1, completion=done)
        assert (end.state, end.status) == ("COMPLETED", "PARTIAL_SUCCESS")
        again = harness.client.work.complete(one.run.run_id, W1, token=one.run.token)
        assert again == end._replace(is_repeat=True)
        row = harness.sql("SELECT result, records, bytes, stages, claimed_by FROM history")
        ((result, *rest),) = row
        assert json.loads(result) == {"records_loaded": 5}
        assert rest == [5, 500, '{"load": 1500000}', "w1"]
        journal = [j.action for j in harness.detail(one.run.run_id).journal]
        assert sorted(journal) == ["created", "ended"]

    def test_failure_is_retried(self, harness: Harness) -> None:
        """A failure returns its retry and its time; a repeat returns the same, even much later."""
        one = running(harness)
        failure = FailureReport(error_type="TransientNetwork", error_details={"message": "reset"})
        end = harness.client.work.fail(one.run.run_id, W1, failure)
        assert (end.state, end.status, end.is_dead) == ("FAILED", "FAILURE", False)
        assert end.retry_run_id is not None
        assert end.retry_at is not None
        assert to_datetime(end.retry_at) == harness.run(end.retry_run_id).scheduled_time
        assert 5 * MINUTE <= end.retry_at - harness.clock.now() <= 6.25 * MINUTE
        assert harness.run(one.run.run_id).error_type == "TRANSIENT_NETWORK"
        again = harness.client.work.fail(one.run.run_id, W1, failure)
        assert again == end._replace(is_repeat=True)
        harness.clock.advance(7 * MINUTE)
        harness.admitter.run_once()
        (two,) = harness.client.work.claim(W1)
        harness.client.work.start(two.run.run_id, W1)
        harness.client.work.complete(two.run.run_id, W1)
        assert harness.client.work.fail(one.run.run_id, W1, failure) == again

    @pytest.mark.parametrize(
        ("error_type", "should_retry", "is_dead"),
        [("AUTHENTICATION_FAILED", None, True), ("AUTHENTICATION_FAILED", True, False),
         ("BOOM", False, True), ("BOOM", None, False)],
    )  # fmt: skip
    def test_should_retry(
        self, harness: Harness, error_type: str, should_retry: bool | None, is_dead: bool
    ) -> None:
        """The caller can force or forbid a retry; otherwise the error type decides."""
        one = running(harness)
        failure = FailureReport(error_type=error_type, should_retry=should_retry)
        end = harness.client.work.fail(one.run.run_id, W1, failure)
        assert (end.is_dead, end.retry_run_id is None) == (is_dead, is_dead)

    def test_five_failures_disable(self, harness: Harness) -> None:
        """The fifth dead run in a row disables its config; each response has the count."""
        config = harness.config(
            pipeline_template="outside", overlap="allow", retry_config={"max_attempts": 1}
        )
        for n in range(1, 6):
            harness.start(config, trigger_source="scheduler")
            (one,) = harness.client.work.claim(W1)
            harness.client.work.start(one.run.run_id, W1)
            failure = FailureReport(error_type="BOOM")
            end = harness.client.work.fail(one.run.run_id, W1, failure)
            assert (end.is_dead, end.consecutive_failures) == (True, n)
            assert harness.client.work.fail(one.run.run_id, W1, failure).consecutive_failures == n
            harness.clock.advance(SECOND)
        assert not harness.client.configs.get(cfg(config)).is_active

    @pytest.mark.parametrize(
        "bad",
        [
            CompletionResult(status="FAILURE"),
            CompletionResult(records_processed=-1),
            CompletionResult(result_summary={"a": float("nan")}),
            CompletionResult(bytes_processed=True),
            CompletionResult(stages={"a": -1.0}),
            CompletionResult(result_summary={"a": "\0"}),
        ],
    )
    def test_bad_completion(self, harness: Harness, bad: CompletionResult) -> None:
        """A completion that cannot be stored is refused; the caller still holds the run."""
        one = running(harness)
        with pytest.raises(InvalidInput):
            harness.client.work.complete(one.run.run_id, W1, completion=bad)
        assert harness.client.work.complete(one.run.run_id, W1).state == "COMPLETED"

    @pytest.mark.parametrize(
        "bad",
        [
            FailureReport(error_type=""),
            FailureReport(error_type=" "),
            FailureReport(error_type="x" * 300),
            FailureReport(error_type="A", retry_after_seconds=-1),
            FailureReport(error_type="A", error_details={"a": "\ud800"}),
        ],
    )
    def test_bad_failure(self, harness: Harness, bad: FailureReport) -> None:
        """A failure without a type, or with details that cannot be stored, is refused."""
        one = running(harness)
        with pytest.raises(InvalidInput):
            harness.client.work.fail(one.run.run_id, W1, bad)

    def test_ending_unblocks_the_ordering_key(self, harness: Harness) -> None:
        """When a run ends, the next run of its ordering key can be claimed."""
        harness.submit("outside", ordering_key="k")
        behind = harness.submit("outside", ordering_key="k")
        (one,) = harness.client.work.claim(W1, 10)
        harness.client.work.start(one.run.run_id, W1)
        harness.client.work.complete(one.run.run_id, W1)
        harness.admitter.run_once()
        assert [c.run.run_id for c in harness.client.work.claim(W1, 10)] == [behind]


class TestBatches:
    """Batches: one transaction, with one outcome per item."""

    def test_heartbeats(self, harness: Harness) -> None:
        """Leases of held runs are extended; the others get an error, in the order given."""
        swept, done, good = lapsed(harness), ended("complete", running)(harness), running(harness)
        harness.admitter.run_once()
        heartbeats = [
            Heartbeat(run_id=done.run.run_id),
            Heartbeat(run_id=good.run.run_id, progress=ProgressReport(percent=1)),
            Heartbeat(run_id=10_000),
            Heartbeat(run_id=swept.run.run_id, token=swept.run.token),
        ]
        got = harness.client.work.heartbeat_many(W1, heartbeats)
        kinds = [type(one).__name__ for one in got]
        assert kinds == ["IllegalTransition", "ClaimStatus", "NotFound", "StaleToken"]
        assert got[1].claim_expiry_time == harness.clock.now() + 5 * MINUTE  # type: ignore[union-attr]

    def test_completions(self, harness: Harness) -> None:
        """Each completion ends its run or gets an error; a second one for a run is invalid."""
        ones = [running(harness) for _ in range(3)]
        waiting = claimed(harness)
        other = ExternalWorker("w2", "key2")
        reports = [CompletionItem(run_id=one.run.run_id, token=one.run.token) for one in ones]
        reports += [CompletionItem(run_id=waiting.run.run_id, token=waiting.run.token), reports[0]]
        reports += [CompletionItem(run_id=10_000), CompletionItem(run_id=waiting.run.run_id)]
        got = harness.client.work.complete_many(other, reports)
        kinds = [getattr(one, "state", type(one).__name__) for one in got]
        assert kinds == ["COMPLETED"] * 3 + [
            "IllegalTransition", "InvalidInput", "NotFound", "InvalidInput",
        ]  # fmt: skip
        again = harness.client.work.complete_many(other, reports[:3])
        assert [one.is_repeat for one in again] == [True] * 3  # type: ignore[union-attr]

    def test_bounds(self, harness: Harness) -> None:
        """A batch has one to a thousand items."""
        for n in (0, 1001):
            with pytest.raises(InvalidInput):
                harness.client.work.heartbeat_many(W1, [Heartbeat(run_id=1)] * n)
            with pytest.raises(InvalidInput):
                harness.client.work.complete_many(W1, [CompletionItem(run_id=1)] * n)

    def test_many(self, harness: Harness) -> None:
        """Two calls extend and end hundreds of runs."""
        for _ in range(300):
            harness.submit("outside")
        ones = harness.client.work.claim(W1, 1000)
        assert len({one.run.token for one in ones}) == 300
        for one in itertools.islice(ones, 150):
            harness.client.work.start(one.run.run_id, W1)
        heartbeats = [Heartbeat(run_id=one.run.run_id, token=one.run.token) for one in ones]
        states = [one.state for one in harness.client.work.heartbeat_many(W1, heartbeats)]  # type: ignore[union-attr]
        assert states == ["RUNNING"] * 150 + ["CLAIMED"] * 150
        reports = [CompletionItem(run_id=one.run.run_id, token=one.run.token) for one in ones]
        got = harness.client.work.complete_many(W1, reports)
        assert sum(isinstance(one, IllegalTransition) for one in got) == 150
        assert harness.counts("history", "leases") == {"history": 150, "leases": 150}
