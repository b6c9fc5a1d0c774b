"""Rules about flows, their data, and service levels. Pure."""

from __future__ import annotations

from typing import Final

from penstock.alerts.built_in.rule import at, rule
from penstock.alerts.measures import LOW_QUALITY_PERCENT

RULES: Final = (
    rule(
        "overrides",
        "{value} overrides were granted in 24 hours",
        "penstock override list",
        at("overrides_per_day", "MEDIUM", 6),
    ),
    rule(
        "override_repeated",
        "overrides were granted for {subject} on {value} days in a row",
        "penstock override list",
        at("override_days", "MEDIUM", 3),
    ),
    rule(
        "low_quality",
        "{phase} of {subject} {partition} ended with a quality of {quality}{of_many}",
        "penstock explain {subject} {partition} --customer {customer}",
        at("quality_loss_percent", "MEDIUM", LOW_QUALITY_PERCENT),
    ),
    rule(
        "slo_missed",
        "{value} flows of {subject} ({mode}) exceeded their service level, the first {partition} "
        "by {late}",
        "penstock slo breaches --pipeline {subject}",
        at("late_flows", "MEDIUM", 1),
    ),
    rule(
        "slo_burn_rate",
        "{subject} {level} uses its error budget {value} times too fast: {missed} of {results} "
        "missed in six hours",
        "penstock slo show {subject}",
        at("burn_rate", "MEDIUM", 6),
        at("burn_rate", "HIGH", 14.4),
    ),
    rule(
        "slo_budget_spent",
        "{subject} {level} has used {value} of its error budget: {missed} of {results} missed",
        "penstock slo show {subject}",
        at("budget_spent_percent", "MEDIUM", 100),
    ),
    rule(
        "cascade_success",
        "the cascade did not start {value} of {results} phases of {subject} in 24 hours",
        "penstock slo show {subject} --measure cascade",
        at("cascade_miss_percent", "MEDIUM", 5.01),
        at("cascade_miss_percent", "CRITICAL", 20.01),
    ),
    rule(
        "duplicate_triggers",
        "{value} flows of {subject} started a phase more than once",
        "penstock slo show {subject} --measure duplicate_triggers",
        at("duplicate_triggers", "CRITICAL", 1),
    ),
    rule(
        "historical_failures",
        "{failures} of {checks} checks of history for {subject} failed in 6 hours",
        "penstock gate history {subject}",
        at("historical_failures", "MEDIUM", 11),
        at("historical_failure_percent", "MEDIUM", 10),
    ),
    rule(
        "dependency_failing",
        "checks of {table} for {subject} failed {value} times in 7 days",
        "penstock gate history {subject}",
        at("dependency_failures_per_week", "MEDIUM", 101),
    ),
    rule(
        "phase_duration",
        "{phase} of {subject} takes {value} on average (of {results} in 24 hours)",
        "penstock slo show {subject}",
        at("phase_mean_minutes", "INFO", 10.01),
    ),
    rule(
        "flow_duration",
        "flows of {subject} ({mode}) take {value} on average (of {results} in 24 hours)",
        "penstock slo show {subject}",
        at("flow_mean_minutes", "INFO", 30.01),
    ),
)
"""The rules, in the order of the documentation."""
