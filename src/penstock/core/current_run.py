"""The run whose processor is being executed, for code that is not handed its context.

The worker sets it around the call of a processor, in the thread or task that executes it; a thread
that a processor starts has none. Slots of limits ask here, to be able to give the worker back.
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


class PresentRun(Protocol):
    """What slots need of a run."""

    @property
    def held(self) -> HeldRunIdentity:
        """The run as it was claimed."""
        ...

    @property
    def asked(self) -> MutableMapping[str, int]:
        """How many slots of each limit this execution has asked for."""
        ...

    @property
    def store(self) -> object | None:
        """The worker's store; None in a process of the run's own."""
        ...

    def check(self) -> None:
        """Raise when the run has to stop."""
        ...


PRESENT: Final[ContextVar[PresentRun | None]] = ContextVar("penstock_present_run", default=None)
