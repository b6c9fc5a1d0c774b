"""`trace` by any id: messages, single runs, dead letters, ids of other systems."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, game_day_modes
from penstock.bus.message import ErrorKind, Nack, NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.consumer.message import Message
from penstock.core.errors import NotFound
from penstock.core.ids import encode
from penstock.core.records.validation import convert_input
from penstock.db.store import Store
from penstock.flows.explain.facts import FlowFact, PhaseFact
from penstock.flows.explain.records import FlowTrace
from penstock.flows.explain.trace import trace
from penstock.flows.records import CompletionReport
from penstock.runs.records import Submission
from penstock.services.binder import Binder
from penstock.testing.clock import VirtualClock
from tests.kits.flows import DAY, Stage, work


def pipelines() -> list[Pipeline]:
    """A flow of three phases, and a pipeline without a flow."""
    made = Pipeline("nba", partition="day", modes=game_day_modes())
    raw = made.phase("raw")
    raw.external("box")
    total = made.phase("sum", after=raw)
    total.processor("total")(work)
    made.phase("out", after=total).processor("site")(work)
    single = Pipeline("nightly")
    single.processor("load")(work)
    return [made, single]


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """A stage with a topic whose messages become runs of `nightly`, and a consumer of it."""
    made = Stage(store, clock, *pipelines())
    made.client.topics.create(Topic(name="feed"), customer="acme")
    for body in (
        {"name": "bound", "kind": "bound", "binding": {"to": "runs", "pipeline": "nightly"}},
        {"name": "consumer"},
    ):
        wanted = convert_input({**body, "topic": "feed"}, Subscription)
        made.client.subscriptions.declare(wanted, customer="acme")
    return made


def publish(stage: Stage, **options: Any) -> str:
    """Publish a message; return its id."""
    message = NewMessage(data=b"{}", **options)
    done = stage.client.topics.publish("feed", [message], customer="acme")
    Binder(stage.store, jitter=lambda: 0.0).run_once()
    return done.message_ids[0]


def kinds(found: FlowTrace) -> list[str]:
    """Return the kinds of the steps of a trace, in order."""
    return [step.kind for step in found.steps]


def never(found: FlowTrace) -> str:
    """Return what has not happened, as one text."""
    return "\n".join(one.text for one in found.missing)


def test_a_message(stage: Stage) -> None:
    """A message leads to its deliveries and its run; a delivery that waits has not happened."""
    message_id = publish(stage)
    found = stage.client.diagnostics.trace(message_id)
    assert kinds(found) == ["message", "delivery"]
    assert "bound handled it" in found.steps[1].text
    assert "nightly" in never(found) or "load" in never(found), "the run has not ended"
    assert f"message {message_id} to consumer: not handled, ready" in never(found)
    stage.complete("load")
    found = stage.client.diagnostics.trace(message_id)
    assert kinds(found) == ["message", "delivery", "execution"]
    run_id = found.steps[2].run_id
    assert run_id is not None
    assert stage.client.diagnostics.trace(run_id).steps == found.steps
    assert found.reached_last is None


def test_a_dead_letter(stage: Stage) -> None:
    """A dead letter leads to its message, and says that it is kept and how it is replayed."""
    message_id = publish(stage, attributes={"correlation_id": "c9"})
    (got,) = stage.client.subscriptions.pull("consumer", customer="acme")
    nack = Nack(ack_id=got.ack_id, kind=ErrorKind.POISON, error_type="SCHEMA", error="no team")
    stage.client.subscriptions.nack("consumer", [nack], customer="acme")
    (dead_letter,) = stage.client.dead_letters.list().items
    found = stage.client.diagnostics.trace(dead_letter.dead_letter_id)
    assert found.correlation_id == "c9"
    assert "consumer gave up on it" in " ".join(step.text for step in found.steps)
    assert f"penstock dlq replay {dead_letter.dead_letter_id}" in never(found)
    assert stage.client.diagnostics.trace("c9").steps == found.steps
    assert stage.client.diagnostics.trace(message_id).steps == found.steps


def test_a_dead_run(stage: Stage) -> None:
    """A dead single run is traced by its own id and by its dead letter."""
    made = stage.client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    stage.kill("load")
    found = stage.client.diagnostics.trace(made.run_id)
    assert kinds(found) == ["execution", "dead_letter"]
    assert "VALIDATION_ERROR" in found.steps[0].text
    (dead_letter,) = stage.client.dead_letters.list().items
    assert stage.client.diagnostics.trace(dead_letter.dead_letter_id).steps == found.steps
    stage.client.dead_letters.discard(dead_letter.dead_letter_id, reason="obsolete")
    closed = stage.client.diagnostics.trace(made.run_id)
    assert not closed.missing
    assert closed.summary == "Everything has ended."


def test_ids_of_other_systems(stage: Stage) -> None:
    """The execution id of a report leads to its flow, the id of a sender to its message."""
    stage.open(correlation_id="c1")
    report = CompletionReport(
        pipeline="nba", processor="box", partition=DAY, customer="acme", execution_id="scraper-7"
    )
    stage.client.flows.complete(report)
    stage.step()
    found = stage.client.diagnostics.trace("scraper-7")
    assert [flow.correlation_id for flow in found.flows] == ["c1"]
    assert found.summary == "nba 2025-11-16 got as far as raw: sum running, out not triggered."
    stage.run_off()
    found = stage.client.diagnostics.trace("scraper-7")
    assert (found.reached_last, found.summary) == (
        True,
        "nba 2025-11-16 reached out, the last phase.",
    )
    publish(stage, attributes={"correlation_id": "c1"})
    left = stage.client.diagnostics.trace("c1")
    reached, _, rest = left.summary.partition(" Missing: message ")
    assert (left.reached_last, reached) == (True, found.summary)
    assert "to consumer: not handled" in rest
    message_id = publish(stage, dedupe_id="sender-1")
    assert message_id in stage.client.diagnostics.trace("sender-1").steps[0].text


def test_what_a_run_published(stage: Stage) -> None:
    """A message that carries the id of a run, and the run that it caused, belong to its trace."""
    run = stage.client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    stage.complete("load")
    message_id = publish(stage, attributes={"correlation_id": run.run_id})
    stage.complete("load")
    found = stage.client.diagnostics.trace(run.run_id)
    assert sum(step.kind == "execution" for step in found.steps) == 2
    assert stage.client.diagnostics.trace(message_id).steps == found.steps


def test_what_a_consumer_published(stage: Stage) -> None:
    """A message that a handler publishes for another one, with `follow_up`, is in its trace."""
    message_id = publish(stage)
    handled = Message(id=message_id, data=b"{}")
    assert handled.follow_up == {
        "correlation_id": message_id,
        "causation_id": message_id,
        "traceparent": handled.traceparent,
    }
    second = publish(stage, attributes=handled.follow_up)
    found = stage.client.diagnostics.trace(message_id)
    assert [step.text for step in found.steps if step.kind == "message"] == [
        f"message {message_id} published on feed",
        f"message {second} published on feed",
    ]
    third = Message(id=second, data=b"{}", attributes=handled.follow_up)
    assert third.follow_up["correlation_id"] == message_id
    assert third.follow_up["causation_id"] == second
    assert third.trace == (handled.trace[0], handled.traceparent.split("-")[2])


@pytest.mark.parametrize(
    "cause", ["nothing", "99999999", encode("dl", 77), encode("run", 77), encode("flow", 77)]
)
def test_unknown(stage: Stage, cause: str) -> None:
    """An id that nothing has is not found."""
    with pytest.raises(NotFound):
        stage.client.diagnostics.trace(cause)


def test_customers_are_apart(stage: Stage) -> None:
    """A bound client does not find the ids of another customer."""
    message_id = publish(stage, attributes={"correlation_id": "c9"})
    stage.client.runs.submit(Submission(pipeline="nightly", customer="zoo"))
    other = stage.client.scoped("zoo")
    for cause in (message_id, "c9"):
        with pytest.raises(NotFound):
            other.diagnostics.trace(cause)
    assert stage.client.scoped("acme").diagnostics.trace("c9").steps


def test_generations(stage: Stage) -> None:
    """What an older generation lacks is not missing once a newer one has it."""
    stage.open(correlation_id="c1")
    stage.client.flows.complete(
        CompletionReport(
            pipeline="nba", processor="box", partition=DAY, customer="acme",
            entities={"players": [7]},
        )
    )  # fmt: skip
    stage.step()
    stage.kill("total")
    stage.step()
    trail = stage.client.diagnostics.entity("players:7", customer="acme")
    assert [flow.reached_last for flow in trail.flows] == [False]
    assert "sum: total not completed" in never(stage.client.diagnostics.trace("c1"))
    stage.open(correlation_id="c1", phases=["sum"], force=True)
    stage.run_off()
    trail = stage.client.diagnostics.entity("players:7", customer="acme")
    assert [flow.generation for flow in trail.flows] == [2, 1]
    assert [flow.reached_last for flow in trail.flows] == [True, False]
    assert "total" not in never(stage.client.diagnostics.trace("c1")).partition("run_")[0]


def test_executions_of_pruned_flows(stage: Stage) -> None:
    """A trace shows what executed in flows that are no longer stored."""
    flow = stage.open(correlation_id="c1").flow
    stage.client.flows.complete(
        CompletionReport(pipeline="nba", processor="box", partition=DAY, customer="acme")
    )
    stage.run_off()
    stage.sql(f"DELETE FROM flows WHERE flow_id = {flow.flow_id}")
    found = stage.client.diagnostics.trace("c1")
    assert not found.flows
    executed = {step.processor for step in found.steps if step.kind == "execution"}
    assert {"total", "site"} <= executed
    assert "report" in kinds(found)


def test_a_phase_that_the_mode_does_not_run_is_not_lacking() -> None:
    def phase(name: str, state: str, *after: str) -> PhaseFact:
        expected = () if name == "grading" else ("main",)  # the mode does not run grading
        return PhaseFact(name=name, state=state, since=0, after=after, expected=expected)

    def verdict(state: str, *phases: PhaseFact) -> bool | None:
        flow = FlowFact(
            flow_id="flow_1", customer="acme", pipeline="nba", partition=DAY, mode="same_day",
            generation=1, state=state, correlation_id="c", trigger_source="test",
            opened_by="test", opened_at=0, phases=phases,
        )  # fmt: skip
        return trace([flow], [], 0).reached_last

    raw, out = phase("raw", "COMPLETE"), phase("out", "COMPLETE", "raw")
    skipped = phase("grading", "SKIPPED", "raw")
    assert verdict("COMPLETE", raw, out, skipped) is True
    assert verdict("CANCELLED", raw, phase("out", "SKIPPED", "raw")) is False
    assert verdict("FAILED", phase("raw", "FAILED"), phase("out", "SKIPPED", "raw")) is False
