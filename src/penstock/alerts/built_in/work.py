"""Rules about runs, pools, schedules and processors. Pure."""

from __future__ import annotations

from typing import Final

from penstock.alerts.built_in.rule import at, rule
from penstock.core.clock import MINUTE

RULES: Final = (
    rule(
        "ready_runs",
        "{value} runs of pool {subject} wait for a worker{flood}",
        "penstock worker --pool {subject} --pipelines my_pipelines.py",
        at("ready_runs", "HIGH", 500, MINUTE),
    ),
    rule(
        "queue_age",
        "the next run of pool {subject} has waited for {value}",
        "penstock worker --pool {subject} --pipelines my_pipelines.py",
        at("queue_age_minutes", "MEDIUM", 5),
        at("queue_age_minutes", "HIGH", 15),
    ),
    rule(
        "no_worker",
        "no worker serves pool {subject}; {ready} runs wait, the next for {value}",
        "penstock worker --pool {subject} --pipelines my_pipelines.py",
        at("unserved_minutes", "HIGH", 1),
        at("unserved_minutes", "CRITICAL", 5),
    ),
    rule(
        "config_overdue",
        "the scheduler is {value} late; it may not be running",
        "penstock scheduler",
        at("overdue_minutes", "HIGH", 2),
        at("overdue_minutes", "CRITICAL", 10),
    ),
    rule(
        "stale_executions",
        "{value} runs have exceeded their maximum execution time",
        "penstock runs list --state RUNNING",
        at("overtime_runs", "CRITICAL", 10),
    ),
    rule(
        "cancellation_ignored",
        "runs that have ignored a request to stop for 5 minutes: {value}",
        "penstock runs list --state RUNNING",
        at("unstoppable_runs", "HIGH", 1),
    ),
    rule(
        "failure_rate",
        "{value} of {runs} attempts of runs that ended since {since} failed",
        "penstock runs list --state FAILED --ended-since 2h",
        at("failure_percent", "HIGH", 5),
    ),
    rule(
        "sla_breaches",
        "{value} runs missed their SLA since midnight UTC",
        "penstock runs list --sla-breached",
        at("sla_breaches_today", "MEDIUM", 10),
    ),
    rule(
        "permission_errors",
        "{value} failures in 10 minutes at {subject} for lack of permission; the last: {error}",
        "penstock dlq groups",
        at("permission_errors", "CRITICAL", 1),
    ),
    rule(
        "anomaly",
        "{text}",
        "penstock anomalies --open",
        at("anomalous_executions", "MEDIUM", 1),
    ),
    rule(
        "zero_records",
        "{text}",
        "penstock anomalies --open --measure records",
        at("empty_executions", "HIGH", 1),
    ),
)
"""The rules, in the order of the documentation."""
