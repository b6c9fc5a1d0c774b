"""The execution log of everything that executes: runs, reports, evaluations, messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, same_day
from penstock.bus.message import ErrorKind, Nack, NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.bus.transports.over_client import ClientBus
from penstock.consumer import Consumer, ConsumerOptions, Message, Reject, TryAgain
from penstock.core.clock import DAY as DAY_US
from penstock.core.clock import MINUTE, to_datetime
from penstock.core.errors import NotFound
from penstock.core.ids import encode
from penstock.core.records.validation import convert_input
from penstock.db.store import Store
from penstock.flows.records import CompletionReport
from penstock.runs import attempt_result
from penstock.runs.attempt_result import AttemptFailure
from penstock.runs.records import Submission
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.leases import revision_put
from penstock.services.binder import Binder
from penstock.services.store import Retention, prune
from penstock.testing.clock import VirtualClock
from penstock.tracking.records import Execution
from tests.kits.flows import DAY, Stage, work


def declared() -> Pipeline:
    """`raw` (one run, one report), then `sum` behind a gate, then `out`."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
    raw = made.phase("raw")
    raw.processor("box", retry={"max_attempts": 2, "base_delay_minutes": 1})(work)
    raw.external("feed")
    total = made.phase("sum", after=raw)
    total.processor("total", needs=[same_day("t.box")])(work)
    made.phase("out", after=total).processor("site")(work)
    return made


def single() -> Pipeline:
    """A pipeline without a flow."""
    made = Pipeline("nightly")
    made.processor("load", retry={"max_attempts": 2, "base_delay_minutes": 1})(work)
    return made


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """A stage with both pipelines and no data."""
    made = Stage(store, clock, declared(), single())
    made.rows = {"t.box": 0}
    return made


def executions(stage: Stage, cause: str, **options: Any) -> list[Execution]:
    """Return the executions of a cause, oldest first."""
    return list(reversed(stage.client.tracking.executions(cause, **options).items))


def fail(stage: Stage, *names: str, kind: str = "TRANSIENT_NETWORK") -> None:
    """Fail the attempts of processors."""
    failure = AttemptFailure(error_type=kind, details='{"message": "connection lost"}')
    ends = [attempt_result.failed(h, failure, jitter=0.0) for h in stage.claim(*names).values()]
    stage.write(lambda tx: run_end_many(tx, ends))


def test_a_flow(stage: Stage, clock: VirtualClock) -> None:
    """Attempts, reports and waiting gates are executions, with what caused each."""
    stage.write(lambda tx: revision_put(tx, "t", "nba-worker", "r42"))
    clock.advance(MINUTE)
    flow = stage.open(correlation_id="injury-7").flow
    fail(stage, "box")
    clock.advance(2 * MINUTE)
    stage.client.flows.complete(
        CompletionReport(
            pipeline="nba", processor="feed", partition=DAY, status="success", customer="acme",
            execution_id="scraper-1", metadata={"batch_id": "b-9"},
        )
    )  # fmt: skip
    clock.advance(MINUTE)
    result = json.dumps({"records_inserted": 3, "entities_changed": {"players": [7, 9]}})
    stage.complete("box", result=result, records=3)
    stage.step()
    clock.advance(MINUTE)
    listed = executions(stage, "injury-7")
    first, unused, report, second, gate = listed
    assert [e.kind for e in listed] == ["run", "run", "report", "run", "evaluation"]
    assert (unused.processor, unused.status) == ("feed", "skipped"), "offered to external workers"
    assert (first.status, first.error_type, first.error) == (
        "failed", "TRANSIENT_NETWORK", "connection lost",
    )  # fmt: skip
    assert (first.service, first.revision, first.retry_count) == ("nba-worker", "r42", 0)
    assert (second.retry_of, second.retry_count) == (first.execution_id, 1)
    assert second.source_execution_id is None, "the retry's parent is not a cause"
    assert (second.records_processed, second.records_inserted) == (3, 3)
    assert second.affected_entities == {"players": [7, 9]}
    assert (report.batch_id, report.acknowledgment) == ("b-9", None)
    assert (gate.status, gate.phase, gate.missing) == ("skipped", "sum", ["t.box"])
    assert "t.box" in str(gate.error)
    assert gate.correlation_id == "injury-7"
    assert executions(stage, encode("flow", flow.flow_id)) == listed
    assert executions(stage, "scraper-1") == listed
    assert executions(stage, "injury-7", status="skipped") == [unused, gate]
    stage.rows["t.box"] = 9
    clock.advance(30 * MINUTE)
    stage.step()
    stage.complete("total")
    last = executions(stage, "injury-7")[-1]
    assert (last.processor, last.parent_processor) == ("total", "raw.box")
    assert last.source_execution_id == second.execution_id


