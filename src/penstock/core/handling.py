"""What becomes of a message or completion that asks for a processor, once its gate has decided.

In order: already processed, ready, waiting, history missing, degraded. Says whether to run, what
to acknowledge, what the execution log notes and what a push reply carries. Pure; the orchestrator
and the consumer kit act on it. Errors during processing are `core.classify` and `core.retry`.
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
    """What to do, and what to note.

    result: the execution log's dependency check result. status: its status where nothing runs;
    None when the run will tell. degraded: the processor is told what is missing.
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
        """Return the body of a push reply."""
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
    """Return what becomes of the message; a processor without a gate has no decision.

    already_processed: a completed execution of (flow, generation, processor) exists; force passes
    over that, and over nothing else.
    """
    if already_processed and not force:
        return Handling(
            action=Action.SKIP,
            acknowledgement=Acknowledgement.ACK,
            result="already_processed",
            reason="It was processed before in this generation.",
            retry_count=retry_count,
        )
    if decision is None:
        return Handling(
            action=Action.RUN,
            acknowledgement=Acknowledgement.ACK,
            result="ready",
            reason="It needs nothing.",
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
