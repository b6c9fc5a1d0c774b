"""The current run, for code that does not receive the run's context as an argument.

The worker sets it while a processor is called, in the thread or task that executes the call; a
thread that the processor starts has no current run. Slots of limits read it so that a run that
waits too long can be snoozed, which frees its worker.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Final, Protocol


class HeldRunIdentity(Protocol):
    """Identity of a claimed run."""

    @property
    def run_id(self) -> int:
        """Key of the run."""
        ...

    @property
    def customer_id(self) -> str:
        """Name of the customer that owns the run."""
        ...

    @property
    def correlation_id(self) -> str | None:
        """Correlation id; None if the id of the first attempt is used instead."""
        ...

    @property
    def root_run_id(self) -> int | None:
        """Key of the run's first attempt; None if this is the first attempt."""
        ...


class CurrentRun(Protocol):
    """The parts of the current run that slots of limits use."""

    @property
    def held(self) -> HeldRunIdentity:
        """The run as it was claimed."""
        ...

    @property
    def requested_slots(self) -> MutableMapping[str, int]:
        """Number of slots of each limit that this execution has requested so far, and of calls that
        retry quota errors under it.
        """
        ...

    @property
    def store(self) -> object | None:
        """The worker's store; None if the run executes in a child process."""
        ...

    def check(self) -> None:
        """Raise if the run must stop."""
        ...


QUOTA_CALLS: Final[ContextVar[tuple[str, ...]]] = ContextVar("penstock_quota_calls", default=())
"""Calls in progress that retry quota errors, the innermost last."""
CURRENT_RUN: Final[ContextVar[CurrentRun | None]] = ContextVar("penstock_present_run", default=None)
