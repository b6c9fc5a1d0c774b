"""The state machine of a run: states, the only table of legal transitions, and permitted statuses.

A run is created as PENDING. COMPLETED, FAILED, TIMEOUT, CANCELLED and EXPIRED are final and never
change; a retry is a new run. Claims and starts are not recorded separately, so one change may cover
several transitions. The store and the services check transitions here before they write;
``render_documentation`` renders docs/state_machine.md from the same table. Nothing here changes a
run.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

from penstock.core.errors import IllegalTransition

MAX_LAPSES: Final = 5
"""Number of lapsed claims after which a run fails; earlier lapses return it to the queue."""


class RunState(StrEnum):
    """Lifecycle state of a run; five states are final."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


class RunStatus(StrEnum):
    """Outcome of a finished run."""

    SUCCESS = "SUCCESS"
    PARTIAL_SUCCESS = "PARTIAL_SUCCESS"
    FAILURE = "FAILURE"
    TIMEOUT = "TIMEOUT"


class Admission(IntEnum):
    """Whether a PENDING run may be claimed, and why not."""

    READY = 0
    LATER = 1
    """It is due in the future."""
    PAUSED = 2
    BLOCKED = 3
    """It waits for another run with the same ordering key."""
    LIMITED = 4
    """It is due and waits for the limits that its processor needs."""
    GATED = 5
    """It waits for the gate of its processor; runs of flows start after the gate of their phase."""
    SUSPENDED = 6
    """It waits for a flow that its processor triggered; it has executed before."""
    NONE = 9
    """It is not pending."""


ADMISSION_MEANINGS: Final[Mapping[Admission, tuple[str, str]]] = MappingProxyType(
    {
        Admission.LATER: ("not due yet, or due and about to be admitted", "none"),
        Admission.BLOCKED: ("behind another run with the same ordering key", "none"),
        Admission.PAUSED: ("paused", "none: released when the pause began"),
        Admission.LIMITED: ("due, and waiting for the limits it needs", "none"),
        Admission.GATED: ("waiting for the gate of its processor", "none"),
        Admission.SUSPENDED: ("suspended until the flow that it waits for has ended", "none"),
        Admission.READY: ("may be claimed", "holds all it needs"),
        Admission.NONE: (
            "not pending: CLAIMED or RUNNING",
            "holds them until it ends or returns to the queue",
        ),
    }
)
"""For each mark, its meaning and which of its limits a run with that mark holds."""

REASONS: Final[Mapping[tuple[RunState, RunState], str]] = MappingProxyType(
    {
        (RunState.PENDING, RunState.CLAIMED): "a worker claims it under a lease",
        (RunState.PENDING, RunState.CANCELLED): "cancelled before it was claimed",
        (RunState.PENDING, RunState.EXPIRED): "not started in time",
        (RunState.CLAIMED, RunState.RUNNING): "the processor starts",
        (RunState.CLAIMED, RunState.PENDING): "the lease lapses",
        (
            RunState.CLAIMED,
            RunState.FAILED,
        ): f"the lease lapses for the {MAX_LAPSES}th time, or its gate fails",
        (RunState.CLAIMED, RunState.CANCELLED): "cancelled by an operator",
        (RunState.RUNNING, RunState.COMPLETED): "the processor returns",
        (RunState.RUNNING, RunState.FAILED): "the processor fails, or its heartbeat stops",
        (RunState.RUNNING, RunState.TIMEOUT): "it exceeds its maximum duration",
        (RunState.RUNNING, RunState.PENDING): "it waits for a limit or for a flow",
        (RunState.RUNNING, RunState.CANCELLED): "cancelled by an operator, cooperatively",
    }
)
"""Every legal transition with its cause; ``TRANSITIONS`` is the same table by source state."""

TRANSITIONS: Final[Mapping[RunState, frozenset[RunState]]] = MappingProxyType(
    {
        state: frozenset(target for source, target in REASONS if source is state)
        for state in RunState
    }
)

TERMINAL: Final = frozenset(state for state, targets in TRANSITIONS.items() if not targets)
LIVE: Final = frozenset(RunState) - TERMINAL

STATUSES: Final[Mapping[RunState, frozenset[RunStatus]]] = MappingProxyType(
    {
        RunState.COMPLETED: frozenset({RunStatus.SUCCESS, RunStatus.PARTIAL_SUCCESS}),
        RunState.FAILED: frozenset({RunStatus.FAILURE}),
        RunState.TIMEOUT: frozenset({RunStatus.TIMEOUT}),
    }
)
"""Statuses that a run may have in each state; in states not listed it has none."""


def check(from_state: RunState, to_state: RunState, subject: object, kind: str = "run") -> None:
    """Raise IllegalTransition unless the transition is legal."""
    if to_state not in TRANSITIONS[from_state]:
        raise IllegalTransition(kind, subject, from_state, to_state)


def render_documentation() -> str:
    """Return the text of docs/state_machine.md."""
    transitions = ["    [*] --> PENDING: created"]
    transitions += [f"    {a} --> {b}: {why}" for (a, b), why in REASONS.items()]
    transitions += [f"    {state} --> [*]" for state in RunState if state in TERMINAL]
    rows = [f"| {a} | {b} | {why} |" for (a, b), why in REASONS.items()]
    marks = [
        f"| {mark.name} | {why} | {holds} |" for mark, (why, holds) in ADMISSION_MEANINGS.items()
    ]
    fits = [f"| {s} | {', '.join(sorted(STATUSES.get(s, ()))) or 'none'} |" for s in RunState]
    return "\n".join(
        [
            "# The states of a run",
            "",
            "<!-- Generated from src/penstock/runs/states.py; a test compares them. -->",
            "",
            "A run is one attempt to execute one processor. Final states never change: a retry is",
            "a new run with the next attempt number and a link to its parent. Any transition that",
            "is not shown is rejected (HTTP 409) and changes nothing. Claims and starts have no",
            "separate journal rows; they are part of the row that records the end.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            *transitions,
            "```",
            "",
            "| from | to | when |",
            "| --- | --- | --- |",
            *rows,
            "",
            "| state | permitted statuses |",
            "| --- | --- |",
            *fits,
            "",
            "A PENDING run has an admission mark: whether it may be claimed, and why not. The mark",
            "also determines whether it holds the limits its processor needs: all or none.",
            "",
            "| mark | meaning | limits |",
            "| --- | --- | --- |",
            *marks,
            "",
        ]
    )
