"""The execution log's row of every finished execution, on both engines."""

from __future__ import annotations

import json
from typing import Any

from penstock import Pipeline, game_day_modes, optional
from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.clock import MINUTE
from penstock.core.records.validation import convert_input
from penstock.db.store import Store
from penstock.runs import attempt_result
from penstock.runs.attempt_result import AttemptFailure
from penstock.runs.store.finish import run_end_many
from penstock.services.binder import Binder
from penstock.testing.clock import VirtualClock
from tests.kits.configs import create_config
from tests.kits.flows import DAY, Stage, chain, work


def logged(stage: Stage, processor: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return these columns of a processor's executions, in order."""
    text = f"SELECT {', '.join(columns)} FROM execution_log WHERE processor = '{processor}'"
    return [tuple(row) for row in stage.sql(f"{text} ORDER BY execution_id")]


def staged(store: Store, clock: VirtualClock) -> Stage:
    """`raw`, then processors with their own gates, one of which lacks optional data."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
    raw = made.phase("raw")
    raw.processor("box", retry={"max_attempts": 3, "base_delay_minutes": 1})(work)
    each = made.phase("each", after=raw, on="each")
    each.processor("bare", needs=[optional("t.odds")])(work)
    each.processor("full")(work)
    stage = Stage(store, clock, made)
    stage.rows["t.odds"] = 0
    stage.open()
    return stage


def test_counts_and_metadata(store: Store, clock: VirtualClock) -> None:
    """Counts and metadata come from the result, the definition from the pipeline that ran."""
    stage = staged(store, clock)
    result = {"records_inserted": 7, "records_updated": 2, "metadata": {"file": "a.csv"}}
    stage.complete("box", result=json.dumps(result), records=9)
    columns = ("records_processed", "records_inserted", "records_updated", "event_type")
    assert logged(stage, "box", *columns) == [(9, 7, 2, "raw_complete")]
    ((metadata, digest, service),) = logged(stage, "box", "metadata", "definition", "service")
    assert json.loads(metadata) == {"file": "a.csv"}
    assert stage.sql("SELECT digest FROM flows")[0][0].startswith(digest)
    assert (len(digest), service) == (12, "t")


def test_invalid_counts_are_ignored(store: Store, clock: VirtualClock) -> None:
    """Text in place of numbers does not keep a run from ending."""
    stage = staged(store, clock)
    result = {"quality_score": "good", "records_inserted": "many", "records_updated": -1.5}
    assert stage.complete("box", result=json.dumps(result)) == 1
    assert logged(stage, "box", "status", "records_inserted") == [("completed", None)]
    assert stage.sql("SELECT status, quality FROM completions") == [("success", None)]


def test_retries(store: Store, clock: VirtualClock) -> None:
    """Attempts are counted and linked; without a message there is nothing to ack or nack."""
    stage = staged(store, clock)
    for _ in range(2):
        failure = AttemptFailure(error_type="TRANSIENT_NETWORK")
        ends = [attempt_result.failed(h, failure, jitter=0.0) for h in stage.claim("box").values()]
        stage.write(lambda tx, ends=ends: run_end_many(tx, ends))  # type: ignore[misc]
        clock.advance(10 * MINUTE)
    stage.complete("box")
    found = logged(stage, "box", "status", "message_acknowledgment", "retry_count", "was_retried")
    assert [(*row[:3], bool(row[3])) for row in found] == [
        ("failed", None, 0, True),
        ("failed", None, 1, True),
        ("completed", None, 2, False),
    ]
    first, second, third = logged(stage, "box", "execution_id", "retry_of")
    assert [second[1], third[1]] == [first[0], second[0]]


def test_the_processors_own_gate(store: Store, clock: VirtualClock) -> None:
    """An execution records what its own processor's gate was missing, and no other's."""
    stage = staged(store, clock)
    stage.complete("box")
    stage.step()
    stage.complete()
    columns = ("dependencies_met", "dependency_check_result", "missing_dependencies")
    ((met, result, missing),) = logged(stage, "bare", *columns)
    assert (bool(met), result, json.loads(missing)) == (False, "ready_degraded", ["t.odds"])
    ((met, result, missing),) = logged(stage, "full", *columns)
    assert (bool(met), result, missing) == (True, "ready", None)


class TestOrigin:
    """What led to an execution: an earlier completion, or a message of a bound subscription."""

    def joined(self, store: Store, clock: VirtualClock, **options: Any) -> Stage:
        """`left` (external) and `right` come before `join`."""
        made = Pipeline("nba", partition="day", modes=game_day_modes(), **options)
        raw = made.phase("raw", stragglers="20m")
        raw.external("left")
        raw.processor("right", retry={"max_attempts": 2, "base_delay_minutes": 1})(work)
        made.phase("join", after=raw, on_late_data="rerun").processor("sum")(work)
        return Stage(store, clock, made)

    def message(self, stage: Stage, binding: dict[str, Any], data: dict[str, Any]) -> str:
        """Publish on a bound topic and serve the message; return its id."""
        stage.client.topics.create(Topic(name="feed"), customer="acme")
        if binding:
            body = {"name": "to-it", "topic": "feed", "kind": "bound", "binding": binding}
            wanted = convert_input({**body, "dead_letters": False}, Subscription)
            stage.client.subscriptions.declare(wanted, customer="acme")
        binder = Binder(stage.store, jitter=lambda: 0.0)
        binder.run_once()
        sent = NewMessage(data=json.dumps(data).encode())
        done = stage.client.topics.publish("feed", [sent], customer="acme")
        (message_id,) = done.message_ids
        assert binder.run_once().done == 1
        return message_id

    def test_the_last_completion_is_the_parent(self, store: Store, clock: VirtualClock) -> None:
        """A run names the processor that completed last before its phase; retries do too."""
        stage = self.joined(store, clock)
        stage.open()
        stage.complete("left")
        clock.advance(MINUTE)
        failure = AttemptFailure(error_type="TRANSIENT_NETWORK")
        ends = [
            attempt_result.failed(h, failure, jitter=0.0) for h in stage.claim("right").values()
        ]
        stage.write(lambda tx: run_end_many(tx, ends))
        clock.advance(2 * MINUTE)
        stage.complete("right")
        stage.step()
        stage.complete("sum")
        assert logged(stage, "right", "parent_processor", "subscription") == [(None, None)] * 2
        assert logged(stage, "sum", "parent_processor", "trigger_source") == [
            ("raw.right", "orchestrator")
        ]

    def test_a_manual_start_has_no_parent(self, store: Store, clock: VirtualClock) -> None:
        """A manually started phase has no parent; a rerun's parent is the late processor."""
        stage = self.joined(store, clock)
        stage.open(phases=["join"])
        stage.complete("sum")
        assert logged(stage, "sum", "parent_processor", "trigger_source") == [(None, "manual")]
        stage.open(force=True)
        stage.complete("right")
        clock.advance(20 * MINUTE)
        stage.step()
        stage.complete("sum")
        clock.advance(MINUTE)
        stage.complete("left")
        stage.run_off()
        found = logged(stage, "sum", "parent_processor", "trigger_source")
        assert found[1:] == [("raw.right", "orchestrator"), ("raw.left", "late_data")]

    def test_a_completion_report_by_message(self, store: Store, clock: VirtualClock) -> None:
        """External work is an execution too, with the message that reported it."""
        stage = self.joined(store, clock)
        opened = stage.open(correlation_id="first")
        stage.complete("right")
        clock.advance(MINUTE)
        payload = {
            "processor_name": "left", "partition": DAY, "status": "partial", "execution_id": "e1",
            "correlation_id": "later", "entities_changed": {"players": [7]}, "metadata": {"n": 1},
            "processing_mode": "same_day",
        }  # fmt: skip
        message_id = self.message(stage, {"to": "completions", "pipeline": "nba"}, payload)
        columns = ("status", "event_type", "message_id", "subscription", "correlation_id")
        assert logged(stage, "left", *columns) == [
            ("completed", "raw_complete", message_id, "to-it", "later"),
            ("skipped", "raw_cancelled", None, None, "first"),
        ], "the waiting run is cancelled"
        metadata, entities = logged(stage, "left", "metadata", "affected_entities")[0]
        assert json.loads(metadata) == {"n": 1, "execution_id": "e1"}
        assert json.loads(entities) == {"players": 1}
        stage.step()
        stage.complete("sum")
        assert logged(stage, "sum", "parent_processor", "subscription", "message_id") == [
            ("raw.left", None, None)
        ]
        traced = stage.client.diagnostics.trace("later")
        assert [flow.correlation_id for flow in traced.flows] == ["first"]
        texts = [step.text for step in traced.steps if step.processor == "left"]
        assert "left reported partial externally" in texts
        assert stage.state(opened) == "OPEN"

    def test_a_completion_report_that_opens_a_flow(self, store: Store, clock: VirtualClock) -> None:
        """Executions that start with a flow opened by a message record that message."""
        stage = self.joined(store, clock)
        payload = {"processor_name": "left", "partition": DAY, "processing_mode": "same_day"}
        message_id = self.message(stage, {"to": "completions", "pipeline": "nba"}, payload)
        stage.complete("right")
        for name in ("left", "right"):
            found = logged(stage, name, "message_id", "subscription", "trigger_source")
            assert found == [(message_id, "to-it", "event")], name

    def test_a_config_that_a_message_starts(self, store: Store, clock: VirtualClock) -> None:
        """The first phase records the message; the next one records the first as its parent."""
        stage = Stage(store, clock, chain("raw", "analytics"))
        create_config(
            stage.client,
            "acme",
            {"pipeline_template": "nba", "schedule_type": "EVENT_DRIVEN", "event_topic": "feed"},
        )
        message_id = self.message(stage, {}, {})
        stage.run_off()
        columns = ("message_id", "subscription", "parent_processor")
        assert logged(stage, "raw_job", *columns) == [(message_id, "feed.configs", None)]
        assert logged(stage, "analytics_job", *columns) == [(None, None, "raw.raw_job")]


COLUMNS = (
    "event_id", "event_time", "event_type", "phase", "partition", "processing_mode",
    "correlation_id", "processor_name", "execution_id", "processor_status", "record_count",
    "dependency_result", "decision", "triggered_phase", "orchestrator_version",
    "orchestrator_instance", "inserted_at",
)  # fmt: skip


def test_orchestration_events(store: Store, clock: VirtualClock) -> None:
    """The view has all columns, and an id of its own for each trigger, check and completion."""
    stage = staged(store, clock)
    stage.complete("box", records=9)
    stage.step()
    found = stage.sql(f"SELECT {', '.join(COLUMNS)} FROM orchestration_events")
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in found]
    assert len({row["event_id"] for row in rows}) == len(rows) > 4
    by_type: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_type.setdefault(row["event_type"], []).append(row)
    assert {"opened", "triggered", "completion", "dependency_check"} <= set(by_type)
    (done,) = by_type["completion"]
    assert (done["processor_name"], done["record_count"]) == ("box", 9)
    assert {row["triggered_phase"] for row in by_type["triggered"]} == {"raw", "each"}
    checks = [json.loads(row["dependency_result"]) for row in by_type["dependency_check"]]
    assert {check["table"] for check in checks} == {"t.odds"}
    assert {(row["partition"], row["processing_mode"]) for row in rows} == {
        (done["partition"], done["processing_mode"])
    }
