"""Starts and heartbeats of runs held from outside, any number in one transaction.

Every call has an outcome of its own: the pulse, or why not. Runs are locked together, in the order
of their ids, before anything is written; a refused call leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.core.clock import MINUTE
from penstock.core.errors import PenstockError, RunCancelled, RunTimedOut, StaleToken
from penstock.core.ids import encode
from penstock.core.redact import redact_text
from penstock.db.store import Tx
from penstock.runs.external.client.holder import (
    Call,
    Pulse,
    Told,
    refusal,
    refusal_beat,
    refusal_unheld,
    timeout_of,
)
from penstock.runs.external.store import (
    Beat,
    Outside,
    outside_get_many,
    progress_beat_many,
    run_find_many,
)
from penstock.runs.rows import Progress
from penstock.runs.states import RunState, check
from penstock.runs.store.leases import lease_extend_many, progress_put_many
from penstock.runs.store.runs import run_start_many

HOLD_US: Final = 5 * MINUTE


class Start(NamedTuple):
    """A run is to start, and where."""

    call: Call
    pod: str | None = None
    region: str | None = None


class Pulsation(NamedTuple):
    """A run goes on, and how far it is."""

    call: Call
    told: Told


def start_many(
    tx: Tx, starts: Sequence[Start], customer: int | None = None
) -> list[Pulse | PenstockError]:
    """Mark claimed runs RUNNING and hold them; each run at most once. A repeat only tells."""
    found = outside_get_many(tx, [start.call.run_id for start in starts], customer)
    lost = {start.call.run_id for start in starts} - found.keys()
    others = run_find_many(tx, lost, customer) if lost else {}
    outcomes: dict[int, Pulse | PenstockError] = {}
    going: dict[int, Start] = {}
    for start in starts:
        run_id = start.call.run_id
        one = found.get(run_id)
        if one is None:
            outcomes[run_id] = refusal_unheld(others.get(run_id), start.call)
            continue
        error = _not_startable(one, start.call)
        if error is not None:
            outcomes[run_id] = error
        elif one.held.state == RunState.RUNNING:
            outcomes[run_id] = pulse_of(one, one.until_at)
        else:
            going[run_id] = start
    outcomes |= _begin(tx, going, found)
    return [outcomes[start.call.run_id] for start in starts]


def beat_many(
    tx: Tx, beats: Sequence[Pulsation], customer: int | None = None
) -> list[Pulse | PenstockError]:
    """Hold runs for five more minutes and say how far they are."""
    found = outside_get_many(tx, [beat.call.run_id for beat in beats], customer)
    lost = {beat.call.run_id for beat in beats} - found.keys()
    others = run_find_many(tx, lost, customer) if lost else {}
    errors = [
        _too_late(found[call.run_id], call)
        if call.run_id in found
        else refusal_beat(others.get(call.run_id), call)
        for call, _ in beats
    ]
    good = {
        beat.call.run_id: beat for beat, error in zip(beats, errors, strict=True) if error is None
    }
    held = [found[run_id] for run_id in sorted(good)]
    until = lease_extend_many(
        tx, [("run", one.held.run_id, one.held.token, _more(one)) for one in held]
    )
    held = [one for one in held if one.held.run_id in until]  # no sweeper came in between
    running = [one.held.run_id for one in held if one.held.state == RunState.RUNNING]
    progress_beat_many(tx, [_told(run_id, good[run_id].told) for run_id in running])
    return [
        error or _pulsed(found[beat.call.run_id], until.get(beat.call.run_id))
        for beat, error in zip(beats, errors, strict=True)
    ]


def pulse_of(found: Outside, until_at: int) -> Pulse:
    """What the holder of a run is told."""
    run = found.held
    return Pulse(
        run.run_id,
        run.token,
        run.state,
        run.cancel_requested_at is not None,
        until_at,
        run.started_at,
        timeout_of(run),
    )


def _not_startable(found: Outside, call: Call) -> PenstockError | None:
    """Why a held run does not start for this caller; None when it may, or runs already."""
    error = refusal(found, call)
    run, name = found.held, encode("run", call.run_id)
    if error is not None or run.state == RunState.RUNNING:
        return error
    try:
        check(RunState(run.state), RunState.RUNNING, name)
    except PenstockError as illegal:
        return illegal
    if run.cancel_requested_at is not None:
        return RunCancelled(f"run {name} is to be cancelled: confirm it.")
    return None


def _begin(
    tx: Tx, going: dict[int, Start], found: dict[int, Outside]
) -> dict[int, Pulse | PenstockError]:
    """Start what may start; each with its pulse."""
    if not going:
        return {}
    tokens = {run_id: found[run_id].held.token for run_id in sorted(going)}
    # The lease before the run: a sweeper may have taken it since the look.
    until = lease_extend_many(tx, [("run", i, token, HOLD_US) for i, token in tokens.items()])
    started = run_start_many(tx, [(i, tokens[i]) for i in sorted(until)])
    assert started == until.keys(), "the rows are locked"
    places = [
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
    progress_put_many(tx, places)
    begun = outside_get_many(tx, started) if started else {}
    return {
        run_id: pulse_of(begun[run_id], until[run_id])
        if run_id in started
        else StaleToken(encode("run", run_id))
        for run_id in going
    }


def _too_late(found: Outside, call: Call) -> PenstockError | None:
    """Why a heartbeat of a held run is refused: it is not the caller's, or over its time."""
    error = refusal(found, call)
    timeout_at = timeout_of(found.held)
    if error is None and timeout_at is not None and found.now > timeout_at:
        name = encode("run", call.run_id)
        return RunTimedOut(f"run {name} is over its maximum duration: stop it and report.")
    return error


def _more(found: Outside) -> int:
    """For how long a heartbeat holds a run: a long claim is not shortened by it."""
    if found.held.state == RunState.RUNNING:
        return HOLD_US
    return max(HOLD_US, found.until_at - found.now)


def _pulsed(found: Outside, until_at: int | None) -> Pulse | PenstockError:
    if until_at is None:
        return StaleToken(encode("run", found.held.run_id))
    return pulse_of(found, until_at)


def _told(run_id: int, told: Told) -> Beat:
    return Beat(
        run_id,
        told.current_state,
        None if told.stage is None else redact_text(told.stage),
        told.percent,
        told.estimated_completion_at,
        told.records_extracted,
        told.records_transformed,
        told.records_loaded,
        told.bytes_processed,
    )
