"""Slots inside runs: a long wait snoozes the run, which keeps its ticket and its attempt number."""

from collections.abc import Callable

import pytest

from penstock import limits
from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import RunSnoozed
from penstock.db.store import Store
from penstock.limits.slots.retry import QuotaRetry
from penstock.limits.slots.slot import Slot
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.reads import limit_queue
from penstock.limits.store.rows import GrantInput, LeaseRequest
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.admitter import Admitter
from penstock.runs.rows import RunRow
from penstock.runs.store.admission import pauses_apply
from penstock.runs.sweeper import Sweeper
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from tests.limits.slots.kit import StoredLimit
from tests.limits.slots.test_retry import QUOTA, Resource
from tests.worker.kit import no_jitter, run_of, steps_of, submit

pytestmark = pytest.mark.usefixtures("still")


def stored(store: Store, table: str) -> int:
    """Return the number of rows of a table."""
    text = f"SELECT count(*) FROM {table}"
    found = store.read(lambda tx: tx._connection.execute(text).fetchone())  # type: ignore[attr-defined]
    return int(found[0])


class Stage:
    """A worker with one processor that takes a slot of `x`."""

    def __init__(self, store: Store, clock: VirtualClock, timeout: str = "300s") -> None:
        self.store = store
        self.clock = clock
        self.entered: list[int] = []
        self.before: Callable[[], None] = lambda: None
        pipeline = Pipeline("limited")

        @pipeline.processor
        def work(_: RunContext) -> None:
            self.before()
            with limits.slot("x", capacity=1, timeout=timeout) as slot:
                self.entered.append(slot.token)

        (self.run_id,) = submit(store, pipeline)
        self.steps = steps_of(store, pipeline, clock)

    def idle(self, minutes: int) -> None:
        """Let time pass in which the worker lives but executes nothing."""
        for _ in range(minutes * 6):
            self.clock.advance(seconds=10)
            self.steps.heartbeat_once()
        Sweeper(self.store, jitter=no_jitter).run_once()

    def work(self) -> int:
        """Execute the due runs once; return how many ended."""
        Admitter(self.store).run_once()
        self.steps.heartbeat_once()
        flushed = self.steps.run_once()
        while len(self.steps.ends):
            self.steps.flush_once()
        return flushed.ended


def test_a_free_slot_is_taken_at_once(store: Store, clock: VirtualClock) -> None:
    """A run that finds a free slot completes without a snooze."""
    stage = Stage(store, clock)
    assert stage.work() == 1
    assert len(stage.entered) == 1
    assert StoredLimit(store, "x").holders == []


def test_a_long_wait_snoozes_the_run(store: Store, clock: VirtualClock) -> None:
    """After 30 s the run is PENDING again, keeps its ticket, and its attempt is not counted. The
    slot that becomes free is granted to it, and it is due at once.
    """
    holder = limits.slot("x", capacity=1).acquire()
    stage = Stage(store, clock)
    start = clock.now()
    assert stage.work() == 0
    assert clock.now() - start == 30 * SECOND
    run = run_of(store, stage.run_id)
    assert (run.state, run.attempt) == ("PENDING", 1)
    assert StoredLimit(store, "x").waiting == 1
    assert stage.work() == 0  # not due
    assert stage.entered == []
    holder.release()
    assert StoredLimit(store, "x").waiting == 0
    assert len(StoredLimit(store, "x").holders) == 1
    assert stage.work() == 1
    assert len(stage.entered) == 1
    run = run_of(store, stage.run_id)
    assert (run.state, run.attempt) == ("COMPLETED", 1)
    assert StoredLimit(store, "x").holders == []


def test_the_timeout_covers_all_waits_of_a_run(store: Store, clock: VirtualClock) -> None:
    """LimitTimeout is raised after the timeout in total, even if the run was snoozed in the
    meantime.
    """
    holder = limits.slot("x", capacity=1, lease="1h").acquire()
    stage = Stage(store, clock, timeout="100s")
    start = clock.now()
    assert stage.work() == 0
    clock.advance(seconds=70)
    assert stage.work() == 1
    assert clock.now() - start <= 101 * SECOND
    run = run_of(store, stage.run_id)
    assert run.error_type == "RATE_LIMIT_EXCEEDED"
    holder.release()
    assert StoredLimit(store, "x").holders == []


def test_the_timeout_covers_waits_that_no_worker_resumed(store: Store, clock: VirtualClock) -> None:
    """Slots that a snoozed run was granted and lost do not restart its timeout."""
    other = limits.slot("x", capacity=1, lease="1h").acquire()
    stage = Stage(store, clock, timeout="300s")
    start = clock.now()
    stage.work()
    other.release()  # granted to the run, which no worker executes
    assert len(StoredLimit(store, "x").holders) == 1
    stage.idle(6)
    assert StoredLimit(store, "x").holders == []
    other = limits.slot("x", capacity=1, lease="1h").acquire()
    assert stage.work() == 1
    assert clock.now() - start < 7 * MINUTE
    assert run_of(store, stage.run_id).error_type == "RATE_LIMIT_EXCEEDED"
    other.release()
    assert stage.entered == []
    assert stored(store, "limit_tickets") == 0


