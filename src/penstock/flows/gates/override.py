"""Overrides: a person's dated, expiring approval to proceed without a dependency.

An override says who approved what for which partition, and until when; it never satisfies a
dependency that is declared `fail_if_missing`, and whatever it lets through is degraded. The client
grants and revokes them, the orchestrator hands the ones in scope to `core.gate`. No clock here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.core.clock import DAY, Micros, format_duration, iso, parse_duration
from penstock.core.errors import InvalidInput
from penstock.flows.gates.evidence import Assessment

OVERRIDE_MAX: Final = 7 * DAY
REASON_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """An approval; phase, processor and dependency None mean all of them."""

    id: str
    customer: str
    pipeline: str
    partition: str
    reason: str
    approved_by: str
    approved_at: Micros
    expires_at: Micros
    phase: str | None = None
    processor: str | None = None
    dependency: str | None = None
    """A table, or a dependency's key such as `historical:nba_analytics.summary`."""
    source: str = ""
    notes: str = ""

    def is_live(self, now: Micros) -> bool:
        """Whether it counts at this moment."""
        return self.approved_at <= now < self.expires_at

    def is_about(self, customer: str, pipeline: str, partition: str, phase: str) -> bool:
        """Whether it was given for this gate; without a phase it is about all of them."""
        return (
            (self.customer, self.pipeline, self.partition) == (customer, pipeline, partition)
            and self.phase in (None, phase)
        )  # fmt: skip

    def names(self, assessment: Assessment) -> bool:
        """Whether it was given for this dependency."""
        return self.dependency in (None, assessment.table, assessment.key)


def override_check(override: Override, now: Micros) -> Override:
    """Return the override if it may be granted now; InvalidInput names what is wrong."""
    for field in ("customer", "pipeline", "partition", "approved_by"):
        if not getattr(override, field).strip():
            raise InvalidInput(field, "a name", getattr(override, field))
    if not override.reason.strip() or len(override.reason) > REASON_MAX:
        expected = f"why it is right to proceed, in at most {REASON_MAX} characters"
        raise InvalidInput("reason", expected, override.reason)
    if not now < override.expires_at <= now + OVERRIDE_MAX:
        raise InvalidInput(
            "expires_at",
            f"a time in the future, at most {format_duration(OVERRIDE_MAX)} ahead",
            iso(override.expires_at),
        )
    return override


def lasting(text: str, field: str = "expires") -> Micros:
    """Return how long an approval is to last; InvalidInput when that is too long."""
    lasts = parse_duration(text, field)
    if not 0 < lasts <= OVERRIDE_MAX:
        raise InvalidInput(field, f"a duration of at most {format_duration(OVERRIDE_MAX)}", text)
    return lasts


def covering(
    assessment: Assessment, overrides: Iterable[Override], now: Micros
) -> tuple[Override, ...]:
    """Return the live overrides that together satisfy a dependency; none when they do not.

    Where several processors need it, each of them must be covered: an approval for one is no
    approval for its neighbours.
    """
    if assessment.fail_if_missing:
        return ()
    live = [given for given in overrides if given.is_live(now) and given.names(assessment)]
    whole = next((given for given in live if given.processor is None), None)
    if whole is not None:
        return (whole,)
    if not assessment.needed_by:
        return tuple(live[:1])
    found = {given.processor: given for given in reversed(live)}
    if all(name in found for name in assessment.needed_by):
        return tuple(found[name] for name in assessment.needed_by)
    return ()
