"""Health of customers and the reasons for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.core.clock import SECOND, format_duration
from penstock.monitoring.records import HealthWord
from penstock.runs.attempt_result import FAILURES_ALERT

RANKS: Final[Mapping[HealthWord, int]] = {
    "off": 0, "failing": 1, "at_risk": 2, "slow": 3, "paused": 4, "well": 9,
}  # fmt: skip
"""Stored rank of each state of health, worst first; 9 is the default of the column."""


class LongExecution(NamedTuple):
    """A processor whose newest execution took longer than those before; times in seconds."""

    name: str
    took: float
    usual_most: float


class CustomerFacts(NamedTuple):
    """The facts that determine the health of a customer (statement `customer_facts`)."""

    customer_key: int
    configs: int
    active: int
    switched_off: int
    failures: int
    next_run_time: int | None
    inactive_reason: str | None
    dead_letters: int
    is_paused: bool
    slow: LongExecution | None = None


def health_of(facts: CustomerFacts) -> tuple[HealthWord, str]:
    """Return the health of a customer and the reason; the reason is empty if it is well."""
    if facts.is_paused:
        return "paused", "a pause holds all its configs"
    if facts.switched_off and facts.switched_off == facts.configs:
        return "off", facts.inactive_reason or "its configs were switched off"
    if facts.failures >= FAILURES_ALERT:
        return "failing", f"a config failed {facts.failures} times in a row"
    if facts.switched_off:
        one = "a config was" if facts.switched_off == 1 else f"{facts.switched_off} configs were"
        return "failing", f"{one} switched off"
    if facts.failures:
        times = "once" if facts.failures == 1 else f"{facts.failures} times"
        return "at_risk", f"the last run of a config failed {times}"
    if facts.dead_letters:
        kept = "a dead letter is" if facts.dead_letters == 1 else "dead letters are"
        return "at_risk", f"{kept} open"
    if facts.slow is not None:
        took, most = (_rounded(value) for value in (facts.slow.took, facts.slow.usual_most))
        return "slow", f"{facts.slow.name} took {took}, usually at most {most}"
    return "well", ""


def _rounded(seconds: float) -> str:
    """Return a duration in words, without fractions of a second from ten seconds on."""
    whole = round(seconds) if seconds >= 10 else round(seconds, 1)
    return format_duration(round(whole * SECOND))
