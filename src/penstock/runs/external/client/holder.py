"""Requests and responses of external workers, and the check that the caller holds the run.

A call names a run and, preferably, the fencing token that its claim returned; then the token alone
decides. A call without a token must use the API key that claimed the run and, if it names a
worker, the same worker. A rejected call changes nothing:

    NotFound            the run does not exist, or belongs to another customer
    StaleToken          old token: the claim lapsed, was swept, or another worker holds the run
    NotHolder           no token, and the caller did not claim the run
    IllegalTransition   the caller holds the run, but its state does not allow the transition
    RunTimedOut, RunCancelled   response to a heartbeat (or start) when the run must stop

An expired lease remains valid until a sweeper deletes it: a late worker is not a dead one, and no
other worker can claim the run before that.
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
from penstock.entities.changed import ChangedEntities
from penstock.runs.action_records import NewArtifact, RunActions
from penstock.runs.external.store import ExternalRun
from penstock.runs.rows import HeldRun, RunRow
from penstock.runs.states import RunState, RunStatus


@dataclass(frozen=True, slots=True)
class ExternalWorker:
    """The caller: a worker's name and the id of its API key (which contains no ":")."""

    name: str | None = None
    key: str = ""

    @property
    def holder(self) -> str:
        """The holder as written to the lease row: `key:name`."""
        return f"{self.key}:{self.name or ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """Progress that a worker reports; None keeps the value reported before."""

    current_state: str = "RUNNING"
    stage: str | None = None
    percent: float | None = None
    estimated_completion_at: Micros | None = None
    records_extracted: int | None = None
    records_transformed: int | None = None
    records_loaded: int | None = None
    bytes_processed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionResult:
    """Result of a successful run; `stages` maps stage names to seconds."""

    status: str = RunStatus.SUCCESS.value
    result_summary: Mapping[str, Any] | None = None
    records_processed: int | None = None
    bytes_processed: int | None = None
    stages: Mapping[str, float] | None = None
    actions: RunActions | None = None
    artifacts: tuple[NewArtifact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport:
    """Failure of a run; if `should_retry` is None, the error type decides whether it is retried."""

    error_type: str
    error_details: Mapping[str, Any] | None = None
    should_retry: bool | None = None
    retry_after_seconds: float | None = None
    artifacts: tuple[NewArtifact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One item of a batch of heartbeats."""

    run_id: int
    token: int | None = None
    progress: ProgressReport = field(default_factory=ProgressReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionItem:
    """One item of a batch of completions."""

    run_id: int
    token: int | None = None
    completion: CompletionResult = field(default_factory=CompletionResult)


class Claimed(NamedTuple):
    """A claimed run, the expiry of its claim, and its pipeline, phase and processor."""

    run: HeldRun
    claim_expiry_time: Micros
    pipeline: str
    phase: str
    processor: str
    changed: ChangedEntities | None = None
    """Its input; None if its processor is not incremental."""


class ClaimStatus(NamedTuple):
    """Response to a start or heartbeat: whether to continue, and when the claim expires."""

    run_id: int
    token: int
    state: str
    cancel_requested: bool
    claim_expiry_time: Micros
    started_at: Micros | None
    timeout_at: Micros | None


class RunOutcome(NamedTuple):
    """Outcome of a run: final state, its retry or dead letter, and the config's failure count."""

    run_id: int
    token: int
    state: str
    status: str | None
    retry_run_id: int | None = None
    retry_at: Micros | None = None
    is_dead: bool = False
    consecutive_failures: int = 0
    is_repeat: bool = False


class TransitionRequest(NamedTuple):
    """A worker's request to move a run to a state."""

    run_id: int
    token: int | None
    caller: ExternalWorker
    to_state: RunState


def holder_error(found: ExternalRun, call: TransitionRequest) -> PenstockError | None:
    """Return the error if the caller does not hold a leased run; None if it does."""
    if call.token is not None:
        stale = call.token != found.held.token
        return StaleToken(encode("run", call.run_id)) if stale else None
    key, _, name = found.holder.partition(":")
    if key != call.caller.key or call.caller.name not in (None, name):
        return NotHolder(encode("run", call.run_id))
    return None


def unheld_error(run: RunRow | None, call: TransitionRequest) -> PenstockError:
    """Return the error for a call about a run that no external worker holds."""
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


def late_heartbeat_error(run: RunRow | None, call: TransitionRequest) -> PenstockError:
    """Return the error for a late heartbeat: the run has ended, or another worker holds it."""
    error = unheld_error(run, call)
    if run is None or not isinstance(error, IllegalTransition):
        return error
    if run.state == RunState.TIMEOUT:
        return RunTimedOut(f"run {error.subject} timed out; its later reports are refused.")
    if run.state == RunState.CANCELLED:
        return RunCancelled(f"run {error.subject} was cancelled; its later reports are refused.")
    if run.finished_at is None:
        return NotHolder(error.subject)
    if run.error_type in (ErrorType.STALE_EXECUTION, ErrorType.CLAIM_LAPSED):
        return StaleToken(error.subject)
    return error


def is_repeat(run: RunRow | None, call: TransitionRequest) -> bool:
    """Return whether the caller already ended this run and repeats its report.

    The tokens match or, if the caller sent none, the worker names do.
    """
    if run is None or run.finished_at is None:
        return False
    if call.token is not None:
        return call.token == run.token
    return call.caller.name is not None and call.caller.name == run.claimed_by


def timeout_of(run: HeldRun) -> Micros | None:
    """Return when a run times out; None if it has not started."""
    return None if run.started_at is None else run.started_at + run.max_execution_us
