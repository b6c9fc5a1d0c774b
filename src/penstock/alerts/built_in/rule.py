"""A rule over measurements: conditions, message and command. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.alerts.measures import METRICS, shown_value
from penstock.core.clock import Micros, format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition that holds once a metric has been at or above a threshold for long enough."""

    metric: str
    severity: str
    threshold: float
    hold_us: Micros = 0

    def words(self) -> str:
        """Return the condition in plain language."""
        hold = f" for {format_duration(self.hold_us)}" if self.hold_us else ""
        value = shown_value(self.metric, self.threshold)
        return f"{self.severity}: {METRICS[self.metric].words} ≥ {value}{hold}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule over measurements.

    `message` and `command` may name `{subject}`, `{value}` and the facts of a measurement. A
    measurement may have a command that fixes its subject; it comes first unless `has_own_command`.
    """

    name: str
    conditions: tuple[Condition, ...]
    message: str
    command: str
    has_own_command: bool = False
    source: str = "built in"

    def words(self) -> str:
        """Return the condition in plain language."""
        return "; ".join(one.words() for one in self.conditions)


def rule(name: str, message: str, command: str, *conditions: Condition) -> Rule:
    """Return a built-in rule."""
    return Rule(name=name, conditions=conditions, message=message, command=command)


def at(metric: str, severity: str, threshold: float, hold: Micros = 0) -> Condition:
    """Return a condition of a rule."""
    return Condition(metric=metric, severity=severity, threshold=threshold, hold_us=hold)
