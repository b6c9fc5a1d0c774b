"""Who holds a run from outside: what workers say and hear, and whether they may say it.

A call names a run and, best, the fencing token its claim was answered with: then the token decides.
A call without one must come from the key that claimed, and from the same worker when it says which
one it is. What is refused changes nothing:

    NotFound            no such run, or not of this customer
    StaleToken          an old token: the claim lapsed, was swept, or somebody else has it
    NotHolder           no token, and the caller is not who claimed
    IllegalTransition   the caller holds it, but from its state the run cannot get there
    RunTimedOut, RunCancelled   what a heartbeat (or a start) learns when the run has to stop

A lease that ran out still holds until a sweeper took it: late is not dead, and nobody else can have
the run before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.core.clock import Micros
from penstock.core.errors import (
    IllegalTransition,
    NotFound,
    NotHolder,
    PenstockError,
    RunCancelled,
    RunTimedOut,
    StaleToken,
)
from penstock.core.ids import encode
from penstock.core.retry import ErrorType
from penstock.runs.external.store import Outside
from penstock.runs.rows import HeldRun, Run
from penstock.runs.states import RunState, RunStatus


@dataclass(frozen=True, slots=True)
class Worker:
    """Who calls: a worker's name and the id of the key it came with (no ":" in it)."""

    name: str | None = None
    key: str = ""

    @property
    def holder(self) -> str:
        """As a lease names its holder."""
        return f"{self.key}:{self.name or ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Progress as a worker tells it; None leaves what was told before."""

    current_state: str = "RUNNING"
    stage: str | None = None
    percent: float | None = None
    estimated_completion_at: Micros | None = None
    records_extracted: int | None = None
    records_transformed: int | None = None
    records_loaded: int | None = None
    bytes_processed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a run brought; `stages` are seconds by name."""

    status: str = RunStatus.SUCCESS.value
    result_summary: Mapping[str, Any] | None = None
    records_processed: int | None = None
    bytes_processed: int | None = None
    stages: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """Why a run failed; `should_retry` None leaves it to the error type."""

    error_type: str
    error_details: Mapping[str, Any] | None = None
    should_retry: bool | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One item of a batch of heartbeats."""

    run_id: int
    token: int | None = None
    progress: Told = field(default_factory=Told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One item of a batch of completions."""

    run_id: int
    token: int | None = None
    completion: Completion = field(default_factory=Completion)


class Claimed(NamedTuple):
    """A run that was claimed, until when, and what it is a run of."""

    run: HeldRun
    claim_expiry_time: Micros
    pipeline: str
    phase: str
    processor: str


class Pulse(NamedTuple):
    """The answer to a start or a heartbeat: whether to go on, and until when the run is held."""

    run_id: int
    token: int
    state: str
    cancel_requested: bool
    claim_expiry_time: Micros
    started_at: Micros | None
    timeout_at: Micros | None


class Ending(NamedTuple):
    """What became of a run: its final state, its retry, or its death and the config's count."""

    run_id: int
    token: int
    state: str
    status: str | None
    retry_run_id: int | None = None
    retry_at: Micros | None = None
    is_dead: bool = False
    consecutive_failures: int = 0
    is_repeat: bool = False


class Call(NamedTuple):
    """Somebody wants to bring a run into a state."""

    run_id: int
    token: int | None
    caller: Worker
    to_state: RunState


def refusal(found: Outside, call: Call) -> PenstockError | None:
    """Why a run that is held from outside is not this caller's; None when it is."""
    if call.token is not None:
        stale = call.token != found.held.token
        return StaleToken(encode("run", call.run_id)) if stale else None
    key, _, name = found.holder.partition(":")
    if key != call.caller.key or call.caller.name not in (None, name):
        return NotHolder(encode("run", call.run_id))
    return None


def refusal_unheld(run: Run | None, call: Call) -> PenstockError:
    """Why nothing can be done with a run that nobody outside holds."""
    shown = encode("run", call.run_id)
    if run is None:
        return NotFound("run", shown)
    if call.token is not None and (run.finished_at is None or call.token != run.token):
        return StaleToken(shown)
    is_held = run.state in (RunState.CLAIMED, RunState.RUNNING)
    others = run.finished_at is not None and call.caller.name not in (None, run.claimed_by)
    if call.token is None and (is_held or others):
        return NotHolder(shown)
    return IllegalTransition("run", shown, run.state, call.to_state)


def refusal_beat(run: Run | None, call: Call) -> PenstockError:
    """Why a heartbeat comes too late: the run ended meanwhile, or is in other hands."""
    error = refusal_unheld(run, call)
    if run is None or not isinstance(error, IllegalTransition):
        return error
    if run.state == RunState.TIMEOUT:
        return RunTimedOut(f"run {error.subject} timed out; what it still does is refused.")
    if run.state == RunState.CANCELLED:
        return RunCancelled(f"run {error.subject} was cancelled; what it still does is refused.")
    if run.finished_at is None:
        return NotHolder(error.subject)
    if run.error_type in (ErrorType.STALE_EXECUTION, ErrorType.CLAIM_LAPSED):
        return StaleToken(error.subject)
    return error


def is_repeat(run: Run | None, call: Call) -> bool:
    """Whether the caller itself ended this run: the same token, or the same name without one."""
    if run is None or run.finished_at is None:
        return False
    if call.token is not None:
        return call.token == run.token
    return call.caller.name is not None and call.caller.name == run.claimed_by


def timeout_of(run: HeldRun) -> Micros | None:
    """When a running run is over its time."""
    return None if run.started_at is None else run.started_at + run.max_execution_us
