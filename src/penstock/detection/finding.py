"""A finding: one cause that needs attention, with its values and the command that fixes it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey

SEVERITIES: Final = ("CRITICAL", "HIGH", "MEDIUM", "INFO")
LIVE_RULES: Final = (
    "phase_stuck",
    "phase_untriggered",
    "flow_stalled",
    "dependency_blocking",
    "dependency_missing",
    "gate_cycle",
    "deadline_risk",
    "runs_stale",
)
"""Rules over live flows and runs; evaluated in every pass."""
TREND_RULES: Final = ("dependency_late", "optional_missing", "producer_silent")
"""Rules over recorded history; evaluated every few minutes."""
FRESHNESS_RULES: Final = ("table_stale",)
"""Rules over probed tables; evaluated when these have been probed."""
LADDER_RULES: Final = ("cascade_fallback", "self_heal")
"""Alerts about fallbacks and self-heal, which are resolved when their flow ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause, found by one rule. key: the dedupe key of its alert, without the rule."""

    rule: str
    key: str
    severity: str
    message: str
    fix: str
    threshold: str
    since_at: Micros
    customer_key: CustomerKey | None = None
    customer_id: str | None = None
    subject_kind: str = "flow"
    subject: int = 0
    pipeline: str | None = None
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def dedupe_key(self) -> str:
        """The dedupe key of its alert."""
        return f"{self.rule}:{self.key}"

    @property
    def rank(self) -> tuple[int, str, str]:
        """Sort key: the most severe first, then by rule and key."""
        return SEVERITIES.index(self.severity), self.rule, self.key


def command(*words: str) -> str:
    """Return a command quoted for the shell."""
    return " ".join(["penstock", *(shlex.quote(word) for word in words)])
