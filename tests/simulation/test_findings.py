"""Bugs that the harness found in the product, pinned by small tests."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from penstock.client import Client
from penstock.core.clock import DAY, MINUTE, SECOND, to_datetime
from penstock.core.errors import StoreUnavailable
from penstock.db.sqlite.store import SqliteStore
from penstock.runs.records import Submission
from penstock.schedules.scheduler import Scheduler, SchedulerOptions
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from penstock.testing.simulate.faults import Fault, FaultyStore
from penstock.testing.simulate.snapshots import DirectReader
from penstock.worker.options import WorkerOptions
from penstock.worker.worker_core import WorkerCore
from tests.harness.simulation import START, Options, declared, run_seed
from tests.kits.configs import cfg, change_of, create_config


def _open() -> tuple[SqliteStore, VirtualClock, Client]:
    clock = VirtualClock(START)
    store = memory_store(clock)
    client = Client(store)
    client.register(declared())
    return store, clock, client


def test_late_runs_are_spaced_by_the_catch_up_rate() -> None:
    store, clock, client = _open()
    given = {"pipeline_template": "double", "schedule_type": "INTERVAL",
             "schedule_interval_minutes": 5}  # fmt: skip
    for n in range(3):
        create_config(client, f"customer-{n}", given)
    clock.advance(DAY + 3 * MINUTE)
    Scheduler(store, SchedulerOptions(batch=1, catch_up_rate=0.5), clock=clock).run_once()
    times = [t for (t,) in DirectReader(store).rows("SELECT scheduled_time FROM runs ORDER BY 1")]
    assert [b - a for a, b in pairwise(times)] == [2 * SECOND] * 5


def test_due_occurrences_of_an_edited_cadence_are_in_the_ledger() -> None:
    _, clock, client = _open()
    config = create_config(
        client,
        "acme",
        {"pipeline_template": "single", "schedule_type": "INTERVAL",
         "schedule_interval_minutes": 5},
    )  # fmt: skip
    clock.advance(17 * MINUTE)
    client.configs.update(cfg(config), change_of({"schedule_interval_minutes": 7}))
    (entry,) = client.configs.occurrences(cfg(config)).items
    assert (entry.occurrences, entry.outcome) == (3, "skipped_missed")
    assert entry.first == to_datetime(START + 5 * MINUTE)
    assert entry.last == to_datetime(START + 15 * MINUTE)


class _Once:
    """A director that injects one fault into the next transaction."""

    def __init__(self) -> None:
        self.fault: Fault | None = None

    def between(self, actor: str) -> None:
        """Let no other actor run."""

    def draw(self, actor: str) -> tuple[Fault | None, int]:
        """Return the one fault, once."""
        assert actor == "worker"
        fault, self.fault = self.fault, None
        return fault, 0

    def committed(self, actor: str, statements: Sequence[str]) -> None:
        """Check nothing."""


def test_a_lost_response_to_a_mark_does_not_lose_the_run() -> None:
    store, clock, client = _open()
    director = _Once()
    steps = WorkerCore(
        FaultyStore(store, "worker", director), declared(), WorkerOptions(), clock=clock,
        jitter=lambda: 0.0,
    )  # fmt: skip
    steps.open()
    client.runs.submit(Submission(pipeline="single"))
    held = steps.claim_once(1)
    director.fault = Fault.REPLY_LOST
    with pytest.raises(StoreUnavailable):
        steps.start_many(held)
    assert steps.start_many(held) == {run.run_id for run in held}
    reclaimed = [run._replace(token=run.token + 1) for run in held]
    assert steps.start_many(reclaimed) == set()


def test_a_sweeper_that_was_suspended_after_an_outage_has_its_grace_period() -> None:
    """The grace period counts from when it read the clock, not from when its step began."""
    run_seed(1_003_684, Options(steps=80, recovers=False))


def test_a_run_admitted_and_cancelled_in_one_transaction() -> None:
    """Two flows of a customer with a maximum are cancelled together: the second one's run is
    admitted in the place of the first one's, and leaves a gap in the fair ranks.
    """
    run_seed(56, Options(steps=400))
