"""The rules that open alerts from measurements, and their evaluation.

Pure. A rule compares a metric with a threshold for each severity; every subject that exceeds one
(a pool, a subscription, the system) has one alert, whose key is the rule and the subject. It opens
once the condition has held for the rule's time, takes the worst severity that applies, and is
resolved when no condition holds. Settings change thresholds, disable rules and add others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.alerts.declared import AlertSettings, RuleSpec, parse_alerts
from penstock.alerts.measures import METRICS, Measurement, shown_value
from penstock.alerts.severity import SEVERITIES, rank
from penstock.core.clock import MINUTE, Micros, format_duration
from penstock.core.errors import SettingsError
from penstock.egress.policy import EgressRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A metric at or above a threshold, for a time."""

    metric: str
    severity: str
    threshold: float
    hold_us: Micros = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule over measurements.

    `message` and `command` may name `{subject}`, `{value}` and the facts of a measurement.
    """

    name: str
    conditions: tuple[Condition, ...]
    message: str
    command: str
    source: str = "built in"

    def words(self) -> str:
        """Return the condition in words."""
        return "; ".join(_words(one) for one in self.conditions)


def _rule(name: str, message: str, command: str, *conditions: Condition) -> Rule:
    return Rule(name=name, conditions=conditions, message=message, command=command)


def _at(metric: str, severity: str, threshold: float, hold: Micros = 0) -> Condition:
    return Condition(metric=metric, severity=severity, threshold=threshold, hold_us=hold)


BUILT_IN: Final = (
    _rule(
        "dead_letters",
        "dead letters at {subject}: {count} open, {recent} in the last 10 minutes",
        "penstock dlq groups",
        _at("dead_letter_age_minutes", "MEDIUM", 5),
        _at("dead_letter_age_minutes", "CRITICAL", 15),
        _at("recent_dead_letters", "CRITICAL", 11),
    ),
    _rule(
        "ready_runs",
        "{value} runs of pool {subject} wait for a worker",
        "penstock status",
        _at("ready_runs", "HIGH", 500, MINUTE),
    ),
    _rule(
        "queue_age",
        "the next run of pool {subject} has waited for {value}",
        "penstock status",
        _at("queue_age_minutes", "MEDIUM", 5),
        _at("queue_age_minutes", "HIGH", 15),
    ),
    _rule(
        "no_worker",
        "no worker serves pool {subject}; {ready} runs wait, the next for {value}",
        "penstock worker --pool {subject} --pipelines my_pipelines.py",
        _at("unserved_minutes", "HIGH", 1),
        _at("unserved_minutes", "CRITICAL", 5),
    ),
    _rule(
        "config_overdue",
        "the scheduler is {value} late; no scheduler may be running",
        "penstock doctor",
        _at("overdue_minutes", "HIGH", 2),
        _at("overdue_minutes", "CRITICAL", 10),
    ),
    _rule(
        "stale_executions",
        "{value} runs have exceeded their maximum execution time",
        "penstock runs list --state RUNNING",
        _at("overtime_runs", "CRITICAL", 10),
    ),
    _rule(
        "cancellation_ignored",
        "runs that have ignored a request to stop for 5 minutes: {value}",
        "penstock runs list --state RUNNING",
        _at("unstoppable_runs", "HIGH", 1),
    ),
    _rule(
        "failure_rate",
        "{value} of {runs} runs that ended since {since} failed",
        "penstock dlq groups",
        _at("failure_percent", "HIGH", 5),
    ),
    _rule(
        "sla_breaches",
        "{value} runs missed their SLA since midnight UTC",
        "penstock runs list --sla-breached",
        _at("sla_breaches_today", "MEDIUM", 10),
    ),
    _rule(
        "nack_rate",
        "{value} of {deliveries} results at subscription {subject} since {since} are nacks",
        "penstock subscriptions show {subject}",
        _at("nack_percent", "MEDIUM", 10),
        _at("nack_percent", "CRITICAL", 25),
    ),
    _rule(
        "oldest_unacked",
        "the oldest message of subscription {subject} has waited for {value}",
        "penstock why {subject}",
        _at("unacked_minutes", "MEDIUM", 5),
        _at("unacked_minutes", "CRITICAL", 15),
    ),
    _rule(
        "outbox_backlog",
        "{count} messages wait in the outbox, the oldest for {value}",
        "penstock doctor",
        _at("outbox_age_minutes", "HIGH", 2),
    ),
    _rule(
        "overrides",
        "{value} overrides were granted in 24 hours",
        "penstock override list",
        _at("overrides_per_day", "MEDIUM", 6),
    ),
    _rule(
        "quota_errors",
        "limit {subject} got a quota error {ago} ago",
        "penstock limits show {subject}",
        _at("quota_errors", "MEDIUM", 1),
    ),
    _rule(
        "disk_nearly_full",
        "the disk of the database is {value} full",
        "penstock doctor",
        _at("disk_used_percent", "HIGH", 90),
        _at("disk_used_percent", "CRITICAL", 95),
    ),
    _rule(
        "clock_stepped",
        "recorded times are {value} ahead of the clock of the database",
        "penstock doctor",
        _at("clock_lead_seconds", "HIGH", 5),
    ),
    _rule(
        "database_unreachable",
        "the database was unreachable for {value}, until {since}",
        "penstock doctor",
        _at("database_gap_seconds", "HIGH", 60),
    ),
)
"""The rules over measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A rule whose condition holds for a subject."""

    rule: Rule
    measurement: Measurement
    severity: str
    threshold: str
    dedupe_key: str

    def message(self) -> str:
        """Return the condition with its values, in one sentence."""
        return _filled(self.rule.message, self.measurement)

    def command(self) -> str:
        """Return the command that shows or repairs the cause."""
        return _filled(self.rule.command, self.measurement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What an evaluation found."""

    firing: Mapping[str, Firing] = field(default_factory=dict)
    """By the key of the alert."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Rule of every condition that holds, also of those that have not held for long enough."""


