"""Rules about dead letters, messages and requests. Pure."""

from __future__ import annotations

from typing import Final

from penstock.alerts.built_in.rule import at, rule
from penstock.core.clock import MINUTE

RULES: Final = (
    rule(
        "dead_letters",
        "dead letters at {subject}: {more}{count} open, {recent} in the last 10 minutes",
        "penstock dlq groups",
        at("dead_letter_age_minutes", "MEDIUM", 5),
        at("dead_letter_age_minutes", "CRITICAL", 15),
        at("recent_dead_letters", "CRITICAL", 11),
    ),
    rule(
        "nack_rate",
        "{value} of {deliveries} results at subscription {subject} since {since} are nacks",
        "penstock subscriptions show {subject}",
        at("nack_percent", "MEDIUM", 10),
        at("nack_percent", "CRITICAL", 25),
    ),
    rule(
        "oldest_unacked",
        "the oldest message of subscription {subject} has waited for {value}",
        "penstock why {subject}",
        at("unacked_minutes", "MEDIUM", 5),
        at("unacked_minutes", "CRITICAL", 15),
    ),
    rule(
        "outbox_backlog",
        "{count} messages wait in the outbox, the oldest for {value}",
        "penstock doctor",
        at("outbox_age_minutes", "HIGH", 2),
    ),
    rule(
        "dead_letter_growth",
        "dead letters at {subject} are growing: {died} new and {resolved} resolved in 10 minutes",
        "penstock dlq groups",
        at("dead_letter_growth", "CRITICAL", 1, 30 * MINUTE),
    ),
    rule(
        "backlog_growing",
        "the backlog of subscription {subject} has grown for {value}, to {backlog} messages",
        "penstock why {subject}",
        at("backlog_growth_minutes", "MEDIUM", 15),
        at("backlog_growth_minutes", "CRITICAL", 30),
    ),
    rule(
        "sink_errors",
        "{value} deliveries of subscription {subject} failed in the last minute: {error}",
        "penstock why {subject}",
        at("failed_deliveries_per_minute", "MEDIUM", 5, 10 * MINUTE),
        at("failed_deliveries_per_minute", "CRITICAL", 20, 10 * MINUTE),
    ),
    rule(
        "api_errors",
        "{errors} of {requests} requests to the API failed with 5xx in 5 minutes",
        "penstock doctor",
        at("http_5xx_percent", "MEDIUM", 1),
        at("http_5xx_percent", "CRITICAL", 5),
        at("http_5xx", "CRITICAL", 1, 15 * MINUTE),
    ),
    rule(
        "api_rejections",
        "{errors} of {requests} requests to the API were rejected in 10 minutes, most often {most}",
        "penstock keys list --all",
        at("http_4xx_percent", "MEDIUM", 0.1),
        at("http_4xx_percent", "CRITICAL", 1),
    ),
)
"""The rules, in the order of the documentation."""
