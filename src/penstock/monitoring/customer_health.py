"""Health of customers: who is in trouble, and why. The rules are pure; the reads are bounded."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.monitoring.records import HealthWord

FAILING: Final = 3
"""Failures in a row from which on a config fails instead of being at risk."""


class CustomerFacts(NamedTuple):
    """What the health of a customer is derived from (statement `customer_facts`)."""

    customer_key: int
    configs: int
    active: int
    switched_off: int
    failures: int
    next_run_time: int | None
    inactive_reason: str | None
    dead_letters: int
    running: int
    is_paused: bool


def health_of(facts: CustomerFacts) -> tuple[HealthWord, str]:
    """Return the health of a customer and its reason in words; empty if it is well."""
    if facts.is_paused:
        return "paused", "its pause holds all configs"
    if facts.switched_off and facts.switched_off == facts.configs:
        return "off", facts.inactive_reason or "its configs were switched off"
    if facts.failures >= FAILING:
        return "failing", f"a config failed {facts.failures} times in a row"
    if facts.switched_off:
        one = "a config was" if facts.switched_off == 1 else f"{facts.switched_off} configs were"
        return "failing", f"{one} switched off"
    if facts.failures:
        times = "once" if facts.failures == 1 else f"{facts.failures} times"
        return "at_risk", f"the last run of a config failed {times}"
    if facts.dead_letters:
        kept = "a dead letter is" if facts.dead_letters == 1 else "dead letters are"
        return "at_risk", f"{kept} kept"
    return "well", ""
