"""All alert rules with their conditions in plain language: rules over measurements, event rules.

Pure. An event rule is a condition that other code detects and reports with `alert_open`; it is
listed here so that it is documented before it fires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.alerts.built_in.rule import Rule
from penstock.alerts.records import AlertRule
from penstock.alerts.rules import BUILT_IN
from penstock.alerts.severity import SEVERITIES
from penstock.core.records.record import time_or_none

DAYS: Final = 8
RUNBOOK: Final = "docs/operations/alerts.md"


class EventRule(NamedTuple):
    """A rule whose alerts other code opens."""

    words: str
    severities: tuple[str, ...]


EVENT_RULES: Final[Mapping[str, EventRule]] = {
    "alert_channel_failing": EventRule("a channel failed three times in a row", ("HIGH",)),
    "alert_rule_failing": EventRule("the function of an alert rule raises", ("MEDIUM",)),
    "audit_sink_failing": EventRule("the audit sink does not accept rows", ("HIGH",)),
    "backfill_failed": EventRule("partitions of a backfill failed", ("MEDIUM",)),
    "backfill_paused": EventRule("too many partitions of a backfill failed", ("MEDIUM",)),
    "backfill_stuck": EventRule("a backfill cannot continue", ("MEDIUM",)),
    "breaker_open": EventRule("failures opened a breaker", ("HIGH",)),
    "cadence_unplannable": EventRule("the schedule of a config has no next time", ("HIGH",)),
    "cascade_fallback": EventRule("a phase was due by its fallback time", ("MEDIUM", "HIGH")),
    "common_cause": EventRule("many configs fail with the same error", ("HIGH",)),
    "config_disabled": EventRule("five failed starts in a row disabled a config", ("HIGH",)),
    "config_failing": EventRule("three starts of a config in a row failed", ("MEDIUM",)),
    "config_unstartable": EventRule("an occurrence of a config cannot be started", ("HIGH",)),
    "consumer_misconfigured": EventRule("a consumer rejects every message", ("CRITICAL",)),
    "dead_letter_topic_missing": EventRule("a dead letter has no topic to go to", ("CRITICAL",)),
    "deadline_risk": EventRule("a flow will probably miss its deadline", ("MEDIUM", "HIGH")),
    "delivery_stuck": EventRule("a delivery cannot be swept", ("HIGH",)),
    "dependency_blocking": EventRule("a table has blocked processors for hours", ("CRITICAL",)),
    "dependency_late": EventRule("a table often arrives late, or never", ("MEDIUM", "HIGH")),
    "dependency_missing": EventRule("a table has been missing for hours", ("MEDIUM", "CRITICAL")),
    "event_unfitting": EventRule("a message does not match its config", ("HIGH",)),
    "expansion_failed": EventRule("the items of a processor cannot be listed", ("HIGH",)),
    "flow_failed": EventRule("a flow did not end by its deadline", ("HIGH",)),
    "flow_stalled": EventRule("an open flow makes no progress", ("HIGH",)),
    "flow_stuck": EventRule("a flow cannot be evaluated", ("HIGH",)),
    "gate_cycle": EventRule("gates wait for each other", ("CRITICAL",)),
    "gate_fail": EventRule("a gate refuses to start a phase", SEVERITIES[1:]),
    "gate_proceed_degraded": EventRule("a phase starts without all data", SEVERITIES),
    "gate_wait": EventRule("a gate waits for data", SEVERITIES),
    "items_without_code": EventRule("no process has the code that lists items", ("HIGH",)),
    "monitor_stopped": EventRule("no process has evaluated the rules for a minute", ("CRITICAL",)),
    "needs_unowned": EventRule("needs count the rows of all customers", ("HIGH",)),
    "optional_missing": EventRule("an optional table is often missing", ("MEDIUM",)),
    "outbox_unpublishable": EventRule("a message cannot be published", ("HIGH",)),
    "output_missing": EventRule("a phase did not produce what it declares", ("MEDIUM", "HIGH")),
    "phase_incomplete": EventRule("a phase ended without some of its processors", ("HIGH",)),
    "phase_stuck": EventRule("a phase has been in progress for too long", ("CRITICAL",)),
    "phase_untriggered": EventRule("a phase is ready and was not started", ("HIGH",)),
    "producer_silent": EventRule("a processor has not reported at its usual hour", ("HIGH",)),
    "push_failing": EventRule("the endpoint of a push subscription keeps failing", ("HIGH",)),
    "push_gone": EventRule("an endpoint responded 410 Gone", ("HIGH",)),
    "push_misconfigured": EventRule("a push request cannot be made", ("CRITICAL",)),
    "run_stuck": EventRule("a run cannot be swept", ("HIGH",)),
    "runs_expired": EventRule("runs expired before they were started", ("HIGH",)),
    "runs_stale": EventRule("runs of a processor have stopped reporting", ("HIGH", "CRITICAL")),
    "self_heal": EventRule("self-heal evaluated an overdue phase", ("INFO",)),
    "table_stale": EventRule("a table is older than its freshness policy", ("HIGH",)),
}
"""Rules of other code, by name."""

_DOCUMENTED: Final = frozenset(EVENT_RULES) | {rule.name for rule in BUILT_IN}


def runbook_of(rule: str) -> str | None:
    """Return the documentation section about a rule."""
    return f"{RUNBOOK}#{rule}" if rule in _DOCUMENTED else None


class Fired(NamedTuple):
    """How often a rule has fired, and when it last did."""

    last_at: int | None
    opened: int
    days: tuple[int, ...]


NEVER: Final = Fired(None, 0, (0,) * DAYS)


def declared_rows(rules: tuple[Rule, ...]) -> list[tuple[str, str, list[str], str]]:
    """Return name, condition, severities and source of rules, as they are stored."""
    return [(rule.name, rule.words(), _severities(rule), rule.source) for rule in rules]


def rule_records(
    declared: Mapping[str, tuple[str, list[str], str]], fired: Mapping[str, Fired]
) -> list[AlertRule]:
    """Return all rules by name.

    declared: condition, severities and source, as running processes stored them; the built-in
    rules if it is empty.
    """
    known = dict(declared) or {row[0]: row[1:] for row in declared_rows(BUILT_IN)}
    for name, rule in EVENT_RULES.items():
        known.setdefault(name, (rule.words, list(rule.severities), "event"))
    for name in fired:
        known.setdefault(name, ("see the message of its alerts", [], "event"))
    return [_record(name, *known[name], fired.get(name, NEVER)) for name in sorted(known)]


def _record(
    name: str, condition: str, severities: list[str], source: str, fired: Fired
) -> AlertRule:
    state = "firing" if fired.opened else "ok"
    return AlertRule(
        rule=name,
        condition=condition,
        severities=severities,
        source=source,
        state="disabled" if source == "disabled" else state,
        open_alerts=fired.opened,
        last_fired_at=time_or_none(fired.last_at),
        fired_per_day=list(fired.days),
        runbook=runbook_of(name),
    )


def _severities(rule: Rule) -> list[str]:
    present = {one.severity for one in rule.conditions}
    return [severity for severity in SEVERITIES if severity in present]
