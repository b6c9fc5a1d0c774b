"""Bound subscriptions: messages create runs, start configs and report completions, once each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.core.records.validation import convert_input
from penstock.flows.orchestrator import Orchestrator
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.modes import game_day_modes
from penstock.services import binder as binder_module
from penstock.services.binder import Binder
from tests.kits.client_harness import Harness


class Killed(BaseException):
    """The process ends: unlike an error of one message, nothing may handle it."""


@pytest.fixture
def binder(harness: Harness) -> Binder:
    """A binder over the store under test, without jitter."""
    return Binder(harness.store, jitter=lambda: 0.0)


def bound(harness: Harness, binding: dict[str, Any], customer: str | None = None) -> None:
    """Create a topic `feed` with a bound subscription."""
    harness.client.topics.create(Topic(name="feed"), customer=customer)
    body = {"name": "to-it", "topic": "feed", "kind": "bound", "binding": binding}
    harness.client.subscriptions.declare(convert_input(body, Subscription), customer=customer)


def publish(
    harness: Harness, *payloads: Any, customer: str | None = None, **attributes: str
) -> list[str]:
    """Publish objects (or bytes) on `feed`; return the message ids."""
    messages = [
        NewMessage(
            data=one if isinstance(one, bytes) else json.dumps(one).encode(), attributes=attributes
        )
        for one in payloads
    ]
    return harness.client.topics.publish("feed", messages, customer=customer).message_ids


class TestRuns:
    """A message becomes a run of a processor."""

    def test_a_message_becomes_a_run(self, harness: Harness, binder: Binder) -> None:
        """Its JSON object is the parameters; attributes give the customer and the partition."""
        bound(harness, {"to": "runs", "pipeline": "nightly", "processor": "work"})
        (message_id,) = publish(
            harness, {"days": 3}, customer_id="acme", partition="2025-12-31", correlation_id="cause"
        )
        assert binder.run_once().done == 1
        held = harness.take()
        run = harness.run(held.run_id)
        assert (run.customer, run.partition, run.parameters) == (
            "acme", "2025-12-31", {"days": 3},
        )  # fmt: skip
        assert (run.trigger_source, run.trigger_message_id) == ("event", str(message_id))
        assert run.correlation_id == "cause"
        assert binder.run_once().done == 0
        (place,) = harness.client.topics.message(message_id).deliveries
        assert place.state == "acked"

    def test_poison_does_not_affect_other_messages(self, harness: Harness, binder: Binder) -> None:
        """A message that can never become a run is a dead letter at once; others become runs."""
        bound(harness, {"to": "runs", "pipeline": "nightly"}, customer="acme")
        publish(harness, {"days": 1}, b"no json", {"days": 99}, [1], {"days": 2}, customer="acme")
        counts = binder.run_once()
        assert (counts.done, counts.nacked) == (2, 3)
        runs = [harness.run(harness.take().run_id) for _ in range(2)]
        assert {(run.customer, run.parameters["days"]) for run in runs} == {
            ("acme", 1), ("acme", 2),
        }  # fmt: skip
        dead = harness.client.dead_letters.list().items
        assert {one.error_kind for one in dead} == {"poison"}
        assert len(dead) == 3

    def test_an_invalid_customer_does_not_affect_other_messages(
        self, harness: Harness, binder: Binder
    ) -> None:
        """A message may name the customer; an invalid name is a dead letter and stops nothing."""
        bound(harness, {"to": "runs", "pipeline": "nightly"})
        publish(harness, {"days": 1}, customer_id="no such name!")
        publish(harness, {"days": 2}, customer_id="acme")
        counts = binder.run_once()
        assert (counts.done, counts.nacked) == (1, 1)
        assert [one.error_kind for one in harness.client.dead_letters.list().items] == ["poison"]

    def test_every_subscription_is_served(
        self, harness: Harness, binder: Binder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many subscriptions there are, of whatever names."""
        monkeypatch.setattr(binder_module, "PAGE", 2)
        for customer in ("a", "b", "c", "d", "e"):
            bound(harness, {"to": "runs", "pipeline": "nightly"}, customer=customer)
            publish(harness, {"days": 1}, customer=customer)
        assert binder.run_once().done == 5

    def test_a_crash_leaves_both_or_neither(self, harness: Harness, binder: Binder) -> None:
        """A transaction that is not committed leaves the message to be delivered again."""
        bound(harness, {"to": "runs", "pipeline": "nightly"})
        publish(harness, {"days": 1})
        write = harness.store.write
        count = [0]

        def crashing(body: Any) -> Any:
            def failing(tx: Any) -> Any:
                done = body(tx)
                count[0] += 1
                if count[0] == 3:  # after reading the topics and the pull
                    raise Killed("before the commit")
                return done

            return write(failing)

        harness.store.write = crashing  # type: ignore[method-assign]
        with pytest.raises(Killed):
            binder.run_once()
        harness.store.write = write  # type: ignore[method-assign]
        assert harness.client.views.overview().pending_runs == 0
        sweeper = DeliverySweeper(harness.store, jitter=lambda: 0.0)
        for _ in range(3):
            harness.clock.advance(seconds=61)
            sweeper.run_once()
            binder.run_once()
        assert harness.client.views.overview().pending_runs == 1

    def test_bindings_are_checked(self, harness: Harness) -> None:
        """An invalid binding is refused with the name of the field."""
        cases: dict[str, dict[str, Any]] = {
            "binding.to": {"to": "unknown"},
            "binding.pipeline": {"to": "runs"},
            "binding.processor": {"to": "completions", "pipeline": "p", "processor": "x"},
            "binding.other": {"to": "runs", "pipeline": "p", "other": 1},
        }
        for field, binding in cases.items():
            with pytest.raises(InvalidInput, match=field):
                bound(harness, binding)
        with pytest.raises(InvalidInput, match="binding"):
            harness.client.subscriptions.declare(
                Subscription(name="to-it", topic="feed", kind="bound")
            )


