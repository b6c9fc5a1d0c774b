"""The rules that open alerts from measurements, and their evaluation.

Pure. A rule compares a metric with a threshold for each severity; every subject that exceeds one
(a pool, a subscription, the system) has one alert, whose key is the rule and the subject. It opens
once the condition has held for the rule's time, takes the worst severity that applies, and is
resolved when no condition holds. Settings change thresholds, disable rules and add others.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.alerts.built_in import data, delivery, resources, work
from penstock.alerts.built_in.rule import Condition, Rule
from penstock.alerts.declared import AlertSettings, RuleSpec, parse_alerts
from penstock.alerts.measures import CUSTOM, METRICS, Measurement, shown_value
from penstock.alerts.severity import SEVERITIES, rank
from penstock.core.clock import Micros
from penstock.core.errors import SettingsError
from penstock.egress.policy import EgressRules

BUILT_IN: Final = (*work.RULES, *delivery.RULES, *data.RULES, *resources.RULES)
"""The rules over measurements."""
_PLACEHOLDER: Final = re.compile(r"(['\"]?)\{(\w+)\}\1")
"""A placeholder, with the quotes that a command has around it."""


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
        fix = None if self.rule.has_own_command else self.measurement.fix
        return fix or _filled(self.rule.command, self.measurement, is_command=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What an evaluation found."""

    firing: Mapping[str, Firing] = field(default_factory=dict)
    """Rules that fire, by the key of the alert."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Rule of every condition that holds, including those that have not held for long enough."""


def evaluate(
    rules: Sequence[Rule],
    measurements: Sequence[Measurement],
    since: Mapping[str, Micros],
    now: Micros,
) -> Evaluation:
    """Compare measurements with rules; `since` is when each condition began to hold."""
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
                key = f"{rule.name}:{one.subject_kind}:{one.subject}{one.key and ':' + one.key}"
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
                        threshold=condition.words(),
                        dedupe_key=key,
                    )
    return Evaluation(firing=firing, held=held)


def alert_key(condition: str) -> str:
    """Return the key of the alert that a condition, named by its own key, belongs to."""
    return condition.rsplit(":", 2)[0]


def is_in_python(condition: str) -> bool:
    """Return whether a condition, named by its key, is one of a rule in Python."""
    return condition.split(":")[-2:-1] == [CUSTOM]


def rules_of(settings: AlertSettings) -> tuple[Rule, ...]:
    """Return the rules in force: built-in ones with the changes of the settings, and user-defined
    ones.
    """
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
        has_own_command=bool(spec.command),
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
        has_own_command=bool(spec.command),
        source="settings",
    )


def _filled(text: str, measurement: Measurement, *, is_command: bool = False) -> str:
    """Substitute the placeholders of a text; an unknown one stays unchanged.

    Values may be free text of customers: in a command each is quoted for the shell.
    """
    values = {
        **measurement.facts,
        "subject": measurement.name,
        "value": shown_value(measurement.metric, measurement.value),
    }

    def value_of(found: re.Match[str]) -> str:
        mark, name = found.groups()
        if name not in values:
            return found[0]
        given = str(values[name])
        return shlex.quote(given) if is_command else f"{mark}{given}{mark}"

    return _PLACEHOLDER.sub(value_of, text)
