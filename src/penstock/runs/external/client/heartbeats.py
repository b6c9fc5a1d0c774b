"""Starts and heartbeats of external workers' runs, any number in one transaction.

Every call has its own outcome: a response, or an error. All runs are locked first, in id order,
before anything is written; a rejected call changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.core.clock import MINUTE
from penstock.core.errors import PenstockError, RunCancelled, RunTimedOut, StaleToken
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.core.redact import redact_text
from penstock.db.store import Tx
from penstock.runs.external.client.holder import (
    ClaimStatus,
    ProgressReport,
    TransitionRequest,
    holder_error,
    late_heartbeat_error,
    timeout_of,
    unheld_error,
)
from penstock.runs.external.store import (
    ExternalRun,
    ProgressUpdate,
    external_run_get_many,
    progress_update_many,
    run_find_many,
)
from penstock.runs.rows import Progress
from penstock.runs.states import RunState, check
from penstock.runs.store.leases import lease_extend_many, progress_put_many
from penstock.runs.store.runs import run_start_many

HEARTBEAT_LEASE_US: Final = 5 * MINUTE


class StartCall(NamedTuple):
    """A request to start a run, and where it executes."""

    call: TransitionRequest
    pod: str | None = None
    region: str | None = None


class HeartbeatCall(NamedTuple):
    """A heartbeat of a run, with its progress."""

    call: TransitionRequest
    progress: ProgressReport


def start_many(
    tx: Tx, starts: Sequence[StartCall], customer_key: CustomerKey | None = None
) -> list[ClaimStatus | PenstockError]:
    """Mark claimed runs RUNNING and extend their leases; each run may appear once.

    For a run that is already RUNNING, return its state and change nothing.
    """
    found = external_run_get_many(tx, [start.call.run_id for start in starts], customer_key)
    lost = {start.call.run_id for start in starts} - found.keys()
    others = run_find_many(tx, lost, customer_key) if lost else {}
    outcomes: dict[int, ClaimStatus | PenstockError] = {}
    going: dict[int, StartCall] = {}
    for start in starts:
        run_id = start.call.run_id
        one = found.get(run_id)
        if one is None:
            outcomes[run_id] = unheld_error(others.get(run_id), start.call)
            continue
        error = _not_startable(one, start.call)
        if error is not None:
            outcomes[run_id] = error
        elif one.held.state == RunState.RUNNING:
            outcomes[run_id] = lease_status(one, one.until_at)
        else:
            going[run_id] = start
    outcomes |= _begin(tx, going, found)
    return [outcomes[start.call.run_id] for start in starts]


def heartbeat_many(
    tx: Tx, heartbeats: Sequence[HeartbeatCall], customer_key: CustomerKey | None = None
) -> list[ClaimStatus | PenstockError]:
    """Extend leases to five minutes from now and record the progress of the runs."""
    found = external_run_get_many(
        tx, [heartbeat.call.run_id for heartbeat in heartbeats], customer_key
    )
    lost = {heartbeat.call.run_id for heartbeat in heartbeats} - found.keys()
    others = run_find_many(tx, lost, customer_key) if lost else {}
    errors = [
        _too_late(found[call.run_id], call)
        if call.run_id in found
        else late_heartbeat_error(others.get(call.run_id), call)
        for call, _ in heartbeats
    ]
    good = {
        heartbeat.call.run_id: heartbeat
        for heartbeat, error in zip(heartbeats, errors, strict=True)
        if error is None
    }
    held = [found[run_id] for run_id in sorted(good)]
    until = lease_extend_many(
        tx, [("run", one.held.run_id, one.held.token, _more(one)) for one in held]
    )
    held = [one for one in held if one.held.run_id in until]  # a sweeper may delete leases
    running = [one.held.run_id for one in held if one.held.state == RunState.RUNNING]
    progress_update_many(tx, [_progress(run_id, good[run_id].progress) for run_id in running])
    return [
        error or _response(found[heartbeat.call.run_id], until.get(heartbeat.call.run_id))
        for heartbeat, error in zip(heartbeats, errors, strict=True)
    ]


def lease_status(found: ExternalRun, until_at: int) -> ClaimStatus:
    """Return the response to the holder of a run."""
    run = found.held
    return ClaimStatus(
        run.run_id,
        run.token,
        run.state,
        run.cancel_requested_at is not None,
        until_at,
        run.started_at,
        timeout_of(run),
    )


def _not_startable(found: ExternalRun, call: TransitionRequest) -> PenstockError | None:
    """Return the error if a held run may not start; None if it may start or already runs."""
    error = holder_error(found, call)
    run, name = found.held, encode("run", call.run_id)
    if error is not None or run.state == RunState.RUNNING:
        return error
    try:
        check(RunState(run.state), RunState.RUNNING, name)
    except PenstockError as illegal:
        return illegal
    if run.cancel_requested_at is not None:
        return RunCancelled(f"run {name} has a cancel request: confirm the cancellation.")
    return None


def _begin(
    tx: Tx, going: dict[int, StartCall], found: dict[int, ExternalRun]
) -> dict[int, ClaimStatus | PenstockError]:
    """Start runs; return the response, or StaleToken, for each."""
    if not going:
        return {}
    tokens = {run_id: found[run_id].held.token for run_id in sorted(going)}
    # Extend the lease before starting the run: a sweeper may have deleted it since it was read.
    until = lease_extend_many(
        tx, [("run", i, token, HEARTBEAT_LEASE_US) for i, token in tokens.items()]
    )
    started = run_start_many(tx, [(i, tokens[i]) for i in sorted(until)])
    assert started == until.keys(), "the rows are locked"
    rows = [
        (
            run_id,
            tokens[run_id],
            Progress(
                current_state="INITIALIZING",
                worker=going[run_id].call.caller.name or found[run_id].held.claimed_by,
                pod=going[run_id].pod,
                region=going[run_id].region,
            ),
        )
        for run_id in sorted(started)
    ]
    progress_put_many(tx, rows)
    begun = external_run_get_many(tx, started) if started else {}
    return {
        run_id: lease_status(begun[run_id], until[run_id])
        if run_id in started
        else StaleToken(encode("run", run_id))
        for run_id in going
    }


def _too_late(found: ExternalRun, call: TransitionRequest) -> PenstockError | None:
    """Return the error for a run that is not the caller's or exceeded its maximum duration."""
    error = holder_error(found, call)
    timeout_at = timeout_of(found.held)
    if error is None and timeout_at is not None and found.now > timeout_at:
        name = encode("run", call.run_id)
        return RunTimedOut(f"run {name} exceeded its maximum duration: stop it and report.")
    return error


def _more(found: ExternalRun) -> int:
    """Return the lease duration after a heartbeat; it never shortens a longer claim."""
    if found.held.state == RunState.RUNNING:
        return HEARTBEAT_LEASE_US
    return max(HEARTBEAT_LEASE_US, found.until_at - found.now)


def _response(found: ExternalRun, until_at: int | None) -> ClaimStatus | PenstockError:
    if until_at is None:
        return StaleToken(encode("run", found.held.run_id))
    return lease_status(found, until_at)


def _progress(run_id: int, progress: ProgressReport) -> ProgressUpdate:
    return ProgressUpdate(
        run_id,
        progress.current_state,
        None if progress.stage is None else redact_text(progress.stage),
        progress.percent,
        progress.estimated_completion_at,
        progress.records_extracted,
        progress.records_transformed,
        progress.records_loaded,
        progress.bytes_processed,
    )