def test_a_run_that_resumes_late_times_out(store: Store, clock: VirtualClock) -> None:
    """A ticket that expires before its run is executed again still counts."""
    other = limits.slot("x", capacity=1, lease="1h").acquire()
    stage = Stage(store, clock, timeout="300s")
    stage.work()
    stage.idle(6)
    assert stage.work() == 1
    assert run_of(store, stage.run_id).error_type == "RATE_LIMIT_EXCEEDED"
    other.release()


def test_a_lost_slot_leaves_the_ticket_in_the_queue(store: Store, clock: VirtualClock) -> None:
    """After a minute others may have the slot; the run that returns is the next in the queue."""
    other = limits.slot("x", capacity=1, lease="1h").acquire()
    stage = Stage(store, clock, timeout="1h")
    stage.work()
    other.release()
    x = StoredLimit(store, "x")
    (run,) = x.holders
    stage.idle(1)
    other = limits.slot("x", capacity=1, lease="1h").acquire()
    assert run not in x.holders
    later, number = GrantInput("another", requests=[LeaseRequest("r", "later")]), x.limit_id
    store.write(lambda tx: limit_grant(tx, number, later))
    stage.work()
    queue = store.read(lambda tx: limit_queue(tx, number))
    assert [ticket.holder for ticket in queue] == [run, "later"]
    other.release()
    assert x.holders == [run]
    stage.work()
    assert len(stage.entered) == 1


def test_a_slot_is_kept_for_a_run_that_is_running_again(store: Store, clock: VirtualClock) -> None:
    """A run that has not reached its slot after a minute still gets it."""
    other = limits.slot("x", capacity=1, lease="1h").acquire()
    stage = Stage(store, clock)
    stage.work()

    def work_long() -> None:
        stage.idle(3)

    stage.before = work_long
    other.release()
    assert stage.work() == 1
    assert len(stage.entered) == 1
    assert stored(store, "limit_tickets") == 0


def test_the_ticket_of_an_ended_run_is_dropped(store: Store, clock: VirtualClock) -> None:
    """A kept ticket ends with its run."""
    other = limits.slot("x", capacity=1, lease="1h").acquire()
    stage = Stage(store, clock, timeout="60s")
    stage.work()
    stage.idle(2)
    assert (stored(store, "limit_tickets"), StoredLimit(store, "x").waiting) == (1, 0)
    store.write(lambda tx: tx._connection.execute("DELETE FROM runs"))  # type: ignore[attr-defined]
    stage.idle(5)
    assert stored(store, "limit_tickets") == 0
    other.release()


@pytest.mark.parametrize("is_free", [True, False])
def test_a_pause_is_not_counted_as_a_wait(
    store: Store, clock: VirtualClock, *, is_free: bool
) -> None:
    """A run that was paused has its whole timeout again, whether the limit was free or not."""
    other = limits.slot("x", capacity=1, lease="4h").acquire()
    stage = Stage(store, clock, timeout="30m")
    stage.work()
    pauses(store, "INSERT INTO pauses VALUES ('all', 0, 1, 'ada', '')")
    if is_free:
        other.release()
    stage.idle(60)
    stage.idle(6)
    assert stored(store, "limit_tickets") == 0
    if is_free:
        other = limits.slot("x", capacity=1, lease="1h").acquire()
    pauses(store, "DELETE FROM pauses")
    assert stage.work() == 0
    assert run_of(store, stage.run_id).state == "PENDING"
    other.release()
    assert stage.work() == 1
    assert run_of(store, stage.run_id).state == "COMPLETED"


def pauses(store: Store, text: str) -> None:
    """Change the pauses, and apply them to the runs."""
    store.write(lambda tx: tx._connection.execute(text))  # type: ignore[attr-defined]
    store.write(pauses_apply)


def test_a_deleted_run_is_not_granted_a_slot(store: Store, clock: VirtualClock) -> None:
    """The ticket of a snoozed run that no longer exists is dropped instead of granted."""
    holder = limits.slot("x", capacity=1).acquire()
    stage = Stage(store, clock)
    stage.work()
    store.write(lambda tx: tx._connection.execute("DELETE FROM runs"))  # type: ignore[attr-defined]
    holder.release()
    assert StoredLimit(store, "x").holders == []
    assert StoredLimit(store, "x").waiting == 0


