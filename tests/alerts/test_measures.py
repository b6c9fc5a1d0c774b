"""Measurements: no origin or customer hides those of others, and none scans a growing table."""

from __future__ import annotations

import pytest

from penstock.alerts.evaluator import AlertEvaluator
from penstock.alerts.measures import Measurement
from penstock.alerts.rules import rules_of
from penstock.alerts.store import bus_measures, flow_measures, limit_measures, measures
from penstock.bus.records import Topic
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.schedules.records import NewConfig
from tests.alerts.kit import declared
from tests.kits.client_harness import Harness
from tests.kits.flows import work
from tests.kits.plans import plan_of


def measured(harness: Harness, metric: str) -> list[Measurement]:
    """Return the measurements of a metric."""
    return [one for one in harness.store.read(measures.measure) if one.metric == metric]


def evaluate(harness: Harness) -> None:
    """Evaluate the built-in rules."""
    harness.clock.advance(15 * SECOND)
    AlertEvaluator(harness.store, rules_of(declared({})), clock=harness.clock).run_once()


def die(harness: Harness, origin: str, count: int, ago: int, customer: int = 1) -> None:
    """Store open dead letters of an origin, such as `processor 2`, from some time ago."""
    column, _, key = origin.partition(" ")
    kind = "run" if column == "processor" else "delivery"
    first = harness.column("SELECT coalesce(max(dead_letter_id), 0) FROM dead_letters")[0]
    rows = ", ".join(
        f"('{kind}', {first + n}, {customer}, {key or 'NULL'}, 'E', 3, "
        f"{harness.clock.now() - ago + n}, 'open')"
        for n in range(count)
    )
    harness.sql(
        f"INSERT INTO dead_letters (kind, subject, customer, {column}, error_type, attempts, "
        f"died_at, status) VALUES {rows}"
    )


