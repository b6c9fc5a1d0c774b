"""External workers receive what built-in runs have from their gate, on both engines."""

from penstock import Pipeline, game_day_modes, optional
from penstock.db.store import Store
from penstock.runs.external.records import ClaimedRun, ClaimRequest
from penstock.runs.records import Submission
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, work


def _claim(stage: Stage) -> ClaimedRun:
    (claimed,) = stage.client.workers.claim(ClaimRequest(worker_id="w")).claimed_runs
    return claimed


def test_the_claim_contains_what_is_missing(store: Store, clock: VirtualClock) -> None:
    """A degraded start has its verdict and the missing tables; a clean one says PROCEED."""
    pipeline = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
    raw = pipeline.phase("raw")
    raw.external("fetch")
    analytics = pipeline.phase("analytics", after=raw)
    analytics.processor("players", needs=[optional("raw.odds")])(work)
    pipeline.phase("publish", after=analytics).external("site")
    stage = Stage(store, clock, pipeline)
    stage.open()
    first = _claim(stage)
    assert (first.verdict, first.is_degraded, first.missing) == ("PROCEED", False, [])
    assert first.flow_id is not None
    stage.client.workers.start(first.run_id, worker_id="w")
    stage.client.workers.complete(first.run_id, worker_id="w")
    stage.step()
    stage.complete("players")
    stage.step()
    last = _claim(stage)
    assert last.processor == "site"
    assert (last.is_degraded, last.missing) == (True, ["raw.odds"])
    assert last.verdict in ("PROCEED", "PROCEED_DEGRADED")


def test_a_run_without_a_flow(store: Store, clock: VirtualClock) -> None:
    """A submitted run has no gate: no verdict, nothing missing."""
    pipeline = Pipeline("alone")
    pipeline.phase("main").external("push")
    stage = Stage(store, clock, pipeline)
    stage.client.runs.submit(Submission(pipeline="alone", customer="acme"))
    claimed = _claim(stage)
    assert (claimed.verdict, claimed.is_degraded, claimed.missing) == (None, False, [])
    assert claimed.flow_id is None
