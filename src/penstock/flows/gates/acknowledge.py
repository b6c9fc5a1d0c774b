"""Handling of a message that starts a processor, after the processor's gate has decided.

For each result (ready, waiting, history missing, degraded, failed) it determines whether the
processor runs, whether the message is acked, and the body of a push response. Pure: gates of single
runs (`flows.run_gates`) and the gate step of the consumer kit (`consumer.gates`) act on it. A
message that was processed before never reaches a gate. Errors during processing are classified in
`core.error_classification`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.flows.gates.verdict import LOG_LEVELS, Acknowledgement, GateStatus, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResponse:
    """How to handle a message, and the details to record.

    status: the gate's status. is_final: the processor will not run for this
    message unless a person acts. is_degraded: the processor receives the list of missing data.
    """

    runs: bool
    acknowledgement: Acknowledgement
    status: str
    reason: str
    log_level: str = "INFO"
    is_final: bool = False
    is_degraded: bool = False
    missing: tuple[str, ...] = ()
    retry_count: int = 0

    @property
    def waits(self) -> bool:
        """Whether the processor does not run now but may run later."""
        return not self.runs and not self.is_final

    def reply(self) -> dict[str, Any]:
        """Return the body of a push response."""
        return {
            "status": self.status,
            "reason": self.reason,
            "missing": list(self.missing),
            "retry_count": self.retry_count,
        }


class GateResult(Protocol):
    """A decision, or the record of a gate check."""

    @property
    def verdict(self) -> Verdict:
        """Whether the processor may start."""
        ...

    @property
    def status(self) -> GateStatus:
        """The verdict and the main reason for it."""
        ...

    @property
    def acknowledgement(self) -> Acknowledgement:
        """Whether the message is acked or nacked."""
        ...

    @property
    def reasons(self) -> Sequence[str]:
        """Sentences that explain the verdict."""
        ...

    @property
    def missing(self) -> Sequence[str]:
        """Tables that are absent or incomplete."""
        ...


def gate_response(decision: GateResult, *, retry_count: int = 0) -> GateResponse:
    """Return how to handle the message after `retry_count` earlier attempts."""
    return GateResponse(
        runs=decision.verdict.starts,
        acknowledgement=decision.acknowledgement,
        status=str(decision.status),
        reason=" ".join(decision.reasons),
        log_level=LOG_LEVELS[decision.verdict],
        is_final=decision.verdict is Verdict.FAIL,
        is_degraded=decision.verdict is Verdict.PROCEED_DEGRADED,
        missing=tuple(decision.missing),
        retry_count=retry_count,
    )
