"""What histories of runs may look like, over the table of transitions."""

from collections.abc import Sequence
from itertools import pairwise

from penstock.runs.states import STATUSES, TRANSITIONS, RunState, RunStatus


def path_is_legal(path: Sequence[RunState]) -> bool:
    """Return whether every step of the path is legal; the path begins with the starting state."""
    return all(target in TRANSITIONS[source] for source, target in pairwise(path))


def final_state(status: RunStatus) -> RunState:
    """Return the final state of a run with this status."""
    return next(state for state, statuses in STATUSES.items() if status in statuses)


def status_fits(state: RunState, status: RunStatus | None) -> bool:
    """Return whether a run in this state may have this status; None means no status."""
    allowed = STATUSES.get(state)
    return status is None if allowed is None else status in allowed
