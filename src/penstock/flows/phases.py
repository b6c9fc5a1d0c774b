"""The state machine of a phase: its states and the only table of legal transitions.

Every phase of a flow starts as PENDING, or as SKIPPED if the mode does not run it. WAITING and
BLOCKED follow from a gate's verdict; such gates are evaluated again. COMPLETE and SKIPPED are final
within a generation; a DEGRADED phase may still become COMPLETE, and a FAILED one may be retried.
The orchestrator checks transitions here before it writes; nothing here changes a phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from penstock.core.errors import IllegalTransition
from penstock.flows.gates.verdict import Verdict


class PhaseState(StrEnum):
    """State of a phase within a flow."""

    PENDING = "PENDING"
    WAITING = "WAITING"
    """The verdict of its gate is WAIT."""
    BLOCKED = "BLOCKED"
    """The verdict of its gate is FAIL, or its breaker is open."""
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETE = "COMPLETE"
    DEGRADED = "DEGRADED"
    """It ended incomplete: after a degraded start, with a partial result, or without all its
    processors.
    """
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


_P = PhaseState
TRANSITION_CAUSES: Final[Mapping[tuple[PhaseState, PhaseState], str]] = MappingProxyType(
    {
        (_P.PENDING, _P.IN_PROGRESS): "its gate lets it start",
        (_P.PENDING, _P.WAITING): "its gate waits for data",
        (_P.PENDING, _P.BLOCKED): "its gate fails, or its breaker is open",
        (_P.PENDING, _P.SKIPPED): "the mode does not run it, or the flow ended before it started",
        (_P.WAITING, _P.IN_PROGRESS): "its data arrived, or the maximum wait elapsed",
        (_P.WAITING, _P.BLOCKED): "the maximum wait elapsed without its data",
        (_P.WAITING, _P.FAILED): "the flow's deadline passed",
        (_P.WAITING, _P.SKIPPED): "the flow was cancelled",
        (_P.BLOCKED, _P.IN_PROGRESS): "evaluated again: its gate lets it start",
        (_P.BLOCKED, _P.WAITING): "evaluated again: its gate waits for data",
        (_P.BLOCKED, _P.FAILED): "the flow's deadline passed",
        (_P.BLOCKED, _P.SKIPPED): "the flow was cancelled",
        (_P.IN_PROGRESS, _P.COMPLETE): "every expected processor completed",
        (_P.IN_PROGRESS, _P.DEGRADED): "it ended incomplete",
        (_P.IN_PROGRESS, _P.FAILED): "it cannot complete, or the flow's deadline passed",
        (_P.IN_PROGRESS, _P.SKIPPED): "the flow was cancelled",
        (_P.DEGRADED, _P.COMPLETE): "the last straggler completed",
        (_P.FAILED, _P.IN_PROGRESS): "a failed processor is retried",
    }
)
"""Every legal transition with its cause; ``TRANSITIONS`` is the same table by source state."""

TRANSITIONS: Final[Mapping[PhaseState, frozenset[PhaseState]]] = MappingProxyType(
    {
        state: frozenset(target for source, target in TRANSITION_CAUSES if source is state)
        for state in PhaseState
    }
)
WAITS_FOR_GATE: Final = frozenset({_P.PENDING, _P.WAITING, _P.BLOCKED})
ENDED: Final = frozenset({_P.COMPLETE, _P.DEGRADED, _P.FAILED, _P.SKIPPED})
DONE: Final = frozenset({_P.COMPLETE, _P.DEGRADED})
"""States in which the phase has done its work, so that later phases can be evaluated."""


def check_transition(from_state: PhaseState, to_state: PhaseState, subject: object) -> None:
    """Raise IllegalTransition unless the transition is legal."""
    if to_state not in TRANSITIONS[from_state]:
        raise IllegalTransition("phase", subject, from_state, to_state)


def state_for_verdict(verdict: Verdict) -> PhaseState:
    """Return the state that a gate's verdict puts its phase into."""
    if verdict.starts:
        return PhaseState.IN_PROGRESS
    return PhaseState.WAITING if verdict is Verdict.WAIT else PhaseState.BLOCKED