class QuotaStage:
    """A worker with one processor that calls a resource with a quota in place."""

    def __init__(
        self, store: Store, clock: VirtualClock, body: Callable[[QuotaRetry], object]
    ) -> None:
        self.store = store
        self.clock = clock
        policy = QuotaRetry(clock=clock, random=lambda: 0.0)
        pipeline = Pipeline("quota")

        @pipeline.processor
        def work(_: RunContext) -> None:
            body(policy)

        (self.run_id,) = submit(store, pipeline)
        self.steps = steps_of(store, pipeline, clock)

    def work(self, between: Callable[[], None] = lambda: None) -> list[int]:
        """Execute the run until its attempt ends; return the seconds of each snooze."""
        delays: list[int] = []
        while len(delays) < 60:
            Admitter(self.store).run_once()
            self.steps.heartbeat_once()
            self.steps.run_once()
            while len(self.steps.ends):
                self.steps.flush_once()
            run = self.run
            if run.state != "PENDING" or run.attempt > 1:
                return delays
            delays.append((run.scheduled_time - self.clock.now()) // SECOND)
            between()
            self.clock.advance_to(self.run.scheduled_time)
        raise AssertionError("the run never ends")

    @property
    def run(self) -> RunRow:
        """The run now."""
        return run_of(self.store, self.run_id)


def test_long_quota_waits_snooze_the_run(store: Store, clock: VirtualClock) -> None:
    """Delays up to 16 s are waited for in place; longer ones snooze, and the backoff continues."""
    resource = Resource(*[QUOTA] * 6)
    stage = QuotaStage(store, clock, lambda p: p.call(resource, limits.slot("q", capacity=4)))
    assert stage.work() == [32, 64]
    assert (stage.run.state, stage.run.attempt) == ("COMPLETED", 1)
    assert resource.calls == 7


def test_quota_errors_end_after_ten_minutes_on_a_busy_limit(
    store: Store, clock: VirtualClock
) -> None:
    """The run's ten minutes do not depend on the limit's history, which keeps its newest rows."""
    resource = Resource(*[QUOTA] * 1000)
    stage = QuotaStage(store, clock, lambda p: p.call(resource, limits.slot("q", capacity=4)))
    sweeper = Sweeper(store, jitter=no_jitter)
    start = clock.now()

    def busy() -> None:
        for _ in range(210):
            with limits.slot("q", capacity=4):
                pass
        sweeper.run_once()

    stage.work(busy)
    assert clock.now() - start <= 10 * MINUTE
    assert stage.run.error_type == "QUOTA_EXCEEDED"
    assert resource.calls == 10
    sweeper.run_once()
    assert stored(store, "quota_retries") == 0


def test_every_call_of_a_run_has_its_own_ten_minutes(store: Store, clock: VirtualClock) -> None:
    """The first error of a call is its first, whatever earlier calls and executions took."""
    first, second = Resource(*[QUOTA] * 5), Resource(*[QUOTA] * 6)
    pauses = [11 * MINUTE]

    def body(policy: QuotaRetry) -> None:
        slot = limits.slot("q", capacity=4)
        policy.call(first, slot)
        if pauses:
            clock.advance(pauses.pop())
            first.errors = [QUOTA]
        policy.call(second, slot)

    stage = QuotaStage(store, clock, body)
    # The first call is snoozed; then the second is, twice, and the first has another error.
    assert stage.work() == [32, 32, 64]
    assert (stage.run.state, stage.run.attempt) == ("COMPLETED", 1)


def test_a_wait_for_the_slot_keeps_the_quota_retries(store: Store, clock: VirtualClock) -> None:
    """A call that is snoozed for its slot goes on counting; calls that have ended do not."""
    resource = Resource(*[QUOTA] * 1000)
    stage = QuotaStage(
        store, clock, lambda p: p.call(resource, limits.slot("q", capacity=1, timeout="1h"))
    )
    start = clock.now()
    holders: list[Slot] = []

    def occupied() -> None:
        if not holders:
            holders.append(limits.slot("q", capacity=1, lease="1h").acquire())
        else:
            holders.pop().release()

    stage.work(occupied)
    assert stage.run.error_type == "QUOTA_EXCEEDED"
    assert clock.now() - start <= 3 * 10 * MINUTE
    assert resource.calls <= 10


def test_a_long_wait_for_a_token_snoozes_the_run(store: Store, clock: VirtualClock) -> None:
    """A token available in a minute is reserved, and the run is due at that time."""
    limits.declare("r", capacity=None, rate=1 / 60, burst=1)
    entered = []
    pipeline = Pipeline("rated")

    @pipeline.processor
    def work(_: RunContext) -> None:
        with limits.rate("r"):
            entered.append(clock.now())

    ids = submit(store, pipeline, 2)
    steps = steps_of(store, pipeline, clock)
    start = clock.now()
    for _ in range(2):
        Admitter(store).run_once()
        steps.heartbeat_once()
        steps.run_once()
        while len(steps.ends):
            steps.flush_once()
        clock.advance_to(start + 60 * SECOND)
    assert entered == [start, start + 60 * SECOND]
    assert [run_of(store, run_id).state for run_id in ids] == ["COMPLETED", "COMPLETED"]


def test_the_error_says_what_to_do() -> None:
    """The message of RunSnoozed tells the author of a processor not to catch it."""
    assert "do not catch this" in str(RunSnoozed())