def test_pages(stage: Stage) -> None:
    """Pages have every execution once, also of those that end at the same time."""
    runs = [Submission(pipeline="nightly", customer="acme", correlation_id="c1")] * 7
    for run_id in stage.client.runs.submit_many(runs):
        stage.client.runs.cancel(run_id, reason="no longer needed")
    found: list[Execution] = []
    cursor = None
    while len(found) < 20:
        page = stage.client.tracking.executions("c1", limit=3, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(found) == len({one.execution_id for one in found}) == 7
    assert {one.status for one in found} == {"skipped"}
    assert len({one.completed_at for one in found}) == 1


class TestAlerts:
    """An execution says which alert was opened about it."""

    def test_a_failed_phase(self, stage: Stage, clock: VirtualClock) -> None:
        """The attempt that ended the processor has an alert, the one before it has none."""
        stage.open(correlation_id="c1")
        fail(stage, "box")
        clock.advance(2 * MINUTE)
        fail(stage, "box")
        done = CompletionReport(pipeline="nba", processor="feed", partition=DAY, customer="acme")
        stage.client.flows.complete(done)
        stage.step()
        first, second = executions(stage, "c1")[:2]
        opened = stage.sql("SELECT rule FROM alerts ORDER BY alert_id")
        assert opened, "the failed phase opens an alert"
        assert (first.is_alert_sent, second.is_alert_sent) == (False, True)
        assert second.alert_type == opened[0][0]

    def test_past_the_retention_of_alerts(self, stage: Stage, clock: VirtualClock) -> None:
        """An execution says it for as long as it is kept, although the alert is deleted."""
        stage.open(correlation_id="c1")
        fail(stage, "box")
        clock.advance(2 * MINUTE)
        fail(stage, "box")
        done = CompletionReport(pipeline="nba", processor="feed", partition=DAY, customer="acme")
        stage.client.flows.complete(done)
        stage.step()
        before = executions(stage, "c1")
        (rule,) = {one.alert_type for one in before if one.is_alert_sent}
        stage.sql("UPDATE alerts SET state = 'resolved', closed_at = opened_at")
        clock.advance(100 * DAY_US)
        kept = Retention(flows_us=400 * DAY_US)
        stage.write(lambda tx: prune(tx, kept))
        assert stage.sql("SELECT 1 FROM alerts") == []
        assert executions(stage, "c1") == before
        clock.advance(300 * DAY_US)
        stage.write(lambda tx: prune(tx, kept))
        assert stage.sql("SELECT rule FROM past_alerts") == []
        assert rule

    def test_a_success_has_none(self, stage: Stage) -> None:
        """A run that succeeds in a flow with alerts has none."""
        stage.open(correlation_id="c1")
        stage.complete("box")
        (run,) = executions(stage, "c1")
        assert (run.is_alert_sent, run.alert_type) == (False, None)


class TestMessages:
    """Messages that consumers or bindings handle are executions, too."""

    def declare(self, stage: Stage, **options: Any) -> None:
        """Declare a topic with a subscription."""
        stage.client.topics.create(Topic(name="feed"), customer="acme")
        body = {"name": "to-it", "topic": "feed", **options}
        wanted = convert_input(body, Subscription)
        stage.client.subscriptions.declare(wanted, customer="acme")

    def publish(self, stage: Stage, **attributes: str) -> str:
        """Publish a message; return its id."""
        message = NewMessage(data=b'{"n": 1}', attributes=attributes)
        done = stage.client.topics.publish("feed", [message], customer="acme")
        return done.message_ids[0]

    def test_nack_then_ack(self, stage: Stage, clock: VirtualClock) -> None:
        """Each attempt is an execution with what happened to the message."""
        self.declare(stage, min_backoff_seconds=0, max_backoff_seconds=1)
        message_id = self.publish(stage, correlation_id="c1")
        subscriptions = stage.client.subscriptions
        (got,) = subscriptions.pull("to-it", customer="acme")
        clock.advance(MINUTE // 2)
        nack = Nack(ack_id=got.ack_id, kind=ErrorKind.TRANSIENT, error_type="DB", error="down")
        subscriptions.nack("to-it", [nack], customer="acme")
        clock.advance(MINUTE)
        (got,) = subscriptions.pull("to-it", customer="acme")
        clock.advance(MINUTE // 2)
        subscriptions.ack("to-it", [got.ack_id], customer="acme")
        for cause in ("c1", message_id):
            first, second = executions(stage, cause)
            assert (first.kind, first.status, first.acknowledgment) == (
                "delivery", "failed", "nack",
            )  # fmt: skip
            assert (first.error_type, first.error, first.duration_seconds) == ("DB", "down", 30.0)
            assert (second.status, second.acknowledgment, second.retry_count) == (
                "completed", "ack", 1,
            )  # fmt: skip
            assert (second.subscription, second.message_id) == ("to-it", message_id)
            assert second.service == "tester"
            assert second.correlation_id == first.correlation_id == "c1"

    @pytest.mark.parametrize("has_policy", [True, False], ids=["dlq", "no-dlq"])
    def test_what_a_consumer_reports(
        self, stage: Stage, clock: VirtualClock, tmp_path: Path, has_policy: bool
    ) -> None:
        """Service, revision, outcome and duration of every attempt are those of the consumer."""
        self.declare(stage, min_backoff_seconds=0, max_backoff_seconds=1, dead_letters=has_policy)
        options = ConsumerOptions(
            service="rosters", version="r42", clock=clock, log=lambda _: None, concurrency=1
        )
        consumer = Consumer("to-it", sink=f"sqlite:{tmp_path}/sink.db", options=options)
        seen: list[str] = []

        @consumer.on()
        def handle(message: Message) -> None:
            clock.advance(seconds=3)
            seen.append(message.id)
            if message.attributes["correlation_id"] == "bad":
                raise Reject("no team")
            if len(seen) == 1:
                raise TryAgain("busy")

        bus = ClientBus(stage.client, customer="acme", clock=clock)
        worker = consumer.worker(bus)
        before = stage.store.read(lambda tx: tx.now())
        self.publish(stage, correlation_id="good")
        worker.run_once()
        clock.advance(MINUTE)
        worker.run_once()
        clock.advance(MINUTE)
        stage.client.subscriptions.seek("to-it", to_datetime(before), customer="acme")
        worker.run_once()
        self.publish(stage, correlation_id="bad")
        worker.run_once()
        consumer.close()
        found = executions(stage, "good") + executions(stage, "bad")
        assert {(one.service, one.revision) for one in found} == {("rosters", "r42")}
        poison = ("failed", "nack" if has_policy else "ack", "poison", 3.0)
        assert [
            (one.status, one.acknowledgment, one.outcome, one.duration_seconds) for one in found
        ] == [
            ("failed", "nack", "retry", 3.0),
            ("completed", "ack", "applied", 3.0),
            ("skipped", "ack", "duplicate", 0.0),
            poison,
        ]  # fmt: skip
        texts = [one.text for one in stage.client.diagnostics.trace("good").steps]
        assert any("handled it in 3 s (attempt 2) by rosters r42" in text for text in texts)
        assert any("had already applied it" in text for text in texts)

    def test_poison_is_one_execution(self, stage: Stage) -> None:
        """A message that becomes a dead letter is a failed execution."""
        self.declare(stage)
        self.publish(stage)
        (got,) = stage.client.subscriptions.pull("to-it", customer="acme")
        nack = Nack(ack_id=got.ack_id, kind=ErrorKind.POISON, error_type="SCHEMA", error="no team")
        stage.client.subscriptions.nack("to-it", [nack], customer="acme")
        (dead_letter,) = stage.client.dead_letters.list().items
        (one,) = executions(stage, dead_letter.dead_letter_id)
        assert (one.status, one.event_type) == ("failed", "message_dead_letter")

    def test_a_bound_run(self, stage: Stage) -> None:
        """The ack of the binding and the run are executions of one trace."""
        binding = {"to": "runs", "pipeline": "nightly", "processor": "load"}
        self.declare(stage, kind="bound", binding=binding)
        message_id = self.publish(stage)
        Binder(stage.store, jitter=lambda: 0.0).run_once()
        stage.complete("load")
        found = {one.kind: one for one in executions(stage, message_id)}
        assert set(found) == {"delivery", "run"}
        assert (found["run"].message_id, found["run"].acknowledgment) == (message_id, "ack")
        assert executions(stage, found["run"].execution_id) == executions(stage, message_id)


def test_unknown(stage: Stage) -> None:
    """An id that nothing has is not found."""
    with pytest.raises(NotFound):
        stage.client.tracking.executions("nothing")


def test_customers_are_apart(stage: Stage) -> None:
    """A bound client does not see the executions of another customer."""
    stage.client.runs.submit(Submission(pipeline="nightly", customer="acme", correlation_id="c1"))
    stage.complete("load")
    stage.client.runs.submit(Submission(pipeline="nightly", customer="zoo", correlation_id="c2"))
    other = stage.client.scoped("zoo")
    with pytest.raises(NotFound):
        other.tracking.executions("c1")
    assert len(stage.client.scoped("acme").tracking.executions("c1").items) == 1
