"""What the execution log says of every finished execution, on both engines."""

from __future__ import annotations

import json
from typing import Any

from penstock import Pipeline, optional
from penstock.core import settle
from penstock.core.clock import MINUTE
from penstock.core.settle import Failure
from penstock.store.api import Store
from penstock.store.ending import run_end_many
from penstock.testing.clock import VirtualClock
from tests.cascade_kit import Stage, work


def logged(stage: Stage, processor: str, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of a processor's executions, in order."""
    text = f"SELECT {', '.join(columns)} FROM execution_log WHERE processor = '{processor}'"
    return [tuple(row) for row in stage.sql(f"{text} ORDER BY execution_id")]


def staged(store: Store, clock: VirtualClock) -> Stage:
    """`raw`, then processors with gates of their own, one of which lacks something optional."""
    made = Pipeline("nba", partition="day", warehouse="w")
    raw = made.phase("raw")
    raw.processor("box", retry={"max_attempts": 3, "base_delay_minutes": 1})(work)
    each = made.phase("each", after=raw, on="each")
    each.processor("bare", needs=[optional("t.odds")])(work)
    each.processor("full")(work)
    stage = Stage(store, clock, made)
    stage.rows["t.odds"] = 0
    stage.open()
    return stage


def test_what_a_processor_returned(store: Store, clock: VirtualClock) -> None:
    """Counts and metadata of the result, and the revision of the pipeline that ran."""
    stage = staged(store, clock)
    result = {"records_inserted": 7, "records_updated": 2, "metadata": {"file": "a.csv"}}
    stage.complete("box", result=json.dumps(result), records=9)
    columns = ("records_processed", "records_inserted", "records_updated", "event_type")
    assert logged(stage, "box", *columns) == [(9, 7, 2, "raw_complete")]
    ((metadata, revision, service),) = logged(stage, "box", "metadata", "revision", "service")
    assert json.loads(metadata) == {"file": "a.csv"}
    assert stage.sql("SELECT digest FROM flows")[0][0].startswith(revision)
    assert (len(revision), service) == (12, "t")


def test_anything_may_be_returned(store: Store, clock: VirtualClock) -> None:
    """Words where numbers were meant are no reason to refuse the end of a run."""
    stage = staged(store, clock)
    result = {"quality_score": "good", "records_inserted": "many", "records_updated": -1.5}
    assert stage.complete("box", result=json.dumps(result)) == 1
    assert logged(stage, "box", "status", "records_inserted") == [("completed", None)]
    assert stage.sql("SELECT status, quality FROM completions") == [("success", None)]


def test_tried_again(store: Store, clock: VirtualClock) -> None:
    """An attempt that is tried again is a nack, the last one an ack."""
    stage = staged(store, clock)
    for _ in range(2):
        failure = Failure(error_type="TRANSIENT_NETWORK")
        ends = [settle.failed(h, failure, jitter=0.0) for h in stage.claim("box").values()]
        stage.write(lambda tx, ends=ends: run_end_many(tx, ends))  # type: ignore[misc]
        clock.advance(10 * MINUTE)
    stage.complete("box")
    found = logged(stage, "box", "status", "message_acknowledgment", "retry_count")
    assert found == [("failed", "nack", 0), ("failed", "nack", 1), ("completed", "ack", 2)]


def test_what_its_own_gate_said(store: Store, clock: VirtualClock) -> None:
    """Where each processor has a gate, its execution tells what that gate lacked, and no other."""
    stage = staged(store, clock)
    stage.complete("box")
    stage.step()
    stage.complete()
    columns = ("dependencies_met", "dependency_check_result", "missing_dependencies")
    ((met, result, missing),) = logged(stage, "bare", *columns)
    assert (bool(met), result, json.loads(missing)) == (False, "ready_degraded", ["t.odds"])
    ((met, result, missing),) = logged(stage, "full", *columns)
    assert (bool(met), result, missing) == (True, "ready", None)
