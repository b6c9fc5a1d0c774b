"""The argument of a processor: the run that it executes, and methods to report while it runs.

A context is built for every run, so it is cheap: JSON is parsed and ids are encoded on first use.
`progress` only stores the latest figures; the worker's heartbeat writes them. Signals (cancel,
timeout, lost lease, drain) set one attribute; `check` raises them as an exception in the
processor's own thread. Nothing here accesses the store; `ActingRun` does, through the run's port.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from penstock.core.clock import SECOND, Clock, Micros, to_datetime
from penstock.core.errors import (
    InvalidInput,
    LeaseLost,
    RunCancelled,
    RunInterrupted,
    RunTimedOut,
)
from penstock.core.redact import REFERENCE, is_reference, redact_text
from penstock.pipelines.parameters import run_parameters
from penstock.runs.rows import HeldRun, Progress
from penstock.worker.execution.acting_run import ActingRun
from penstock.worker.result import Result
from penstock.worker.run_info import LoadedProcessor

__all__ = ["LoadedProcessor", "Result", "RunContext", "Signal"]

STATES: Final = ("INITIALIZING", "RUNNING", "FINALIZING")


class Signal(StrEnum):
    """Why a run must stop; KILL is for child processes that ignored an earlier signal."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    LEASE = "lease"
    DRAIN = "drain"
    KILL = "kill"


_ERRORS: Final[Mapping[str, tuple[type[RunInterrupted], str]]] = MappingProxyType(
    {
        Signal.CANCEL: (RunCancelled, "the run was cancelled by an operator"),
        Signal.TIMEOUT: (RunTimedOut, "the run exceeded its maximum execution duration"),
        Signal.LEASE: (LeaseLost, "the worker lost its session; the run will be started elsewhere"),
        Signal.DRAIN: (LeaseLost, "the worker is stopping; the run will be started elsewhere"),
    }
)