class TestConfigs:
    """EVENT_DRIVEN configs start from topics."""

    def test_a_message_starts_configs(self, harness: Harness, binder: Binder) -> None:
        """Every active config whose filter matches starts once; its run has the message's id."""
        first = harness.config(event_topic="feed")
        other = harness.config(
            "globex", event_topic="feed", event_filter='attributes.kind = "full"'
        )
        off = harness.config("initech", event_topic="feed", is_active=False)
        harness.client.topics.create(Topic(name="feed"))
        assert binder.run_once().bound == 1
        (message_id,) = publish(harness, {})
        binder.run_once()
        binder.run_once()
        held = harness.take()
        run = harness.run(held.run_id)
        assert (run.config_id, run.trigger_source) == (encode("cfg", first.config_id), "event")
        assert harness.column("SELECT trigger_message_id FROM runs") == [str(message_id)]
        assert harness.client.views.overview().pending_runs == 0
        harness.complete(held)
        publish(harness, {}, kind="full")
        binder.run_once()
        started = {harness.run(harness.take().run_id).config_id for _ in range(2)}
        assert started == {encode("cfg", one.config_id) for one in (first, other)}
        assert encode("cfg", off.config_id) not in started

    @pytest.mark.parametrize("attributes", [{"correlation_id": "injury-7"}, {}])
    def test_a_run_carries_the_correlation_of_its_message(
        self, harness: Harness, binder: Binder, attributes: dict[str, str]
    ) -> None:
        """Run, execution and trace agree on the message's correlation id, or on its own id."""
        harness.config(event_topic="feed")
        harness.client.topics.create(Topic(name="feed"))
        binder.run_once()
        (message_id,) = publish(harness, {}, **attributes)
        binder.run_once()
        expected = attributes.get("correlation_id", str(message_id))
        held = harness.take()
        assert held.correlation_id == expected
        harness.complete(held)
        run = harness.run(held.run_id)
        assert (run.correlation_id, run.trigger_message_id) == (expected, str(message_id))
        executions = harness.client.tracking.executions(run.run_id).items
        mine = [one.correlation_id for one in executions if one.execution_id == run.run_id]
        assert mine == [expected]
        by_message = harness.client.diagnostics.trace(str(message_id))
        assert by_message.correlation_id == expected
        assert [one.run_id for one in by_message.steps if one.kind == "execution"] == [run.run_id]
        assert harness.client.diagnostics.trace(run.run_id).steps == by_message.steps
        assert harness.client.diagnostics.trace(expected).steps == by_message.steps

    def test_overlap_is_recorded(self, harness: Harness, binder: Binder) -> None:
        """A message that arrives before the previous run ended is skipped and recorded."""
        config = harness.config(event_topic="feed", overlap="skip")
        harness.client.topics.create(Topic(name="feed"), customer="acme")
        binder.run_once()
        publish(harness, {}, customer="acme")
        binder.run_once()
        harness.clock.advance(seconds=5)
        publish(harness, {}, customer="acme")
        binder.run_once()
        assert harness.client.views.overview().pending_runs == 1
        (entry,) = harness.ledger(config.config_id)
        assert entry[-1] == "skipped_overlap"

    def test_a_topic_name_that_is_too_long_affects_no_other(
        self, harness: Harness, binder: Binder
    ) -> None:
        """The subscription is named after its topic: too long a name is refused or ignored."""
        longest = "t" * 255
        with pytest.raises(InvalidInput, match="243 characters"):
            harness.config(event_topic=longest)
        harness.config(event_topic="feed")
        harness.config("globex", event_topic="old")
        harness.sql(f"UPDATE configs SET event_topic = '{longest}' WHERE event_topic = 'old'")
        harness.client.topics.create(Topic(name=longest), customer="globex")
        harness.client.topics.create(Topic(name="feed"))
        assert binder.run_once().bound == 1
        publish(harness, {})
        assert binder.run_once().done == 1

    def test_a_customers_topic(self, harness: Harness, binder: Binder) -> None:
        """A customer's own topic starts only its configs, as does a message that names it."""
        for who in ("acme", "globex"):
            harness.config(who, event_topic="feed")
        harness.client.topics.create(Topic(name="feed"), customer="acme")
        harness.client.topics.create(Topic(name="feed"))
        assert binder.run_once().bound == 2
        publish(harness, {}, customer="acme")
        binder.run_once()
        held = harness.take()
        assert harness.run(held.run_id).customer == "acme"
        harness.complete(held)
        publish(harness, {}, customer_id="globex")
        binder.run_once()
        assert harness.run(harness.take().run_id).customer == "globex"
        assert harness.client.views.overview().pending_runs == 0


def test_completions_arrive(harness: Harness, binder: Binder) -> None:
    """Completion messages with the source design's fields advance the flow, once each."""
    daily = Pipeline("daily", partition="day", modes=game_day_modes())
    raw = daily.phase("raw")
    raw.external("box")
    daily.phase("next", after=raw).external("sum")
    harness.client.register([daily])
    bound(harness, {"to": "completions", "pipeline": "daily"})
    payload = {
        "processor_name": "box", "phase": "raw", "game_date": "2025-12-31", "status": "success",
        "execution_id": "e1", "correlation_id": "cause", "processing_mode": "same_day",
        "completeness": {"total_expected": 10, "total_processed": 10},
    }  # fmt: skip
    publish(harness, payload, payload)
    assert binder.run_once().done == 2
    Orchestrator(harness.store).run_once()
    assert harness.column("SELECT count(*) FROM triggers WHERE phase = 'next'") == [1]
    assert harness.column("SELECT count(*) FROM completions") == [1]
