"""Drills of rules about flows, data, service levels, requests and usage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.alerts.measures import Measurement
from penstock.alerts.process.reporter import ProcessReporter
from penstock.audit.telemetry import Served
from penstock.bus.message import ErrorKind, Nack, NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.core.records.validation import convert_input
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.runs import attempt_result
from penstock.runs.records import Submission
from penstock.services.upkeep import Sealer
from penstock.usage.meter import UsageMeter
from penstock.usage.records import NewBudget
from tests.kits.client_harness import Harness


@dataclass
class Drill:
    """A case: how to cause the condition, when it holds, and how it ends."""

    begin: Callable[[Harness], Any]
    severity: str
    end: Callable[[Harness], Any]
    after_us: int = 0
    """Time from the beginning until the condition holds."""
    slack_us: int = 0
    """Further time until it is certain to hold, because it is sampled."""
    step: Callable[[Harness], Any] = lambda _: None
    """Work that continues until the alert has fired."""
    local: list[Measurement] = field(default_factory=list)


def at(harness: Harness) -> int:
    """Return the time."""
    return harness.clock.now()


def subscribe(harness: Harness) -> None:
    """Create a topic with one subscription."""
    harness.client.topics.create(Topic(name="events"))
    body = {"name": "reader", "topic": "events"}
    harness.client.subscriptions.declare(convert_input(body, Subscription))


def publish(harness: Harness, count: int = 1) -> None:
    """Publish messages."""
    harness.client.topics.publish("events", [NewMessage(data=b"x")] * count)


def nack_some(harness: Harness, count: int = 2) -> None:
    """Publish messages, and nack everything that is due."""
    publish(harness, count)
    found = harness.client.subscriptions.pull("reader", max_messages=50)
    harness.client.subscriptions.nack(
        "reader", [Nack(ack_id=one.ack_id, kind=ErrorKind.TRANSIENT) for one in found]
    )


def backlog(harness: Harness) -> None:
    """Publish messages that no consumer pulls."""
    subscribe(harness)
    publish(harness, 10)


def failing_sink(harness: Harness) -> None:
    """Nack messages."""
    subscribe(harness)
    nack_some(harness, 5)


def growing_dead_letters(harness: Harness) -> None:
    """Let a run die, and others of its kind for the next 40 minutes."""
    harness.dead_run()
    harness.sql(f"UPDATE dead_letters SET died_at = {at(harness) + 35 * MINUTE}")


def resolve_dead_letters(harness: Harness) -> None:
    """Discard all dead letters."""
    for one in harness.client.dead_letters.list(limit=100).items:
        harness.client.dead_letters.discard(one.dead_letter_id, "drill")


def refused(harness: Harness) -> None:
    """Let a run die for lack of permission."""
    harness.submit()
    harness.fail(harness.take(), error_type="AUTHORIZATION_FAILED")


def serve(harness: Harness, endpoint: str = "GET ", **statuses: int) -> None:
    """Let the API respond with statuses, such as `_500=3`."""
    method, _, route = endpoint.partition(" ")
    reporter = ProcessReporter(harness.store, harness.clock)
    for name, count in statuses.items():
        for _ in range(count):
            reporter.on_event(
                Served(
                    request_id="r", method=method, path="/", route=route, seconds=0.1,
                    status=int(name[1:]), key=None, customer_id=None,
                )
            )  # fmt: skip
    assert reporter.run_once() >= sum(statuses.values())


def slow_gate(harness: Harness) -> None:
    """Check a gate whose probe takes 40 seconds."""
    reporter = ProcessReporter(harness.store, harness.clock)

    def probe(_: ProbeRequest) -> list[Observation]:
        harness.clock.advance(40 * SECOND)
        return []

    reporter.timed(probe)(ProbeRequest(dependencies=[], partition="p", since=0))
    reporter.run_once()


def overrides(harness: Harness, days: int) -> None:
    """Grant an override for the same processor on several days."""
    harness.submit("outside")
    now = at(harness)
    for day in range(days):
        harness.sql(
            "INSERT INTO overrides (customer, pipeline, partition, processor, reason, approved_by, "
            f"approved_at, expires_at) VALUES (1, 2, 'p{day}', 'left', 'r', 'ann', "
            f"{now - day * DAY}, {now + HOUR})"
        )


def result(harness: Harness, *, phase: str = "", due: bool = True, took: int = HOUR) -> None:
    """Store a result of a flow or phase of `pair`: over its target and open, or ended."""
    now = at(harness)
    harness.submit("outside")
    number = harness.column("SELECT coalesce(max(result_id), 0) + 1 FROM slo_results")[0]
    ends = "NULL, 'missed'" if due else f"{now}, NULL"
    harness.sql(
        "INSERT INTO slo_results (customer, pipeline, mode, phase, partition, flow_id, "
        "correlation_id, began_at, due_at, ended_at, outcome, is_degraded, state, at) VALUES (1, "
        f"2, 'daily', '{phase}', 'p', {number}, 'c', {now - took}, "
        f"{now - MINUTE if due else 'NULL'}, {ends}, FALSE, 'OPEN', {now})"
    )


def results(harness: Harness, phase: str, took: int) -> None:
    """Store three results without a target."""
    for _ in range(3):
        result(harness, phase=phase, due=False, took=took)


def level(harness: Harness, measure: str, good: int, bad: int) -> None:
    """Store a target of `pair`, and counts of this hour."""
    now = at(harness)
    mode = "" if measure in ("failures", "sla") else "daily"
    harness.sql(
        f"INSERT INTO slo_targets VALUES (2, '{mode}', '', '{measure}', 0, NULL, 95, {now})"
    )
    harness.sql(
        f"INSERT INTO slo_hours VALUES (2, 0, {now // HOUR * HOUR}, '{mode}', '', '{measure}', "
        f"{good}, {bad})"
    )


def checks(harness: Harness, failed: int) -> None:
    """Store failed checks of history."""
    harness.submit("outside")
    now = at(harness)
    for number in range(failed):
        harness.sql(
            "INSERT INTO dependency_check_log (check_time, customer, pipeline, flow_id, phase, "
            "partition, mode, required_table, kind, completeness_pct, quality_score, "
            "check_status, issues, contributed_to_decision, correlation_id) VALUES "
            f"({now}, 1, 2, {number}, 'f', 'p', 'm', 't.days', 'historical', 0, 0, 'MISSING', "
            "'[]', 'FAIL', 'c')"
        )


def quality(harness: Harness) -> None:
    """Log a phase with a quality of 0.5."""
    harness.submit("outside")
    now = at(harness)
    harness.sql(
        "INSERT INTO phase_completion_log (customer, pipeline, flow_id, phase, partition, mode, "
        "status, completed_at, expected_processor_count, completed_processor_count, "
        "processors_completed, processors_missing, overall_completeness, overall_quality, "
        "dependencies_met, dependency_issues, correlation_id, inserted_at) VALUES (1, 2, 1, "
        f"'predict', 'p', 'daily', 'complete', {now}, 1, 1, '[]', '[]', 100, 0.5, TRUE, '[]', "
        f"'c', {now})"
    )


def waiting_request(harness: Harness) -> None:
    """Let a request wait for a limit."""
    harness.client.limits.declare("crm", capacity=1)
    harness.sql(
        "INSERT INTO limit_tickets (limit_id, customer, broker, holder, request, lease_us, "
        f"asked_at, until_at) SELECT limit_id, 0, 'b', 'h', 'r', 1, {at(harness)}, "
        f"{at(harness) + DAY} FROM limits WHERE name = 'crm'"
    )


def sink_behind(harness: Harness) -> None:
    """Seal an entry that an audit sink does not get."""
    now = at(harness)
    harness.sql(
        "INSERT INTO shipments (sink, relation, batches, position, shipped_rows, shipped_at) "
        f"VALUES ('parquet:x', 'journal', 1, 0, 0, {now})"
    )
    harness.submit("outside")
    Sealer(harness.store).run_once()


def execute(harness: Harness, count: int, *, records: int, took: int = MINUTE) -> None:
    """Complete runs of a time and a number of records, and record them."""
    for _ in range(count):
        harness.client.runs.submit(Submission(pipeline="nightly", customer="acme"))
        held = harness.take()
        harness.clock.advance(took)
        harness.end(attempt_result.completed_result(held, records=records))
    harness.clock.advance(20 * SECOND)
    UsageMeter(harness.store).run_once()


def odd_execution(harness: Harness, **odd: int) -> None:
    """Complete a dozen equal runs, then one that is different."""
    execute(harness, 12, records=1_000)
    execute(harness, 1, **{"records": 1_000, **odd})


def spend(harness: Harness, *, hard: bool) -> None:
    """Use up the budget of a pipeline."""
    harness.client.budgets.set(
        NewBudget(scope="pipeline", subject="nightly", amount=1.0, is_hard=hard)
    )
    day = at(harness) // DAY * DAY
    harness.sql(f"INSERT INTO usage_days VALUES (1, 0, {day}, 1, 1, 1, 2.0)")
    UsageMeter(harness.store).run_once()


def lift(harness: Harness) -> None:
    """Lift the stop of the budget."""
    harness.client.budgets.lift("pipeline", "nightly")


DATA_DRILLS: dict[str, Drill] = {
    "dead_letter_growth": Drill(
        begin=growing_dead_letters, severity="CRITICAL", after_us=30 * MINUTE,
        end=resolve_dead_letters,
    ),
    "permission_errors": Drill(begin=refused, severity="CRITICAL", end=resolve_dead_letters),
    "backlog_growing": Drill(
        begin=backlog, step=publish, severity="MEDIUM",
        after_us=15 * MINUTE, slack_us=5 * MINUTE,
        end=lambda h: h.sql("DELETE FROM deliveries"),
    ),
    "sink_errors": Drill(
        begin=failing_sink, step=nack_some, severity="MEDIUM",
        after_us=10 * MINUTE, end=lambda h: h.clock.advance(2 * MINUTE),
    ),
    "api_errors": Drill(
        begin=lambda h: serve(h, _200=95, _500=5), severity="CRITICAL",
        end=lambda h: h.clock.advance(6 * MINUTE),
    ),
    "api_rejections": Drill(
        begin=lambda h: serve(h, _200=2_900, _400=24, _404=90), severity="MEDIUM",
        end=lambda h: h.clock.advance(11 * MINUTE),
    ),
    "override_repeated": Drill(
        begin=lambda h: overrides(h, 3), severity="MEDIUM",
        end=lambda h: h.sql("DELETE FROM overrides"),
    ),
    "low_quality": Drill(
        begin=quality, severity="MEDIUM", end=lambda h: h.clock.advance(2 * HOUR)
    ),
    "slo_missed": Drill(
        begin=result, severity="MEDIUM",
        end=lambda h: (
            h.sql(f"UPDATE slo_results SET ended_at = {at(h)}"), h.clock.advance(15 * MINUTE)
        ),
    ),
    "slo_burn_rate": Drill(
        begin=lambda h: level(h, "sla", 2, 18), severity="HIGH",
        end=lambda h: h.clock.advance(8 * HOUR),
    ),
    "slo_budget_spent": Drill(
        begin=lambda h: level(h, "failures", 40, 10), severity="MEDIUM",
        end=lambda h: h.sql("UPDATE slo_hours SET good = 900"),
    ),
    "cascade_success": Drill(
        begin=lambda h: level(h, "cascade", 30, 10), severity="CRITICAL",
        end=lambda h: h.clock.advance(26 * HOUR),
    ),
    "duplicate_triggers": Drill(
        begin=lambda h: level(h, "duplicate_triggers", 30, 1), severity="CRITICAL",
        end=lambda h: h.clock.advance(26 * HOUR),
    ),
    "historical_failures": Drill(
        begin=lambda h: checks(h, 11), severity="MEDIUM", end=lambda h: h.clock.advance(7 * HOUR)
    ),
    "dependency_failing": Drill(
        begin=lambda h: h.sql(
            f"INSERT INTO check_counts VALUES (0, {at(h) // DAY * DAY}, 2, 'p', '', 't.rows', "
            "'same_day', 200, 101, 0, 0, 0)"
        ),
        severity="MEDIUM", end=lambda h: h.clock.advance(9 * DAY),
    ),
    "phase_duration": Drill(
        begin=lambda h: results(h, "entry", 11 * MINUTE), severity="INFO",
        end=lambda h: h.clock.advance(26 * HOUR),
    ),
    "flow_duration": Drill(
        begin=lambda h: results(h, "", 31 * MINUTE), severity="INFO",
        end=lambda h: h.clock.advance(26 * HOUR),
    ),
    "limit_wait": Drill(
        begin=waiting_request, severity="MEDIUM", after_us=10 * MINUTE,
        end=lambda h: h.sql("DELETE FROM limit_tickets"),
    ),
    "audit_backlog": Drill(
        begin=sink_behind, severity="MEDIUM", after_us=30 * MINUTE,
        end=lambda h: h.sql("UPDATE shipments SET position = 99"),
    ),
    "gate_check_slow": Drill(
        begin=slow_gate, severity="MEDIUM", end=lambda h: h.clock.advance(12 * MINUTE)
    ),
    "anomaly": Drill(
        begin=lambda h: odd_execution(h, took=HOUR), severity="MEDIUM",
        end=lambda h: execute(h, 1, records=1_000),
    ),
    "zero_records": Drill(
        begin=lambda h: odd_execution(h, records=0), severity="HIGH",
        end=lambda h: execute(h, 1, records=1_000),
    ),
    "budget_used": Drill(
        begin=lambda h: spend(h, hard=False), severity="HIGH",
        end=lambda h: h.sql("DELETE FROM usage_days"),
    ),
    "budget_stop": Drill(begin=lambda h: spend(h, hard=True), severity="HIGH", end=lift),
}  # fmt: skip
