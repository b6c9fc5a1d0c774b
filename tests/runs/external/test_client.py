"""Calls of external workers: which caller may do what in every state of a run."""

import itertools
from typing import Any

import pytest

from penstock.core.clock import HOUR
from penstock.core.errors import (
    Conflict,
    IllegalTransition,
    NotFound,
    NotHolder,
    PenstockError,
    RunCancelled,
    RunTimedOut,
    StaleToken,
)
from penstock.runs.external.client.work import ExternalWorker, FailureReport, ProgressReport
from tests.kits.client_harness import Harness
from tests.kits.external_worker import (
    W1,
    Scene,
    asked,
    asked_early,
    call,
    claimed,
    ended,
    lapsed,
    late,
    over,
    running,
    stale,
    state_dump,
    timed_out,
)

CALLERS: dict[str, dict[str, Any]] = {
    "token": {"caller": ExternalWorker("w2", "key2"), "token": "right"},
    "worker": {"caller": W1},
    "key alone": {"caller": ExternalWorker(None, "key1")},
    "wrong token": {"caller": W1, "token": "wrong"},
    "other worker": {"caller": ExternalWorker("w2", "key1")},
    "other key": {"caller": ExternalWorker("w1", "key2")},
}
CALLS = ("start", "heartbeat", "complete", "fail", "cancelled")

SCENES: dict[str, Scene] = {
    "lapsed": lapsed,
    "claimed": claimed,
    "asked early": asked_early,
    "running": running,
    "late": late,
    "asked": asked,
    "over": over,
    "stale": stale,
    "timed out": timed_out,
    "completed": ended("complete", running),
    "failed": ended("fail", running),
    "cancelled": ended("cancelled", asked),
}

GONE = (StaleToken,) * 5
ILLEGAL = IllegalTransition
HOLDER: dict[str, tuple[Any, ...]] = {
    # responses to the holder, with its token:
    #              start         heartbeat     complete     fail         cancelled
    "lapsed":      GONE,
    "claimed":     ("RUNNING",   "CLAIMED",    ILLEGAL,     ILLEGAL,     Conflict),
    "asked early": (RunCancelled, "CLAIMED",   ILLEGAL,     ILLEGAL,     "CANCELLED"),
    "running":     ("RUNNING",   "RUNNING",    "COMPLETED", "FAILED",    Conflict),
    "late":        ("RUNNING",   "RUNNING",    "COMPLETED", "FAILED",    Conflict),
    "asked":       ("RUNNING",   "RUNNING",    "COMPLETED", "CANCELLED", "CANCELLED"),
    "over":        ("RUNNING",   RunTimedOut,  "COMPLETED", "FAILED",    Conflict),
    "stale":       (ILLEGAL,     StaleToken,   ILLEGAL,     "FAILED",    ILLEGAL),
    "timed out":   (ILLEGAL,     RunTimedOut,  ILLEGAL,     ILLEGAL,     ILLEGAL),
    "completed":   (ILLEGAL,     ILLEGAL,      "COMPLETED", ILLEGAL,     ILLEGAL),
    "failed":      (ILLEGAL,     ILLEGAL,      ILLEGAL,     "FAILED",    ILLEGAL),
    "cancelled":   (ILLEGAL,     RunCancelled, ILLEGAL,     "CANCELLED", "CANCELLED"),
}  # fmt: skip
HELD = ("claimed", "asked early", "running", "late", "asked", "over")


def expected(scene: str, what: str, who: str) -> Any:
    """Return the expected response to a caller, given the response to the holder."""
    response = HOLDER[scene][CALLS.index(what)]
    if who == "wrong token":
        return StaleToken
    if who == "token":
        return response
    if scene == "lapsed":  # the run has no holder
        return NotHolder if what == "heartbeat" else IllegalTransition
    if who == "worker":
        return response
    if scene in HELD:
        return response if who == "key alone" else NotHolder
    if who == "other worker":
        return NotHolder
    # An ended run has no stored key: the worker's name identifies a repeat, no name does not.
    return IllegalTransition if who == "key alone" and isinstance(response, str) else response


@pytest.mark.parametrize("scene", SCENES)
def test_every_call_in_every_state(harness: Harness, scene: str) -> None:
    """Each call succeeds or is refused as in the table; a refused call changes nothing."""
    for who, what in itertools.product(CALLERS, CALLS):
        one = SCENES[scene](harness)
        caller, token = CALLERS[who]["caller"], CALLERS[who].get("token")
        more = {"token": one.run.token + (1000 if token == "wrong" else 0)} if token else {}
        wanted = expected(scene, what, who)
        before = state_dump(harness)
        try:
            got = call(harness, what, one.run.run_id, caller, **more).state
        except PenstockError as error:
            got = type(error)
        assert got == wanted, (scene, what, who)
        is_end = wanted in ("COMPLETED", "FAILED", "CANCELLED") and scene in HELD
        is_change = is_end or (isinstance(wanted, str) and what in ("start", "heartbeat"))
        if not is_change:
            assert state_dump(harness) == before, (scene, what, who)
        state = harness.run(one.run.run_id).state
        assert state == wanted or not isinstance(wanted, str)
        if harness.run(one.run.run_id).finished_at is not None:
            assert harness.column(f"SELECT 1 FROM leases WHERE subject = {one.run.run_id}") == []
        harness.clock.advance(2 * HOUR)  # sweep held runs before the next scene
        harness.sweeper.run_once()
        harness.sql("DELETE FROM runs")


@pytest.mark.parametrize("what", CALLS)
def test_runs_of_other_customers_are_not_found(harness: Harness, what: str) -> None:
    """A run of another customer gets exactly the same error as a run that does not exist."""
    one = running(harness)
    harness.submit("outside", customer="umbrella")
    refused = []
    for run_id in (one.run.run_id, 10_000):
        before = state_dump(harness)
        with pytest.raises(NotFound) as error:
            call(harness, what, run_id, W1, token=one.run.token, customer="umbrella")
        refused.append(error.value.kind)
        assert state_dump(harness) == before
    assert refused == ["run", "run"]
    scoped = harness.client.scoped("umbrella")
    with pytest.raises(NotFound):
        scoped.work.heartbeat(one.run.run_id, W1, token=one.run.token)
    with pytest.raises(NotFound):
        scoped.work.claim_by_id(W1, one.run.run_id)


def test_scoped_worker(harness: Harness) -> None:
    """A scoped client claims, executes and reports only its customer's runs."""
    other = harness.submit("outside", customer="umbrella")
    mine = harness.submit("outside")
    work = harness.client.scoped("acme").work
    (one,) = work.claim(W1, 10)
    assert one.run.run_id == mine
    assert work.start(mine, W1, pod="p1").state == "RUNNING"
    assert work.heartbeat(mine, W1, progress=ProgressReport(percent=5)).state == "RUNNING"
    assert work.fail(mine, W1, FailureReport(error_type="BOOM")).retry_run_id is not None
    assert harness.run(other).state == "PENDING"
