"""What a gate is asked and what it answers, as records that can be written down and replayed.

`GateInput` holds everything the decision depends on, `Decision` everything that follows from it;
both read back equal from their canonical JSON (`core.record`). `core.gate.decide` is the only maker
of decisions. The orchestrator stores both; `explain`, `gate history` and the backtest read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.core.clock import Micros
from penstock.flows.gates.evidence import Assessment
from penstock.flows.gates.override import Override
from penstock.pipelines.mode import Mode


class Verdict(StrEnum):
    """Whether the work may start; `rank` orders them from worst to best."""

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
        """Whether the work starts."""
        return self in (Verdict.PROCEED, Verdict.PROCEED_DEGRADED)


class GateStatus(StrEnum):
    """The one word for where a gate stands."""

    READY = "ready"
    READY_DEGRADED = "ready_degraded"
    WAITING_SAME_DAY = "waiting_same_day"
    """A critical same-day dependency is absent and there is time left."""
    WAITING = "waiting"
    """Everything is there in part; the mode waits for more."""
    MISSING_HISTORICAL = "missing_historical"
    MISSING_SAME_DAY = "missing_same_day"
    """It did not arrive in time."""
    MISSING_REQUIRED = "missing_required"
    """A dependency declared fail_if_missing is absent."""
    CYCLE = "cycle"
    INSUFFICIENT = "insufficient"
    """Too little data, or too bad, for this mode."""


class Acknowledgement(StrEnum):
    """What happens to the message that asked."""

    ACK = "ack"
    NACK = "nack"


class AlertLevel(StrEnum):
    """How loud an alert is; MEDIUM and HIGH are other names of WARNING and ERROR."""

    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"
    MEDIUM = "WARNING"  # an alias, on purpose
    HIGH = "ERROR"  # an alias, on purpose

    @property
    def rank(self) -> int:
        """0 for INFO, 3 for CRITICAL."""
        return list(AlertLevel).index(self)


class Effect(StrEnum):
    """What a decision means to the circuit breaker."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The processors of the phases before: how many are expected and completed, and who is not."""

    completed: int
    expected: int
    outstanding: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateInput:
    """Everything a decision depends on.

    mode: as judged, leniency applied. waited_us: since the gate first said WAIT. historical_tries:
    earlier looks that found too few days. reported: the quality scores of upstream processors.
    cycle: the processors that wait for each other, when this gate is among them. fallback: the set
    time has come, so that waiting is over. retry_delay_us: until the next look after a nack.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows from a GateInput.

    rule: which of the four decided. missing: tables that are absent or short; stale: tables whose
    data is too old. reasons say why, warnings what is lacking, both as sentences. recheck_at: the
    next look; waits_until: when waiting ends. intervention: only a person can mend it.
    failure_type: same_day, historical or optional, for the execution log.
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
    """Waiting ended, by max wait or by the fallback, and the work starts all the same."""
    overrides_used: tuple[str, ...] = ()
    effect: Effect = Effect.NEUTRAL
