"""Overrides: a person's approval, with an expiry, to proceed without a dependency.

An override records its approver, subject, partition and expiry. It never satisfies a
dependency declared `fail_if_missing`, and a start that it permits is degraded. The client grants
and revokes overrides; the orchestrator passes the ones in scope to `flows.gates.gate`. Nothing here
reads a clock.
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
    """An approval. None as phase, processor or dependency means all of them."""

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
        """Return whether it is in force at `now`."""
        return self.approved_at <= now < self.expires_at

    def applies_to_gate(self, customer: str, pipeline: str, partition: str, phase: str) -> bool:
        """Return whether it applies to this gate; without a phase it applies to all of them."""
        return (
            (self.customer, self.pipeline, self.partition) == (customer, pipeline, partition)
            and self.phase in (None, phase)
        )  # fmt: skip

    def applies_to(self, assessment: Assessment) -> bool:
        """Return whether it applies to this dependency."""
        return self.dependency in (None, assessment.table, assessment.key)


def check_override(override: Override, now: Micros) -> Override:
    """Return the override if it may be granted now. Raise InvalidInput otherwise."""
    for field in ("customer", "pipeline", "partition", "approved_by"):
        if not getattr(override, field).strip():
            raise InvalidInput(field, "a name", getattr(override, field))
    if not override.reason.strip() or len(override.reason) > REASON_MAX:
        expected = f"a justification of at most {REASON_MAX} characters"
        raise InvalidInput("reason", expected, override.reason)
    if not now < override.expires_at <= now + OVERRIDE_MAX:
        raise InvalidInput(
            "expires_at",
            f"a time in the future, at most {format_duration(OVERRIDE_MAX)} ahead",
            iso(override.expires_at),
        )
    return override


def parse_override_duration(text: str, field: str = "expires") -> Micros:
    """Parse the duration of an approval. Raise InvalidInput if it exceeds OVERRIDE_MAX."""
    lasts = parse_duration(text, field)
    if not 0 < lasts <= OVERRIDE_MAX:
        raise InvalidInput(field, f"a duration of at most {format_duration(OVERRIDE_MAX)}", text)
    return lasts


def covering_overrides(
    assessment: Assessment, overrides: Iterable[Override], now: Micros
) -> tuple[Override, ...]:
    """Return the live overrides that together satisfy a dependency; empty if they do not.

    If several processors need it, every one of them must be covered: an approval for one processor
    does not extend to the others.
    """
    if assessment.fail_if_missing:
        return ()
    live = [each for each in overrides if each.is_live(now) and each.applies_to(assessment)]
    whole = next((each for each in live if each.processor is None), None)
    if whole is not None:
        return (whole,)
    if not assessment.needed_by:
        return tuple(live[:1])
    found = {each.processor: each for each in reversed(live)}
    if all(name in found for name in assessment.needed_by):
        return tuple(found[name] for name in assessment.needed_by)
    return ()
