"""The worker's steps in virtual time: claims, ends, renewal, and lost responses."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from penstock.access.shares import STRIDE
from penstock.access.store.registry import processor_list
from penstock.audit.telemetry import RunEnded, RunRefused
from penstock.core.clock import from_datetime
from penstock.core.errors import DeclarationError, StoreUnavailable
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store, Tx
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.store.admission import run_admit_due
from penstock.runs.store.leases import session_list
from penstock.runs.store.runs import run_cancel_request
from penstock.runs.sweeper import Sweeper
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from penstock.worker.context import Signal
from penstock.worker.outcome import AttemptOutcome
from penstock.worker.session import Renewal
from tests.worker.kit import (
    EventRecorder,
    lose_sessions,
    no_jitter,
    run_of,
    steps_of,
    submit,
)

T = TypeVar("T")
TIMED_OUT = AttemptOutcome(is_timed_out=True)
START = from_datetime(datetime(2025, 1, 2, tzinfo=UTC))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def store(clock: VirtualClock) -> Iterator[SqliteStore]:
    made = memory_store(clock)
    yield made
    made.close()


class FlakyStore:
    """A store whose next write can fail, before or after it took effect.

    mode: "ok"; "down": fails before anything is written; "lost": writes, then loses the response.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.mode = "ok"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def reserved(self) -> Any:
        return self

    def write(self, body: Callable[[Tx], T]) -> T:
        if self.mode == "down":
            raise StoreUnavailable("down")
        value = self._store.write(body)
        if self.mode == "lost":
            self.mode = "ok"
            raise StoreUnavailable("the response was lost", ambiguous=True)
        return value


def pipeline_of(body: Callable[[Any], Any] = lambda _: None, **options: Any) -> Pipeline:
    pipeline = Pipeline("p")
    pipeline.processor("work", **options)(body)
    return pipeline