def evaluate(
    rules: Sequence[Rule],
    measurements: Sequence[Measurement],
    since: Mapping[str, Micros],
    now: Micros,
) -> Evaluation:
    """Compare measurements with rules; `since` has when each condition began to hold."""
    firing: dict[str, Firing] = {}
    held: dict[str, str] = {}
    by_metric: dict[str, list[Measurement]] = {}
    for one in measurements:
        by_metric.setdefault(one.metric, []).append(one)
    for rule in rules:
        for condition in rule.conditions:
            for one in by_metric.get(condition.metric, ()):
                if one.value < condition.threshold:
                    continue
                key = f"{rule.name}:{one.subject_kind}:{one.subject}"
                state = f"{key}:{condition.metric}:{condition.severity}"
                held[state] = rule.name
                if now - since.get(state, now) < condition.hold_us:
                    continue
                worst = firing.get(key)
                if worst is None or rank(condition.severity) > rank(worst.severity):
                    firing[key] = Firing(
                        rule=rule,
                        measurement=one,
                        severity=condition.severity,
                        threshold=_words(condition),
                        dedupe_key=key,
                    )
    return Evaluation(firing=firing, held=held)


def rules_of(settings: AlertSettings) -> tuple[Rule, ...]:
    """Return the rules in force: built-in ones as the settings change them, and the user's own."""
    known = {rule.name: rule for rule in BUILT_IN}
    for name, spec in settings.rules.items():
        if spec.metric is None and name not in known:
            built_in = ", ".join(sorted(known))
            raise SettingsError(
                f"alerts.rules.{name}", f"a built-in rule ({built_in}), or a metric", name
            )
        if not spec.enabled:
            known.pop(name, None)
        elif spec.metric is None:
            known[name] = _changed(known[name], spec)
        else:
            known[name] = _own(name, spec)
    return tuple(known[name] for name in sorted(known))


def check_alerts(table: object, egress: EgressRules) -> None:
    """Check the setting `alerts` with the rules that it changes; raise SettingsError."""
    rules_of(parse_alerts(table, egress))


def _changed(rule: Rule, spec: RuleSpec) -> Rule:
    """Return a built-in rule with other thresholds, times or texts."""
    given, hold = spec.thresholds(), spec.hold_us()
    conditions = [
        replace(
            one,
            threshold=given.get(one.severity, one.threshold),
            hold_us=one.hold_us if hold is None else hold,
        )
        for one in rule.conditions
    ]
    metric = rule.conditions[0].metric
    present = {one.severity for one in conditions}
    conditions += [
        Condition(metric=metric, severity=severity, threshold=value, hold_us=hold or 0)
        for severity, value in given.items()
        if severity not in present
    ]
    return replace(
        rule,
        conditions=tuple(conditions),
        message=spec.message or rule.message,
        command=spec.command or rule.command,
        source="settings",
    )


def _own(name: str, spec: RuleSpec) -> Rule:
    metric = spec.metric
    if metric is None or metric not in METRICS:
        known = ", ".join(sorted(METRICS))
        raise SettingsError(f"alerts.rules.{name}.metric", f"one of {known}", spec.metric)
    conditions = [
        Condition(
            metric=metric,
            severity=severity,
            threshold=value,
            hold_us=spec.hold_us() or 0,
        )
        for severity, value in spec.thresholds().items()
    ]
    return Rule(
        name=name,
        conditions=tuple(sorted(conditions, key=lambda one: SEVERITIES.index(one.severity))),
        message=spec.message or f"{METRICS[metric].words} of {{subject}}: {{value}}",
        command=spec.command or "penstock status",
        source="settings",
    )


def _words(one: Condition) -> str:
    metric = METRICS[one.metric]
    hold = f" for {format_duration(one.hold_us)}" if one.hold_us else ""
    value = shown_value(one.metric, one.threshold)
    return f"{one.severity} if {metric.words} is at least {value}{hold}"


def _filled(text: str, measurement: Measurement) -> str:
    """Fill the names of a text; an unknown name stays as it is."""
    values = {
        **measurement.facts,
        "subject": measurement.name,
        "value": shown_value(measurement.metric, measurement.value),
    }
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
