"""The current run, for code that does not receive the run's context as an argument.

The worker sets it around the call of a processor, in the thread or task that executes it; a thread
that a processor starts has none. Slots of limits read it so that a run that waits too long can be
snoozed, which frees its worker.
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
        """Key of its first attempt; None for the first attempt."""
        ...


class CurrentRun(Protocol):
    """The part of a run that slots use."""

    @property
    def held(self) -> HeldRunIdentity:
        """The run as it was claimed."""
        ...

    @property
    def requested_slots(self) -> MutableMapping[str, int]:
        """Number of slots of each limit that this execution has requested so far."""
        ...

    @property
    def store(self) -> object | None:
        """The worker's store; None if the run executes in a child process."""
        ...

    def check(self) -> None:
        """Raise if the run must stop."""
        ...


CURRENT_RUN: Final[ContextVar[CurrentRun | None]] = ContextVar("penstock_present_run", default=None)
