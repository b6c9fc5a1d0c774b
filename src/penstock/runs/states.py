"""The state machine of a run: states, the one table of legal edges, and what statuses they fit.

Entry: a run is created PENDING. Exits: COMPLETED, FAILED, TIMEOUT and CANCELLED are final and never
change; a retry is a new run. Claim and start need no row of their own, so a change may cover
several edges at once (``path_is_legal``). The store and the services ask here before they write;
``document`` renders docs/state_machine.md from the same table. Nothing here changes a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from penstock.core.errors import IllegalTransition

MAX_LAPSES: Final = 5
"""A claim may lapse this often; the last time fails the run instead of releasing it."""


class RunState(StrEnum):
    """Where a run stands."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"


class RunStatus(StrEnum):
    """How a finished run went."""

    SUCCESS = "SUCCESS"
    PARTIAL_SUCCESS = "PARTIAL_SUCCESS"
    FAILURE = "FAILURE"
    TIMEOUT = "TIMEOUT"


class Admission(IntEnum):
    """Why a PENDING run may or may not be claimed right now."""

    READY = 0
    LATER = 1
    """Due in the future."""
    PAUSED = 2
    BLOCKED = 3
    """Behind another run of its ordering key."""
    LIMITED = 4
    """Due, and in line (or about to be) for the limits its processor needs."""
    NONE = 9
    """Not pending."""


MARKS: Final[Mapping[Admission, tuple[str, str]]] = MappingProxyType(
    {
        Admission.LATER: ("its time has not come, or its turn is about to be given", "none"),
        Admission.BLOCKED: ("behind another run of its ordering key", "none"),
        Admission.PAUSED: ("a pause covers it", "none: given back when the pause began"),
        Admission.LIMITED: ("due, and in line for the limits it needs", "none"),
        Admission.READY: ("may be claimed", "holds all it needs"),
        Admission.NONE: (
            "not pending: CLAIMED or RUNNING",
            "holds them until it ends or goes back to the queue",
        ),
    }
)
"""What a mark means, and what a run with it holds of the limits it needs."""

REASONS: Final[Mapping[tuple[RunState, RunState], str]] = MappingProxyType(
    {
        (RunState.PENDING, RunState.CLAIMED): "a worker takes it under a lease",
        (RunState.PENDING, RunState.CANCELLED): "cancelled before anybody took it",
        (RunState.CLAIMED, RunState.RUNNING): "the processor starts",
        (RunState.CLAIMED, RunState.PENDING): "the lease lapses",
        (RunState.CLAIMED, RunState.FAILED): f"the lease lapses for the {MAX_LAPSES}th time",
        (RunState.CLAIMED, RunState.CANCELLED): "cancelled by an operator",
        (RunState.RUNNING, RunState.COMPLETED): "the processor returns",
        (RunState.RUNNING, RunState.FAILED): "the processor fails, or its heartbeat stops",
        (RunState.RUNNING, RunState.TIMEOUT): "it exceeds its maximum duration",
        (RunState.RUNNING, RunState.PENDING): "snoozed while it waits for a limit",
        (RunState.RUNNING, RunState.CANCELLED): "cancelled by an operator, cooperatively",
    }
)
"""Every legal edge with its cause; ``TRANSITIONS`` is the same table seen from the states."""

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
"""The statuses a state may carry; a state that is not listed carries none."""


def check(from_state: RunState, to_state: RunState, subject: object, kind: str = "run") -> None:
    """Raise IllegalTransition unless the table has this edge."""
    if to_state not in TRANSITIONS[from_state]:
        raise IllegalTransition(kind, subject, from_state, to_state)


def path_is_legal(path: Sequence[RunState]) -> bool:
    """Tell whether each step of the path is an edge; the path names the starting state first."""
    return all(target in TRANSITIONS[source] for source, target in pairwise(path))


def final_state(status: RunStatus) -> RunState:
    """Return the final state that a status means."""
    return next(state for state, statuses in STATUSES.items() if status in statuses)


def status_fits(state: RunState, status: RunStatus | None) -> bool:
    """Tell whether a run in this state may carry this status (None: carries no status)."""
    allowed = STATUSES.get(state)
    return status is None if allowed is None else status in allowed


def document() -> str:
    """Return the text of docs/state_machine.md."""
    lines = ["    [*] --> PENDING: created"]
    lines += [f"    {a} --> {b}: {why}" for (a, b), why in REASONS.items()]
    lines += [f"    {state} --> [*]" for state in RunState if state in TERMINAL]
    rows = [f"| {a} | {b} | {why} |" for (a, b), why in REASONS.items()]
    marks = [f"| {mark.name} | {why} | {holds} |" for mark, (why, holds) in MARKS.items()]
    fits = [f"| {s} | {', '.join(sorted(STATUSES.get(s, ()))) or 'none'} |" for s in RunState]
    return "\n".join(
        [
            "# The states of a run",
            "",
            "<!-- Generated from src/penstock/runs/states.py; a test keeps it in step. -->",
            "",
            "A run is one attempt to execute one processor. Final states never change: a retry is",
            "a new run with the next attempt number and a link to its parent. Any edge that is not",
            "drawn is refused (HTTP 409) and changes nothing. Claim and start have no journal row",
            "of their own; the row of the end or of the interruption carries them.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            *lines,
            "```",
            "",
            "| from | to | when |",
            "| --- | --- | --- |",
            *rows,
            "",
            "| state | statuses it may carry |",
            "| --- | --- |",
            *fits,
            "",
            "A PENDING run carries a mark that says why it may or may not be claimed. The mark",
            "also decides whether it holds the limits its processor needs: all of them or none.",
            "",
            "| mark | meaning | limits |",
            "| --- | --- | --- |",
            *marks,
            "",
        ]
    )
