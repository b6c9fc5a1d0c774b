"""Input and output of a gate, as records that can be stored and replayed.

`GateInput` has everything that a decision depends on, `Decision` everything that follows from it;
both are equal to themselves after a round trip through canonical JSON (`core.stored_json`). Only
`flows.gates.gate.decide` creates decisions. The orchestrator stores both records; `explain`,
`gate history` and the backtest read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.core.clock import Micros
from penstock.flows.gates.evidence import Assessment
from penstock.flows.gates.override import Override
from penstock.pipelines.mode import Mode

RULES: Final = 3
"""Version of the rules that new decisions follow.

1: only a dependency without any rows is absent. 2: a critical dependency below its floor is, too,
and PROCEED requires every critical dependency to reach `proceed_at`. 3: the verdicts of 2; the
reasons name the overrides in force and what is missing, and completeness only where it explains.
"""


class Verdict(StrEnum):
    """Verdict of a gate: whether its phase or processor may start. Ordered from worst to best."""

    FAIL = "FAIL"
    WAIT = "WAIT"
    PROCEED_DEGRADED = "PROCEED_DEGRADED"
    PROCEED = "PROCEED"

    @property
    def rank(self) -> int:
        """0 for the worst, 3 for the best."""
        return list(Verdict).index(self)

    @property
    def starts(self) -> bool:
        """Whether the phase or processor starts."""
        return self in (Verdict.PROCEED, Verdict.PROCEED_DEGRADED)


LOG_LEVELS: Final = {
    Verdict.PROCEED: "INFO",
    Verdict.PROCEED_DEGRADED: "WARNING",
    Verdict.WAIT: "INFO",
    Verdict.FAIL: "ERROR",
}
"""Level at which a decision is logged."""


class GateStatus(StrEnum):
    """Status of a gate: its verdict and the main reason for it."""

    READY = "ready"
    READY_DEGRADED = "ready_degraded"
    WAITING_SAME_DAY = "waiting_same_day"
    """A critical same-day dependency is absent and the maximum wait has not elapsed."""
    WAITING = "waiting"
    """Data is incomplete; the mode waits for more."""
    MISSING_HISTORICAL = "missing_historical"
    """A historical dependency has data for too few days."""
    MISSING_SAME_DAY = "missing_same_day"
    """A critical same-day dependency did not arrive in time."""
    MISSING_REQUIRED = "missing_required"
    """A dependency declared fail_if_missing is absent."""
    CYCLE = "cycle"
    """Processors wait for each other's tables."""
    INSUFFICIENT = "insufficient"
    """Completeness or quality is too low for this mode."""


class Acknowledgement(StrEnum):
    """Whether the message that triggered the evaluation is acked or nacked."""

    ACK = "ack"
    NACK = "nack"


class AlertLevel(StrEnum):
    """Severity of an alert. MEDIUM and HIGH are aliases of WARNING and ERROR."""

    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"
    MEDIUM = "WARNING"  # intentionally an alias
    HIGH = "ERROR"  # intentionally an alias

    @property
    def rank(self) -> int:
        """0 for INFO, 3 for CRITICAL."""
        return list(AlertLevel).index(self)


class BreakerEffect(StrEnum):
    """How the circuit breaker counts a decision."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Processors of the preceding phases: numbers of completed and expected ones, and the names of
    those outstanding and failed.
    """

    completed: int
    expected: int
    outstanding: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateInput:
    """Everything a decision depends on.

    mode: with the pipeline's leniency applied. reported: quality scores reported by upstream
    processors. waited_us: time since the first WAIT verdict. historical_tries: earlier evaluations
    that found data for too few days. cycle: the processors that wait for each other, if this gate
    is among them. fallback: the fallback time has passed, so the gate no longer waits.
    retry_delay_us: delay until the next evaluation after a nack. rules: version of the rules that
    decide; new inputs pass `RULES`, and an input that was recorded without one follows version 1.
    """

    mode: Mode
    now: Micros
    phase: str = ""
    processor: str | None = None
    partition: str = ""
    assessments: tuple[Assessment, ...] = ()
    upstream: Upstream | None = None
    reported: tuple[float, ...] = ()
    overrides: tuple[Override, ...] = ()
    waited_us: Micros = 0
    historical_tries: int = 0
    cycle: tuple[str, ...] = ()
    set_complete: bool = True
    stragglers_passed: bool = False
    fallback: bool = False
    retry_delay_us: Micros | None = None
    rules: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision of a gate.

    rule: number of the rule that decided, of four. reasons: sentences that explain the verdict.
    warnings: sentences about incomplete data. missing: tables that are absent or incomplete. stale:
    tables whose data is too old. failure_type: same_day, historical or optional, for the execution
    log. recheck_at: time of the next evaluation. waits_until: end of the maximum wait.
    intervention: whether only a person can resolve the problem.
    """

    verdict: Verdict
    status: GateStatus
    rule: int
    acknowledgement: Acknowledgement
    completeness: float
    quality: float
    reasons: tuple[str, ...]
    alert: AlertLevel | None = None
    log_level: str = "INFO"
    warnings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    failure_type: str | None = None
    recheck_at: Micros | None = None
    waits_until: Micros | None = None
    intervention: bool = False
    escalated: bool = False
    """Whether the start was forced by the end of the maximum wait or by the fallback time."""
    overrides_used: tuple[str, ...] = ()
    effect: BreakerEffect = BreakerEffect.NEUTRAL
