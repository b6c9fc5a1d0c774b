"""Proof of the simulation: well-known bugs, planted on purpose, that it must detect.

Each is a patch of a rendered statement or a function, undone after the test. The seed that detects
it passes without the patch. Four more bugs need two writers: see tests/interleaving.
"""

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from penstock.core.retry import NoRetry, Retry, decide_retry
from penstock.db.statements import load
from penstock.db.store import Tx
from penstock.limits.run_queue_rules import FreeCapacity
from penstock.runs import attempt_result
from penstock.runs.store import runs
from penstock.schedules import scheduler
from penstock.schedules.rows import DueGroup
from penstock.schedules.store.schedule import schedule_take_due
from penstock.worker.session import Renewal, WorkerSession
from tests.harness import simulation
from tests.harness.sim_actors import new_config
from tests.harness.simulation import SimulationFailed, run_seed

pytestmark = pytest.mark.seeded

SEEDS = 60
log = logging.getLogger(__name__)


@contextmanager
def patched(name: str, old: str, new: str) -> Iterator[None]:
    """Replace a part of a statement's text."""
    statements = load("sqlite")
    original = statements[name]
    assert any(old in text for text in original.texts), f"{name} does not contain {old!r}"
    texts = tuple(text.replace(old, new) for text in original.texts)
    statements[name] = replace(original, texts=texts)
    try:
        yield
    finally:
        statements[name] = original


def first_detecting_seed(*invariants: str, start: int = 0) -> int:
    """Return the first seed from `start` on whose history breaks one of the invariants.

    Tests start with the seed that detected the bug last: a change of the code may move it.
    """
    for seed in range(start, start + SEEDS):
        try:
            run_seed(seed)
        except SimulationFailed as error:
            summary = str(error).splitlines()[0][:200]
            log.info("detected by seed %d: %s", seed, summary)
            if error.invariant.partition(":")[0] not in invariants:
                raise  # broken in another way than expected
            return seed
    pytest.fail(f"not detected within {SEEDS} seeds")


def test_completion_after_the_lease_expired_is_accepted() -> None:
    with patched("run_finish_many", "r.token = x.token AND", ""):
        seed = first_detecting_seed("I24", "I1", "I23", "I40", start=163)
    run_seed(seed)


def test_a_queued_flow_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def queued(rng: random.Random) -> dict[str, Any]:
        given = {"pipeline_template": "double", "overlap": "queue", "catch_up": "one"}
        return {**new_config(rng), **given}

    monkeypatch.setattr(simulation, "new_config", queued)
    with patched("flow_lock_many", "CASE WHEN w.is_ordered", "CASE WHEN FALSE"):
        seed = first_detecting_seed("I22", start=2)
    run_seed(seed)


def test_a_tick_that_pages_by_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    page = [0]

    def by_offset(tx: Tx, n: int) -> list[DueGroup]:
        with patched("schedule_take_due", "LIMIT :n", f"LIMIT :n OFFSET {page[0] * n}"):
            groups = schedule_take_due(tx, n)
        page[0] = page[0] + 1 if groups else 0
        return groups

    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "schedule_take_due", by_offset)
        seed = first_detecting_seed("I20")
    run_seed(seed)


def test_retries_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def retry_forever(**given: object) -> Retry | NoRetry:
        verdict = decide_retry(**given)  # type: ignore[arg-type]
        if isinstance(verdict, NoRetry) and "used up" in verdict.reason:
            return Retry(delay_us=10**9 * 3600, max_attempts=10**6)
        return verdict

    with monkeypatch.context() as patch:
        patch.setattr(attempt_result, "decide_retry", retry_forever)
        seed = first_detecting_seed("I26", start=2)
    run_seed(seed)


def test_a_worker_that_takes_an_unknown_heartbeat_for_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs are released without counting an attempt: they start again, and no rule is broken.

    While they ended as failed instead, this bug was detected within a few seeds.
    """
    renew: Callable[..., tuple[Renewal, object]] = WorkerSession.renew
    taken: list[WorkerSession] = []

    def lose_when_unknown(self: WorkerSession, more: object) -> tuple[Renewal, object]:
        renewal, value = renew(self, more)
        if renewal is Renewal.UNKNOWN:
            taken.append(self)
            self.session_id = None
            return Renewal.LOST, None
        return renewal, value

    monkeypatch.setattr(WorkerSession, "renew", lose_when_unknown)
    for seed in range(10, 30):
        run_seed(seed)
    assert taken


def test_a_sweeper_that_expires_after_one_missed_heartbeat() -> None:
    with patched("session_expire", "until_at <", "until_at - 60000000 <"):
        seed = first_detecting_seed("I24", start=1)
    run_seed(seed)


def test_a_run_that_keeps_its_limits_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(runs, "queue_leave", lambda *_: None)
        seed = first_detecting_seed("I32", "I31")
    run_seed(seed)


def test_more_runs_admitted_than_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(FreeCapacity, "is_short_of", lambda *_: False)
        seed = first_detecting_seed("I29")
    run_seed(seed)


def test_a_slot_released_without_its_token() -> None:
    with patched("limit_release_one", "AND token = :token", ""):
        seed = first_detecting_seed("I31", "I30", "I32")
    run_seed(seed)


@pytest.mark.slow
def test_a_slot_that_expires_while_held() -> None:
    with patched("limit_expired", ":grace_us <=", ":grace_us - 90000000 <="):
        seed = first_detecting_seed("I30", "I32")
    run_seed(seed)