class TestHappyPath:
    """From claim to history."""

    def test_a_run_is_claimed_executed_and_ended(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        pipeline = pipeline_of(lambda run: {"slot": run.partition})
        ids = submit(store, pipeline, 3)
        steps = steps_of(store, pipeline, clock, concurrency=2, name="w1")
        assert steps.run_once().ended == 2
        assert steps.run_once().ended == 1
        assert steps.run_once().ended == 0
        run = run_of(store, ids[0])
        assert (run.state, run.status, run.claimed_by) == ("COMPLETED", "SUCCESS", "w1")
        assert run.result == '{"slot":"2025-01-02T00:00:00Z"}'
        assert steps.is_idle

    def test_async_processors_run_inline_too(self, store: SqliteStore, clock: VirtualClock) -> None:
        async def body(run: Any) -> dict[str, int]:
            return {"attempt": run.attempt}

        pipeline = pipeline_of(body)
        (run_id,) = submit(store, pipeline)
        steps_of(store, pipeline, clock).run_once()
        assert run_of(store, run_id).result == '{"attempt":1}'

    def test_a_failure_is_retried_by_its_type(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        def body(_: Any) -> None:
            raise ConnectionResetError("peer")

        pipeline = pipeline_of(body, retry={"max_attempts": 2, "base_delay_minutes": 1})
        (run_id,) = submit(store, pipeline)
        steps = steps_of(store, pipeline, clock)
        assert steps.run_once() == (1, 0, 1)
        clock.advance(seconds=61)
        steps.heartbeat_once()
        store.write(lambda tx: run_admit_due(tx, 10))
        assert steps.run_once() == (1, 0, 0)
        run = run_of(store, run_id)
        assert (run.state, run.error_type) == ("FAILED", "TRANSIENT_NETWORK")

    def test_system_exit_does_not_end_a_workers_thread(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        def body(_: Any) -> None:
            raise SystemExit(3)

        pipeline = pipeline_of(body)
        (run_id,) = submit(store, pipeline)
        steps_of(store, pipeline, clock).run_once()
        assert run_of(store, run_id).state == "FAILED"

    def test_unknown_processors_are_not_claimed(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        submit(store, pipeline_of())
        other = Pipeline("other")
        other.processor("work")(lambda _: None)
        assert steps_of(store, other, clock).claim_once(5) == []

    def test_external_processors_are_not_claimed(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        pipeline = Pipeline("p")
        pipeline.phase("out").external("push", pool="default")
        submit(store, pipeline)
        assert steps_of(store, pipeline, clock).claim_once(5) == []

    def test_a_declaration_that_cannot_be_executed_is_refused_at_the_start(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        pipeline = pipeline_of(runs="process")
        with pytest.raises(DeclarationError, match="top level of a module"):
            steps_of(store, pipeline, clock)


class TestRegistration:
    """Registering declarations."""

    def test_keys_are_stable_and_retired_processors_keep_their_runs(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        old = pipeline_of()
        submit(store, old)
        steps = steps_of(store, old, clock)
        new = Pipeline("p")
        new.processor("better")(lambda _: None)
        assert steps_of(store, new, clock).claim_once(5) == []
        rows = {row.name: row for row in store.read(processor_list)}
        assert (rows["work"].is_current, rows["better"].is_current) == (False, True)
        assert len(steps.claim_once(5)) == 1
        assert steps_of(store, old, clock).known.keys() == steps.known.keys()


class TestRenewal:
    """Results of renewing the session: renewed, unknown, lost."""

    def test_renewed(self, store: SqliteStore, clock: VirtualClock) -> None:
        steps = steps_of(store, pipeline_of(), clock)
        for _ in range(10):
            clock.advance(seconds=10)
            assert steps.heartbeat_once() is Renewal.RENEWED
        assert steps.session.is_safe
        assert lose_sessions(store, clock, 0) == 0

    def test_unknown_is_safe_until_the_lease_runs_out(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        flaky = FlakyStore(store)
        submit(store, pipeline_of(), 2)
        steps = steps_of(flaky, pipeline_of(), clock)
        flaky.mode = "down"
        found = []
        for seconds in (20, 6):
            clock.advance(seconds=seconds)
            found.append((steps.heartbeat_once(), steps.session.is_safe))
        assert found == [(Renewal.UNKNOWN, True), (Renewal.UNKNOWN, False)]
        flaky.mode = "ok"
        assert steps.claim_once(1) == []
        assert steps.heartbeat_once() is Renewal.RENEWED
        assert len(steps.claim_once(1)) == 1

    def test_the_lease_counts_from_when_the_request_was_sent(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        class Slow(FlakyStore):
            def write(self, body: Callable[[Tx], T]) -> T:
                value = super().write(body)
                clock.advance(seconds=24)
                return value

        steps = steps_of(Slow(store), pipeline_of(), clock)
        before = steps.session.is_safe
        clock.advance(seconds=1.5)
        assert (before, steps.session.is_safe) == (True, False)

    def test_lost_signals_runs_and_the_next_heartbeat_opens_a_session(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        pipeline = pipeline_of()
        submit(store, pipeline, 2)
        steps = steps_of(store, pipeline, clock)
        first, second = steps.claim_once(2)
        context = steps.begin(first, clock.monotonic())
        assert context is not None
        assert lose_sessions(store, clock, 31) == 1
        old = steps.session.session_id
        assert steps.heartbeat_once() is Renewal.LOST
        assert context.signal is Signal.LEASE
        assert steps.claim_once(1) == []
        assert steps.heartbeat_once() is Renewal.RENEWED
        assert steps.session.session_id not in (None, old)
        assert steps.release_many([second]) == 1

    def test_fair_clock_follows_claims(self, store: SqliteStore, clock: VirtualClock) -> None:
        """After a claim, in a separate transaction, and at most ten times a second."""
        pipeline = pipeline_of()
        submit(store, pipeline, 4)
        steps = steps_of(store, pipeline, clock)

        def fair_rank() -> int:
            text = "SELECT coalesce(max(fair_rank), 0) FROM fair_ranks WHERE customer = 0"
            return int(store.read(lambda tx: tx._connection.execute(text).fetchone())[0])  # type: ignore[attr-defined]

        seen = []
        for seconds in (0.0, 0.05, 0.05, 0.2):
            clock.advance(seconds=seconds)
            steps.claim_once(1)
            before = fair_rank()
            steps.fair_clock.raise_once()
            seen.append((before, fair_rank()))
        assert [(a // STRIDE, b // STRIDE) for a, b in seen] == [(0, 1), (1, 1), (1, 3), (3, 4)]

    def test_changed_progress_is_written_with_the_heartbeat(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        pipeline = pipeline_of()
        submit(store, pipeline)
        steps = steps_of(store, pipeline, clock)
        (held,) = steps.claim_once(1, start=True)
        context = steps.begin(held, clock.monotonic())
        assert context is not None
        clock.advance(seconds=5)
        context.progress(25, "loading", loaded=7)
        assert context.is_dirty
        assert steps.heartbeat_once() is Renewal.RENEWED
        assert not context.is_dirty

    def test_a_cancel_reaches_running_and_waiting_runs(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        pipeline = pipeline_of()
        ids = submit(store, pipeline, 2)
        steps = steps_of(store, pipeline, clock)
        running, waiting = steps.claim_once(2)
        context = steps.begin(running, clock.monotonic())
        assert context is not None
        assert store.write(lambda tx: [run_cancel_request(tx, r, "me") for r in ids]) == [
            True,
            True,
        ]
        steps.heartbeat_once()
        assert context.signal is Signal.CANCEL
        assert steps.begin(waiting, clock.monotonic()) is None
        assert steps.flush_once().ended == 1
        assert run_of(store, waiting.run_id).state == "CANCELLED"


class TestEnds:
    """An end is stored once, under the current token."""

    def test_a_stale_end_is_refused_and_reported(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        pipeline = pipeline_of()
        (run_id,) = submit(store, pipeline)
        steps = steps_of(store, pipeline, clock)
        recorder = EventRecorder(steps.events)
        (held,) = steps.claim_once(1, start=True)
        finish = steps.execute(held)
        assert finish is not None
        clock.advance(seconds=31)
        assert Sweeper(store, jitter=no_jitter).run_once().stale == 1
        steps.ends.add([finish])
        assert steps.flush_once() == (0, 1, 0)
        assert recorder.of(RunRefused) == [RunRefused(run_id, held.token)]
        assert run_of(store, run_id).error_type == "STALE_EXECUTION"
        assert steps.is_idle

    def test_an_end_survives_an_unavailable_store(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        flaky = FlakyStore(store)
        pipeline = pipeline_of()
        (run_id,) = submit(store, pipeline)
        steps = steps_of(flaky, pipeline, clock)
        (held,) = steps.claim_once(1)
        finish = steps.execute(held)
        assert finish is not None
        steps.ends.add([finish])
        flaky.mode = "down"
        with pytest.raises(StoreUnavailable):
            steps.flush_once()
        flaky.mode = "ok"
        assert steps.flush_once().ended == 1
        assert run_of(store, run_id).state == "COMPLETED"

    def test_an_end_whose_response_was_lost_is_not_stored_twice(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        flaky = FlakyStore(store)
        pipeline = pipeline_of()
        (run_id,) = submit(store, pipeline)
        steps = steps_of(flaky, pipeline, clock)
        (held,) = steps.claim_once(1)
        finish = steps.execute(held)
        assert finish is not None
        steps.ends.add([finish])
        flaky.mode = "lost"
        with pytest.raises(StoreUnavailable):
            steps.flush_once()
        assert steps.flush_once() == (0, 1, 0)
        assert run_of(store, run_id).state == "COMPLETED"

    def test_an_end_that_cannot_be_stored_fails_alone(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        pipeline = pipeline_of()
        good, bad = submit(store, pipeline, 2)
        steps = steps_of(store, pipeline, clock)
        recorder = EventRecorder(steps.events)
        for held in steps.claim_once(2):
            finish = steps.execute(held)
            assert finish is not None
            records: Any = 2**70 if held.run_id == bad else 1
            steps.ends.add([finish._replace(records=records)])
        assert steps.flush_once().ended == 2
        assert run_of(store, good).state == "COMPLETED"
        assert run_of(store, bad).error_type == "VALIDATION_ERROR"
        assert len(recorder.of(RunEnded)) == 2

    def test_a_run_ends_once_in_memory(self, store: SqliteStore, clock: VirtualClock) -> None:
        pipeline = pipeline_of()
        submit(store, pipeline)
        steps = steps_of(store, pipeline, clock)
        context = steps.begin(steps.claim_once(1)[0], clock.monotonic())
        assert context is not None
        from_watch = steps.end(context, TIMED_OUT)
        assert (from_watch, steps.end(context, TIMED_OUT)) == (True, False)
        assert steps.flush_once().ended == 1


class TestClaims:
    """Claims and their failures."""

    def test_a_claim_whose_response_was_lost_is_read_back(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        flaky = FlakyStore(store)
        pipeline = pipeline_of()
        ids = submit(store, pipeline, 3)
        steps = steps_of(flaky, pipeline, clock)
        (known,) = steps.claim_once(1)
        flaky.mode = "lost"
        with pytest.raises(StoreUnavailable):
            steps.claim_once(1)
        (found,) = steps.claim_once(1)
        assert {known.run_id, found.run_id} == set(ids[:2])
        assert [run.run_id for run in steps.claim_once(1)] == ids[2:]
        assert steps.release_all() == 3

    def test_rechecks_after_an_outage_do_not_delay_claims(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        flaky = FlakyStore(store)
        pipeline = pipeline_of()
        ids = submit(store, pipeline, 4)
        steps = steps_of(flaky, pipeline, clock)
        flaky.mode = "down"
        for _ in range(20):
            clock.advance(seconds=1)
            with pytest.raises(StoreUnavailable):
                steps.claim_once(1)
        flaky.mode = "ok"
        claimed = []
        for seconds in (0, 0, 10, 120):
            clock.advance(seconds=seconds)
            while steps.heartbeat_once() is not Renewal.RENEWED:
                pass
            claimed += [run.run_id for run in steps.claim_once(1)]
        assert claimed == ids

    def test_a_response_after_the_session_was_lost_is_dropped(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        class Slow(FlakyStore):
            def write(self, body: Callable[[Tx], T]) -> T:
                value = super().write(body)
                if self.mode == "slow":
                    self.mode = "ok"
                    lose_sessions(store, clock, 31)
                    assert [steps.heartbeat_once(), steps.heartbeat_once()] == ["lost", "renewed"]
                return value

        slow = Slow(store)
        pipeline = pipeline_of()
        submit(store, pipeline)
        steps = steps_of(slow, pipeline, clock)
        slow.mode = "slow"
        assert steps.claim_once(1) == []
        assert steps.is_idle

    def test_a_claim_of_a_swept_session_gets_nothing(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        pipeline = pipeline_of()
        (run_id,) = submit(store, pipeline)
        steps = steps_of(store, pipeline, clock)
        steps.session.safe_until = float("inf")  # the claim was sent in time and arrives late
        assert lose_sessions(store, clock, 31) == 1
        assert steps.claim_once(1) == []
        assert run_of(store, run_id).state == "PENDING"

    def test_suspects_are_marked_running_before_they_start(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        seen: list[str] = []
        pipeline = pipeline_of(lambda run: seen.append(run_of(store, run.held.run_id).state))
        submit(store, pipeline)
        steps_of(store, pipeline, clock).claim_once(1)
        clock.advance(seconds=31)
        assert Sweeper(store, jitter=no_jitter).run_once().lapsed == 1
        store.write(lambda tx: run_admit_due(tx, 10))
        steps_of(store, pipeline, clock).run_once()
        assert seen == ["RUNNING"]

    def test_released_runs_can_be_claimed_and_lose_no_attempt(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        pipeline = pipeline_of()
        (run_id,) = submit(store, pipeline)
        steps = steps_of(store, pipeline, clock)
        steps.claim_once(1)
        assert steps.release_all() == 1
        steps.close()
        assert store.read(session_list) == []
        store.write(lambda tx: run_admit_due(tx, 10))
        (held,) = steps_of(store, pipeline, clock).claim_once(1)
        assert (held.run_id, held.attempt, held.lapses) == (run_id, 1, 0)

    def test_opening_again_after_a_lost_response_is_harmless(
        self, store: SqliteStore, clock: VirtualClock
    ) -> None:
        flaky = FlakyStore(store)
        steps = steps_of(flaky, pipeline_of(), clock)
        flaky.mode = "lost"
        with pytest.raises(StoreUnavailable):
            steps.open()
        assert steps.open() > 0