class RunContext(ActingRun):
    """One run, as its processor sees it."""

    __slots__ = (
        "_asked",
        "_parameters",
        "_percent",
        "_progress",
        "_stage_us",
        "bytes",
        "interrupt",
        "is_dirty",
        "is_gone",
        "is_marked",
        "records",
        "signal",
        "signalled_at",
        "started_at_s",
        "store",
        "was_fenced",
    )

    def __init__(
        self,
        held: HeldRun,
        known: LoadedProcessor,
        clock: Clock,
        began: float,
        store: object | None = None,
    ) -> None:
        """Created by the worker. `began` is the monotonic start time; `store` serves the limit
        slots that the processor acquires.
        """
        super().__init__(held, known, clock)
        self.started_at_s = began
        self.signal: Signal | None = None
        self.signalled_at = 0.0
        self.interrupt: Callable[[Signal], None] | None = None
        self.is_dirty = False
        self.is_gone = False
        """Whether another process ended the run, so that the result of this execution is
        discarded."""
        self.was_fenced = False
        """Whether the run was asked to stop because the worker's lease was uncertain."""
        self.is_marked = held.started_at is not None
        self.records = 0
        """Number of records processed; processors add to it."""
        self.bytes = 0
        self.store = store
        self._asked: dict[str, int] | None = None
        self._parameters: Mapping[str, Any] | None = None
        self._progress: Progress | None = None
        self._percent: float | None = None
        self._stage_us: dict[str, int] | None = None

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The run's parameters, or its config's, merged over the pipeline's defaults.

        References to secrets are resolved. A reference that cannot be resolved fails the run
        permanently.
        """
        if self._parameters is None:
            self._parameters = MappingProxyType(_parameters(self._known, self.held))
        return self._parameters

    def secret(self, name: str) -> str:
        """Return the value of a secret from the worker's environment or files.

        The value is never stored or logged.
        """
        return self._known.secrets.get(name, self.held.customer_id)

    @property
    def requested_slots(self) -> dict[str, int]:
        """Number of limit slots this execution has requested, by limit."""
        if self._asked is None:
            self._asked = {}
        return self._asked

    @property
    def deadline_s(self) -> float:
        """Deadline on the worker's monotonic clock, in seconds."""
        return self.started_at_s + self.held.max_execution_us / SECOND

    @property
    def deadline(self) -> datetime:
        """Time at which the run is stopped as timed out."""
        left = int((self.deadline_s - self._clock.monotonic()) * SECOND)
        return to_datetime(self._clock.now() + left)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run should stop; long loops read this or call `check`."""
        return self.signal is not None

    @property
    def is_plain(self) -> bool:
        """Whether the run reported nothing but its return value."""
        return (
            self.signal is None and self._stage_us is None and not self.records and not self.bytes
            and not self.has_reported and not self.has_entries and not self.has_acted
        )  # fmt: skip

    def check(self) -> None:
        """Raise RunCancelled, RunTimedOut or LeaseLost if the run must stop."""
        if self.signal is not None:
            kind, text = _ERRORS[self.signal]
            raise kind(text)
        if self._clock.monotonic() > self.deadline_s:
            kind, text = _ERRORS[Signal.TIMEOUT]
            raise kind(text)

    def progress(
        self,
        percent: float | None = None,
        stage: str | None = None,
        *,
        extracted: int | None = None,
        transformed: int | None = None,
        loaded: int | None = None,
        bytes: int | None = None,
        state: str | None = None,
    ) -> None:
        """Store the run's progress (None keeps the previous value), then call `check`."""
        if state is not None and state not in STATES:
            raise InvalidInput("state", f"one of {', '.join(STATES)}", state)
        if percent is not None:
            self._percent = min(100.0, max(0.0, float(percent)))
        last = self._progress or _NO_PROGRESS
        self._progress = Progress(
            current_state=last.current_state if state is None else state,
            stage=last.stage if stage is None else redact_text(str(stage))[:200],
            percent=self._percent,
            records_extracted=last.records_extracted if extracted is None else int(extracted),
            records_transformed=(
                last.records_transformed if transformed is None else int(transformed)
            ),
            records_loaded=last.records_loaded if loaded is None else int(loaded),
            bytes_processed=last.bytes_processed if bytes is None else int(bytes),
        )
        self.is_dirty = True
        self.check()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage of the run; its duration is kept in the run's history."""
        name = redact_text(name)
        self.progress(stage=name)
        start = self._clock.monotonic()
        try:
            yield
        finally:
            spent = int((self._clock.monotonic() - start) * SECOND)
            stages = self._stage_us = self._stage_us or {}
            stages[name] = stages.get(name, 0) + spent

    def send_signal(self, signal: Signal, now: float) -> None:
        """Deliver a signal from another thread; the first one is kept, KILL is only forwarded."""
        if self.signal is None and signal is not Signal.KILL:
            self.signalled_at = now
            self.signal = signal
            self.was_fenced |= signal is Signal.LEASE
        if self.interrupt is not None:
            self.interrupt(signal)

    def withdraw_fence(self) -> None:
        """Withdraw a stop request that an uncertain lease caused, if the run can still continue."""
        # A task or a child process that was interrupted cannot be continued.
        if self.signal is Signal.LEASE and self.interrupt is None:
            self.signal = None

    def take_progress(self) -> Progress | None:
        """Return the latest progress if it changed since the last call; the heartbeat writes it."""
        if not self.is_dirty:
            return None
        self.is_dirty = False
        return self._progress

    def set_progress(self, progress: Progress) -> None:
        """Set the progress that a child process reported."""
        self._progress = progress
        self.is_dirty = True

    def stage_durations(self) -> Mapping[str, Micros] | None:
        """Return the durations by stage; None when none were measured."""
        return self._stage_us


_NO_PROGRESS: Final = Progress()


def _parameters(known: LoadedProcessor, held: HeldRun) -> dict[str, Any]:
    """Return a run's parameters over the defaults; secrets are resolved only if referenced."""
    text = held.parameters
    given = run_parameters(known.defaults, text)
    if (text and REFERENCE in text) or any(is_reference(p) for p in known.defaults.values()):
        given = known.secrets.resolve(given, held.customer_id)
    return given
