"""What a processor gets: the run it executes, and the ways to talk back while it does.

A context is built for every run, so it is cheap: text is parsed and names are spelled on first use.
`progress` only remembers the latest figures; the worker's beat writes them. Signals (cancel,
timeout, lost lease, drain) arrive as one attribute; `check` turns them into an exception inside the
processor's own thread. Nothing here touches the store.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from penstock.core.clock import SECOND, Clock, Micros, iso, to_datetime
from penstock.core.errors import (
    InvalidInput,
    LeaseLost,
    RunCancelled,
    RunInterrupted,
    RunTimedOut,
)
from penstock.core.ids import encode
from penstock.core.model import HeldRun, Progress
from penstock.core.processor import Processor
from penstock.core.redact import REFERENCE, is_reference, redact_text
from penstock.core.result import Result
from penstock.engine.secrets import Secrets

__all__ = ["Known", "Result", "RunContext", "Signal"]

STATES: Final = ("INITIALIZING", "RUNNING", "FINALIZING")
_log = logging.getLogger("penstock.run")


class Signal(StrEnum):
    """Why a run has to stop; KILL is for child processes that did not listen."""

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


@dataclass(frozen=True, slots=True)
class Known:
    """A processor this worker can execute, with the number runs call it by."""

    number: int
    processor: Processor
    defaults: Mapping[str, Any]
    secrets: Secrets = field(default_factory=Secrets)


class RunContext:
    """One run, as its processor sees it."""

    __slots__ = (
        "_clock", "_known", "_log_bound", "_parameters", "_percent", "_progress", "_stage_us",
        "began", "bytes", "held", "interrupt", "is_dirty", "is_marked", "records", "signal",
        "told_at",
    )  # fmt: skip

    def __init__(self, held: HeldRun, known: Known, clock: Clock, began: float) -> None:
        """Made by the worker; `began` is the clock's monotonic time of the start."""
        self.held = held
        self.began = began
        self.signal: Signal | None = None
        self.told_at = 0.0
        self.interrupt: Callable[[Signal], None] | None = None
        self.is_dirty = False
        self.is_marked = held.started_at is not None
        self.records = 0
        """How many records were processed; processors add to it."""
        self.bytes = 0
        self._known = known
        self._clock = clock
        self._parameters: Mapping[str, Any] | None = None
        self._progress: Progress | None = None
        self._percent: float | None = None
        self._stage_us: dict[str, int] | None = None
        self._log_bound: logging.LoggerAdapter[logging.Logger] | None = None

    @property
    def run_id(self) -> str:
        """The run's public id."""
        return encode("run", self.held.run_id)

    @property
    def customer_id(self) -> str:
        """Whose run it is."""
        return self.held.customer_id

    @property
    def pipeline(self) -> str:
        """Name of the pipeline."""
        return self._known.processor.pipeline

    @property
    def phase(self) -> str:
        """Name of the phase."""
        return self._known.processor.phase

    @property
    def processor(self) -> str:
        """Name of the processor."""
        return self._known.processor.name

    @property
    def declared(self) -> Processor:
        """The processor as declared."""
        return self._known.processor

    @property
    def known(self) -> Known:
        """What the worker knows of the processor."""
        return self._known

    @property
    def partition(self) -> str:
        """The slice of data to process; the slot as ISO text unless somebody named one."""
        return self.held.partition if self.held.partition is not None else iso(self.held.slot)

    @property
    def mode(self) -> str | None:
        """The operating policy of the flow, when there is one."""
        return self.held.mode

    @property
    def slot(self) -> datetime:
        """The moment of the schedule this run stands for; retries keep it."""
        return to_datetime(self.held.slot)

    @property
    def scheduled_time(self) -> datetime:
        """When this attempt was due."""
        return to_datetime(self.held.scheduled_time)

    @property
    def attempt(self) -> int:
        """Which attempt this is; 1 is the first."""
        return self.held.attempt

    @property
    def max_attempts(self) -> int | None:
        """How many attempts the config or processor allows; None: the error's type decides."""
        retry = msgspec.json.decode(self.held.retry) if self.held.retry else {}
        value = retry.get("max_attempts")
        return None if value is None else int(value)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The run's parameters, else its config's, over the pipeline's defaults.

        References to secrets are resolved; one that cannot be fails the run for good.
        """
        if self._parameters is None:
            self._parameters = MappingProxyType(_parameters(self._known, self.held))
        return self._parameters

    def secret(self, name: str) -> str:
        """The value of a secret, as the worker's surroundings have it; never stored or logged."""
        return self._known.secrets.get(name, self.held.customer_id)

    @property
    def correlation_id(self) -> str:
        """Ties together everything one cause set off; the first attempt's id unless given."""
        return self.held.correlation_id or encode("run", self.held.root_run_id or self.held.run_id)

    @property
    def token(self) -> int:
        """The fencing token: give it to sinks that can refuse an older one."""
        return self.held.token

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this piece of work."""
        held = self.held
        if held.flow_id is not None:
            subject = encode("flow", held.flow_id)
        elif held.config_id is not None:
            subject = f"{encode('cfg', held.config_id)}@{iso(held.slot)}"
        else:
            subject = encode("run", held.root_run_id or held.run_id)
        return f"{subject}/{self.phase}/{self.processor}"

    @property
    def attempt_key(self) -> str:
        """A key of this attempt alone."""
        return f"{self.idempotency_key}#{self.held.attempt}"

    @property
    def due(self) -> float:
        """The deadline on the worker's monotonic clock."""
        return self.began + self.held.max_execution_us / SECOND

    @property
    def deadline(self) -> datetime:
        """When the run is stopped as timed out."""
        left = int((self.due - self._clock.monotonic()) * SECOND)
        return to_datetime(self._clock.now() + left)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run should stop; long loops ask this or call `check`."""
        return self.signal is not None

    @property
    def is_plain(self) -> bool:
        """Whether the run had nothing to say besides its return value."""
        return (
            self.signal is None and self._stage_us is None and not self.records and not self.bytes
        )

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that carries the run's ids."""
        if self._log_bound is None:
            bound = {
                "run_id": self.run_id,
                "customer_id": self.customer_id,
                "processor": self._known.processor.path,
                "attempt": self.attempt,
                "correlation_id": self.correlation_id,
            }
            self._log_bound = logging.LoggerAdapter(_log, bound)
        return self._log_bound

    def check(self) -> None:
        """Raise RunCancelled, RunTimedOut or LeaseLost when the run has to stop."""
        if self.signal is not None:
            kind, text = _ERRORS[self.signal]
            raise kind(text)
        if self._clock.monotonic() > self.due:
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
        """Remember how far the run is (None keeps what was said before), then `check`."""
        if state is not None and state not in STATES:
            raise InvalidInput("state", f"one of {', '.join(STATES)}", state)
        if percent is not None:
            self._percent = min(100.0, max(0.0, float(percent)))
        last = self._progress or _NOTHING
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

    def tell(self, signal: Signal, now: float) -> None:
        """Deliver a signal from another thread; the first one stays, KILL passes through."""
        if self.signal is None and signal is not Signal.KILL:
            self.told_at = now
            self.signal = signal
        if self.interrupt is not None:
            self.interrupt(signal)

    def progress_taken(self) -> Progress | None:
        """The latest progress when it changed since the last call; the beat writes it."""
        if not self.is_dirty:
            return None
        self.is_dirty = False
        return self._progress

    def progress_put(self, progress: Progress) -> None:
        """Take over what a child process said about its progress."""
        self._progress = progress
        self.is_dirty = True

    def stages_taken(self) -> Mapping[str, Micros] | None:
        """Durations by stage, when any were measured."""
        return self._stage_us


_NOTHING: Final = Progress()


def _parameters(known: Known, held: HeldRun) -> dict[str, Any]:
    """A run's parameters over the defaults; only what refers to secrets is looked at closely."""
    text = held.parameters
    given = {**known.defaults, **(msgspec.json.decode(text) if text else {})}
    if (text and REFERENCE in text) or any(is_reference(p) for p in known.defaults.values()):
        given = known.secrets.resolved(given, held.customer_id)
    return given
