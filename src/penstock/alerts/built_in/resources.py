"""Rules about limits, gates, the disk, the clock and the database. Pure."""

from __future__ import annotations

from typing import Final

from penstock.alerts.built_in.rule import at, rule

RULES: Final = (
    rule(
        "quota_errors",
        "limit {subject} got a quota error {ago} ago",
        "penstock limits show {subject}",
        at("quota_errors", "MEDIUM", 1),
    ),
    rule(
        "disk_nearly_full",
        "the database disk is {value} full",
        "penstock doctor",
        at("disk_used_percent", "HIGH", 90),
        at("disk_used_percent", "CRITICAL", 95),
    ),
    rule(
        "clock_stepped",
        "recorded times are {value} ahead of the database clock",
        "penstock db clip-times",
        at("clock_lead_seconds", "HIGH", 5),
    ),
    rule(
        "database_unreachable",
        "the database was unreachable for {value}, until {since}",
        "penstock doctor",
        at("database_gap_seconds", "HIGH", 60),
    ),
    rule(
        "limit_wait",
        "requests for limit {subject} wait {value} (95th percentile of {waiting})",
        "penstock limits show {subject}",
        at("limit_wait_minutes", "MEDIUM", 10),
        at("limit_wait_minutes", "HIGH", 30),
    ),
    rule(
        "gate_check_slow",
        "gate checks take {value} (95th percentile of {checks} in 10 minutes)",
        "penstock doctor",
        at("gate_check_seconds", "MEDIUM", 31),
    ),
    rule(
        "budget_used",
        "{subject} has used {value} of its budget: {used} of {amount} per {period}",
        "penstock budgets list",
        at("budget_used_percent", "MEDIUM", 1),
        at("budget_used_percent", "HIGH", 100),
    ),
    rule(
        "budget_stop",
        "runs of {subject} are held back: {used} of {amount} per {period} are used up",
        "penstock budgets lift {scope} {owner} --per {period}",
        at("budget_stops", "HIGH", 1),
    ),
    rule(
        "audit_backlog",
        "the audit sink {subject} lacks {entries} entries, the oldest for {value}; error: {error}",
        "penstock sink ship",
        at("audit_backlog_minutes", "MEDIUM", 30),
        at("audit_backlog_minutes", "HIGH", 120),
    ),
)
"""The rules, in the order of the documentation."""