def test_no_origin_hides_another(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each origin of dead letters is measured, however many another one has."""
    monkeypatch.setattr(measures, "ORIGIN_BOUND", 20)
    harness.clock.advance(DAY)
    die(harness, "processor 1", 40, 2 * HOUR)
    die(harness, "processor 2", 2, 20 * MINUTE)
    die(harness, "subscription 7", 40, 2 * HOUR)
    die(harness, "subscription 8", 3, 30 * MINUTE, customer=2)
    die(harness, "processor", 1, 40 * MINUTE)
    die(harness, "processor 1", 25, MINUTE)
    die(harness, "processor 2", 12, MINUTE, customer=2)
    ages = {
        (one.subject_kind, one.subject): (round(one.value), one.facts, one.customer_key)
        for one in measured(harness, "dead_letter_age_minutes")
    }
    assert ages == {
        ("processor", 1): (120, {"count": 25, "recent": 25, "more": "at least "}, 1),
        ("processor", 2): (20, {"count": 14, "recent": 12, "more": ""}, None),
        ("processor", 0): (40, {"count": 1, "recent": 0, "more": ""}, 1),
        ("subscription", 7): (120, {"count": 20, "recent": 0, "more": "at least "}, 1),
        ("subscription", 8): (30, {"count": 3, "recent": 0, "more": ""}, 2),
    }
    growth = {one.subject: one.value for one in measured(harness, "dead_letter_growth")}
    assert growth == {1: 25, 2: 12}
    evaluate(harness)
    found = harness.client.alerts.list(rule="dead_letters").items
    assert {one.severity for one in found} == {"CRITICAL"}
    assert "dead letters at nightly/work: at least 25 open, 25 in the last 10 minutes" in {
        one.message for one in found
    }
    assert len(found) == 5


def test_no_subscription_hides_another(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures of each subscription are counted, however many another one has."""
    monkeypatch.setattr(bus_measures, "BOUND", 20)
    harness.client.topics.create(Topic(name="feed"))
    for number, name in enumerate(("loud", "quiet", "well"), 1):
        harness.sql(
            "INSERT INTO subscriptions (subscription, topic, name, kind, customer, created_at) "
            f"SELECT {number}, topic, '{name}', 'pull', 0, 0 FROM topics WHERE name = 'feed'"
        )
    now = harness.clock.now()
    for subscription, count, ago in ((2, 6, 30), (1, 40, 10), (3, 5, 90)):
        rows = ", ".join(
            f"({subscription}, {n}, 0, 1, 1, 'nack', 'E{subscription}', 'x', {now - ago * SECOND})"
            for n in range(count)
        )
        harness.sql(
            "INSERT INTO delivery_failures (subscription, message_id, customer, round, attempt, "
            f"action, error_type, error, at) VALUES {rows}"
        )
    found = measured(harness, "failed_deliveries_per_minute")
    assert {(one.name, one.value, one.facts["error"]) for one in found} == {
        ("loud", 20, "E1"), ("quiet", 6, "E2"),
    }  # fmt: skip


def test_no_limit_hides_another(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting times of each limit are measured, however many wait for another."""
    monkeypatch.setattr(limit_measures, "BOUND", 10)
    now = harness.clock.now()
    for name in ("busy", "calm", "idle"):
        harness.client.limits.declare(name, capacity=1)
    ids: dict[str, int] = dict(harness.sql("SELECT name, limit_id FROM limits"))
    for name, count, minutes in (("busy", 30, 1), ("calm", 2, 40)):
        rows = ", ".join(
            f"({n + 100 * ids[name]}, {ids[name]}, 1, 1, {n}, TRUE, {now - minutes * MINUTE})"
            for n in range(count)
        )
        harness.sql(
            "INSERT INTO run_limits (run_id, limit_id, customer, level, pass, is_waiting, lined_at)"
            f" VALUES {rows}"
        )
    harness.sql(
        "INSERT INTO limit_tickets (limit_id, customer, broker, holder, request, lease_us, "
        f"asked_at, until_at) VALUES ({ids['calm']}, 0, 'b', 'h', 'r', 1, {now - HOUR}, {now})"
    )
    for name in ("calm", "idle"):  # kept tickets do not wait
        harness.sql(
            "INSERT INTO limit_tickets (limit_id, customer, broker, holder, request, lease_us, "
            "asked_at, until_at, kept_until) "
            f"VALUES ({ids[name]}, 0, '', 'h', 'kept', 1, {now - 2 * HOUR}, {now}, {now + HOUR})"
        )
    found = measured(harness, "limit_wait_minutes")
    assert {(one.name, one.value, one.facts["waiting"]) for one in found} == {
        ("busy", 1, 10), ("calm", 60, 3),
    }  # fmt: skip


def end_phase(harness: Harness, customer: int, flow: int, quality: float) -> None:
    """Record that a phase ended now; each customer has a partition of its own."""
    now = harness.clock.now()
    harness.sql(
        "INSERT INTO phase_completion_log (customer, pipeline, flow_id, phase, partition, mode, "
        "status, completed_at, expected_processor_count, completed_processor_count, "
        "processors_completed, processors_missing, overall_completeness, overall_quality, "
        "dependencies_met, dependency_issues, correlation_id, inserted_at) VALUES "
        f"({customer}, 1, {flow}, 'main', 'day {customer}', 'daily', 'complete', {now}, 1, 1, '[]',"
        f" '[]', 100, {quality}, TRUE, '[]', 'c', {now})"
    )


def customers(harness: Harness, *names: str) -> list[int]:
    """Return the keys of customers."""
    keys = harness.write(lambda tx: harness.client._names.ensure_customer_keys(tx, names))
    return [int(keys[name]) for name in names]


def test_no_customer_hides_low_quality(harness: Harness) -> None:
    """A low quality is reported for its customer, until a newer flow of its partition is good."""
    acme, zeta = customers(harness, "acme", "zeta")
    changes = []
    for number in range(20):
        end_phase(harness, acme if number % 2 == 0 else zeta, number + 1, 0.4 + 0.6 * (number % 2))
        harness.clock.advance(15 * SECOND)
        evaluate(harness)
        changes.append([(one.customer, one.state) for one in alerts(harness)])
    assert changes == [[("acme", "open")]] * 20
    (alert,) = alerts(harness)
    assert alert.command == "penstock explain nightly 'day 1' --customer acme"
    assert alert.pipeline == "nightly"
    end_phase(harness, acme, 100, 0.99)
    evaluate(harness)
    assert [one.state for one in alerts(harness)] == ["resolved"]


def alerts(harness: Harness) -> list:  # type: ignore[type-arg]
    """Return the alerts about quality, open or not."""
    return harness.client.alerts.list(rule="low_quality", state=None).items


def test_low_quality_of_many(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """If many customers are affected, one alert names the worst and their number."""
    monkeypatch.setattr(flow_measures, "CUSTOMERS_MAX", 3)
    for number, key in enumerate(customers(harness, *(f"c{n}" for n in range(6)))):
        end_phase(harness, key, number + 1, (0.5, 0.4, 0.3, 0.6, 0.9, 1.0)[number])
    evaluate(harness)
    (alert,) = alerts(harness)
    assert alert.customer is None
    assert alert.message == (
        "main of nightly day 3 ended with a quality of 0.30 for c2, the lowest of 4 customers"
    )


def test_quality_is_read_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """No completion is compared with all others; the number that is read is bounded."""
    plan = plan_of(harness.store, "measure_quality", since=1, bound=10, read_bound=9)
    assert "SubPlan" not in plan
    assert plan.count("CORRELATED") == 0
    (acme,) = customers(harness, "acme")
    for flow, quality in enumerate((0.2, 0.3, 0.4), 1):
        end_phase(harness, acme, flow, quality)
        harness.sql(f"UPDATE phase_completion_log SET partition = 'p{flow}' WHERE flow_id = {flow}")
        harness.clock.advance(SECOND)
    found = measured(harness, "quality_loss_percent")
    assert [round(one.value) for one in found] == [80]
    monkeypatch.setattr(flow_measures, "COMPLETIONS_BOUND", 2)
    found = measured(harness, "quality_loss_percent")
    assert [round(one.value) for one in found] == [70]


def test_runs_that_never_start_miss_their_sla(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert counts runs that have not started, except paused ones and those of earlier days."""
    made = Pipeline("daily")
    made.processor("x")(work)
    harness.client.register([made])
    harness.client.configs.create_many(
        [NewConfig(customer=f"c{n}", pipeline="daily", cron="0 2 * * *") for n in range(12)]
    )
    harness.clock.advance(2 * HOUR)
    harness.tick()
    assert [one.value for one in measured(harness, "sla_breaches_today")] == [0]
    harness.clock.advance(6 * HOUR)
    assert harness.client.views.overview().sla_breaches_today == 12
    assert [one.value for one in measured(harness, "sla_breaches_today")] == [12]
    evaluate(harness)
    (alert,) = harness.client.alerts.list(rule="sla_breaches").items
    assert alert.message == "12 runs missed their SLA since midnight UTC"
    harness.sql("UPDATE runs SET admission = 2 WHERE run_id IN (SELECT min(run_id) FROM runs)")
    assert [one.value for one in measured(harness, "sla_breaches_today")] == [11]
    monkeypatch.setattr(measures, "BOUND", 5)
    assert [one.value for one in measured(harness, "sla_breaches_today")] == [5]
    harness.clock.advance(DAY)
    assert [one.value for one in measured(harness, "sla_breaches_today")] == [0]


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        (
            "measure_dead_letters",
            {"dead_letters_open_at_processor", "dead_letters_open_at_subscription",
             "dead_letters_open_without_origin"},
        ),
        ("measure_resolved_dead_letters", {"dead_letters_resolved"}),
        ("measure_failed_deliveries", {"delivery_failures_of_subscription"}),
        (
            "measure_quality",
            {"phase_completion_log_by_time", "phase_completion_log_imperfect"},
        ),
        (
            "measure_limit_waits", {"limit_tickets_waiting"},
        ),
        ("measure_sla_breaches", {"runs_by_deadline"}),
    ],
)  # fmt: skip
def test_plans(harness: Harness, name: str, indexes: set[str]) -> None:
    """Measurements read tables that grow by index alone."""
    plan = plan_of(harness.store, name, now=harness.clock.now(), since=1, bound=10, recent_bound=9,
                   read_bound=9)  # fmt: skip
    assert all(index in plan for index in indexes), plan
    assert "Seq Scan" not in plan.replace("Seq Scan on subscriptions", ""), plan
