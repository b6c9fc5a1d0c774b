"""Handling of a message or completion that triggers a processor, once its gate has decided.

The cases, in order: already processed, ready, waiting, missing history, degraded. Each determines
whether to run, whether to ack, the entry in the execution log and the body of a push response.
Pure; the orchestrator and the consumer kit act on it. `core.classify` and `core.retry` cover errors
during processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.core.verdict import Acknowledgement, Decision, Verdict


class Action(StrEnum):
    """Whether the processor runs."""

    RUN = "run"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """Decision about a message, and the entry for the execution log.

    result: result of the dependency check for the execution log. status: status for the execution
    log if nothing runs; None if the run will determine it. degraded: whether the processor runs
    with incomplete data; `missing` names the tables.
    """

    action: Action
    acknowledgement: Acknowledgement
    result: str
    reason: str
    log_level: str = "INFO"
    status: str | None = "skipped"
    degraded: bool = False
    missing: tuple[str, ...] = ()
    retry_count: int = 0

    def reply(self) -> dict[str, Any]:
        """Return the body of the response to a push."""
        return {
            "status": self.result,
            "reason": self.reason,
            "missing": list(self.missing),
            "retry_count": self.retry_count,
        }


def handle(
    decision: Decision | None,
    *,
    already_processed: bool = False,
    force: bool = False,
    retry_count: int = 0,
) -> Handling:
    """Return how to handle a message. decision: None for a processor without a gate.

    already_processed: whether a completed execution of (flow, generation, processor) exists. force:
    ignore `already_processed`, and nothing else.
    """
    if already_processed and not force:
        return Handling(
            action=Action.SKIP,
            acknowledgement=Acknowledgement.ACK,
            result="already_processed",
            reason="Already processed in this generation.",
            retry_count=retry_count,
        )
    if decision is None:
        return Handling(
            action=Action.RUN,
            acknowledgement=Acknowledgement.ACK,
            result="ready",
            reason="The processor has no dependencies.",
            status=None,
            retry_count=retry_count,
        )
    starts = decision.verdict.starts
    return Handling(
        action=Action.RUN if starts else Action.SKIP,
        acknowledgement=decision.acknowledgement,
        result=str(decision.status),
        reason=" ".join(decision.reasons),
        log_level=decision.log_level,
        status=None if starts else "failed" if decision.verdict is Verdict.FAIL else "skipped",
        degraded=decision.verdict is Verdict.PROCEED_DEGRADED,
        missing=decision.missing,
        retry_count=retry_count,
    )
