"""The state machine of a phase: states, the one table of legal edges, and what ends a phase.

Entry: every phase of a flow is PENDING, or SKIPPED where the mode does not run it. WAITING and
BLOCKED are what a gate said; both are judged again. COMPLETE and SKIPPED are final within a
generation; DEGRADED may still become COMPLETE and FAILED be tried again. The orchestrator asks here
before it writes; nothing here changes a phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from penstock.core.errors import IllegalTransition
from penstock.flows.gates.verdict import Verdict


class PhaseState(StrEnum):
    """Where a phase stands within a flow."""

    PENDING = "PENDING"
    WAITING = "WAITING"
    """Its gate said WAIT."""
    BLOCKED = "BLOCKED"
    """Its gate said FAIL, or its breaker is open."""
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETE = "COMPLETE"
    DEGRADED = "DEGRADED"
    """It ended without everything: a degraded start, a partial result, or stragglers."""
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


_P = PhaseState
REASONS: Final[Mapping[tuple[PhaseState, PhaseState], str]] = MappingProxyType(
    {
        (_P.PENDING, _P.IN_PROGRESS): "its gate lets it start",
        (_P.PENDING, _P.WAITING): "its gate waits for data",
        (_P.PENDING, _P.BLOCKED): "its gate fails, or its breaker is open",
        (_P.PENDING, _P.SKIPPED): "the mode does not run it, or the flow ended before it",
        (_P.WAITING, _P.IN_PROGRESS): "what it waited for arrived, or waiting ended",
        (_P.WAITING, _P.BLOCKED): "waiting ended in vain",
        (_P.WAITING, _P.FAILED): "the flow's deadline passed",
        (_P.WAITING, _P.SKIPPED): "the flow was cancelled",
        (_P.BLOCKED, _P.IN_PROGRESS): "evaluated again: its gate lets it start",
        (_P.BLOCKED, _P.WAITING): "evaluated again: its gate waits for data",
        (_P.BLOCKED, _P.FAILED): "the flow's deadline passed",
        (_P.BLOCKED, _P.SKIPPED): "the flow was cancelled",
        (_P.IN_PROGRESS, _P.COMPLETE): "every expected processor completed",
        (_P.IN_PROGRESS, _P.DEGRADED): "it ended without everything",
        (_P.IN_PROGRESS, _P.FAILED): "it cannot complete, or the flow's deadline passed",
        (_P.IN_PROGRESS, _P.SKIPPED): "the flow was cancelled",
        (_P.DEGRADED, _P.COMPLETE): "the last straggler completed",
        (_P.FAILED, _P.IN_PROGRESS): "a dead processor is tried again",
    }
)
"""Every legal edge with its cause; ``TRANSITIONS`` is the same table seen from the states."""

TRANSITIONS: Final[Mapping[PhaseState, frozenset[PhaseState]]] = MappingProxyType(
    {
        state: frozenset(target for source, target in REASONS if source is state)
        for state in PhaseState
    }
)
TERMINAL: Final = frozenset(state for state, targets in TRANSITIONS.items() if not targets)
WAITS_FOR_GATE: Final = frozenset({_P.PENDING, _P.WAITING, _P.BLOCKED})
ENDED: Final = frozenset({_P.COMPLETE, _P.DEGRADED, _P.FAILED, _P.SKIPPED})
DONE: Final = frozenset({_P.COMPLETE, _P.DEGRADED})
"""The phase did its work, so that what follows may be judged."""


def check(from_state: PhaseState, to_state: PhaseState, subject: object) -> None:
    """Raise IllegalTransition unless the table has this edge."""
    if to_state not in TRANSITIONS[from_state]:
        raise IllegalTransition("phase", subject, from_state, to_state)


def gate_state(verdict: Verdict) -> PhaseState:
    """Return the state a phase takes by the verdict of its gate."""
    if verdict.starts:
        return PhaseState.IN_PROGRESS
    return PhaseState.WAITING if verdict is Verdict.WAIT else PhaseState.BLOCKED
