"""Work done outside: claim, start, heartbeat, complete, fail, for workers in any language.

A worker outside holds a run by a lease row of its own. A claim lasts as long as it asks for; once
started, a run is held for five minutes from its start or its last heartbeat, and one that is not
heard of for longer is swept: failed as STALE_EXECUTION and retried. Every call is one transaction;
repeating one whose answer was lost is harmless. `holding` says who may do what, and what refusals
mean. A run whose cancel was asked is told so by its heartbeats; `cancelled` confirms the stop.

Results are taken as long as the run is held, also after its time is over: the work is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from penstock.client import reporting
from penstock.client.claiming import LEASE_SECONDS, Claims
from penstock.client.holding import (
    Call,
    Claimed,
    Completion,
    Ending,
    Heartbeat,
    Mishap,
    Pulse,
    Report,
    Told,
    Worker,
    refusal,
    refusal_beat,
    refusal_unheld,
    timeout_of,
)
from penstock.client.names import Names
from penstock.core.clock import MINUTE
from penstock.core.errors import (
    InvalidInput,
    PenstockError,
    RunCancelled,
    RunTimedOut,
    StaleToken,
)
from penstock.core.ids import encode
from penstock.core.model import EXTERNAL_POOL, Progress
from penstock.core.redact import redact_text
from penstock.core.states import RunState, check
from penstock.store.api import Store, Tx
from penstock.store.leases import lease_extend_many, progress_put_many
from penstock.store.outside import (
    Beat,
    Outside,
    outside_get_many,
    progress_beat_many,
    run_find_many,
)
from penstock.store.runs import run_start_many

__all__ = [
    "Claimed", "Completion", "Ending", "Heartbeat", "Mishap", "Pulse", "Report", "Told", "Work",
    "Worker",
]  # fmt: skip

T = TypeVar("T")

HOLD_US: Final = 5 * MINUTE
BATCH_MAX: Final = 1000


class Work:
    """Use cases of workers outside."""

    def __init__(self, store: Store, names: Names) -> None:
        self._store = store
        self._names = names
        self._claims = Claims(names)

    def claim(
        self,
        worker: Worker,
        n: int = 1,
        *,
        lease_seconds: float = LEASE_SECONDS,
        pool: str = EXTERNAL_POOL,
        processors: Sequence[str] = (),
        customer: str | None = None,
    ) -> list[Claimed]:
        """Take up to `n` ready runs of a pool, in the order built-in workers would.

        `processors` names which ("pipeline" or "pipeline/phase/name"); only those declared external
        are given out. Nothing ready: an empty list.
        """
        take = self._claims.taker(worker, n, lease_seconds, pool, processors)
        return self._store.write(lambda tx: take(tx, customer))

    def claim_by_id(
        self,
        worker: Worker,
        run_id: int,
        *,
        lease_seconds: float = LEASE_SECONDS,
        customer: str | None = None,
    ) -> Claimed:
        """Take one given run (a broker dispatches); again for the same worker: the same claim."""
        take = self._claims.taker_by_id(worker, run_id, lease_seconds)
        return self._store.write(lambda tx: take(tx, customer))

    def start(
        self,
        run_id: int,
        caller: Worker,
        *,
        token: int | None = None,
        pod: str | None = None,
        region: str | None = None,
        customer: str | None = None,
    ) -> Pulse:
        """Mark a claimed run RUNNING and hold it for five minutes; a repeat only tells how it is.

        RunCancelled when its cancel was asked meanwhile: confirm with `cancelled`.
        """
        reporting.check_place(pod, region)
        call = Call(run_id, token, caller, RunState.RUNNING)

        def body(tx: Tx) -> Pulse:
            found = self._held(tx, call, customer)
            run = found.held
            if run.state == RunState.RUNNING:
                return _pulse(found, found.until_at)
            check(RunState(run.state), RunState.RUNNING, encode("run", run_id))
            if run.cancel_requested_at is not None:
                raise RunCancelled(f"run {encode('run', run_id)} is to be cancelled: confirm it.")
            # The lease before the run: a sweeper may have taken it since the look.
            if not lease_extend_many(tx, [("run", run_id, run.token, HOLD_US)]):
                raise StaleToken(encode("run", run_id))
            started = run_start_many(tx, [(run_id, run.token)])
            assert started, "the row is locked"
            worker = caller.name or run.claimed_by
            place = Progress(current_state="INITIALIZING", worker=worker, pod=pod, region=region)
            progress_put_many(tx, [(run_id, run.token, place)])
            begun = outside_get_many(tx, [run_id])[run_id]
            return _pulse(begun, begun.until_at)

        return self._store.write(body)

    def heartbeat(
        self,
        run_id: int,
        caller: Worker,
        *,
        token: int | None = None,
        progress: Told | None = None,
        customer: str | None = None,
    ) -> Pulse:
        """Hold a run for five more minutes, say how far it is, learn whether to stop.

        A claimed run that has not started is held as well, its progress is not looked at. After its
        maximum duration a run is not held any longer: RunTimedOut.
        """
        beat = Heartbeat(run_id=run_id, token=token, progress=progress or Told())
        reporting.check_told(beat.progress)

        def body(tx: Tx) -> Pulse:
            return _only(self._beat(tx, caller, [beat], customer))

        return self._store.write(body)

    def heartbeat_many(
        self, caller: Worker, beats: Sequence[Heartbeat], *, customer: str | None = None
    ) -> list[Pulse | PenstockError]:
        """Heartbeats of many runs in one transaction: for each its answer, or why not."""
        _check_batch(len(beats), "heartbeats")
        for beat in beats:
            reporting.check_told(beat.progress)
        return self._store.write(lambda tx: self._beat(tx, caller, beats, customer))

    def complete(
        self,
        run_id: int,
        caller: Worker,
        *,
        token: int | None = None,
        completion: Completion | None = None,
        customer: str | None = None,
    ) -> Ending:
        """The run did its work, wholly or partly; again: what is stored."""
        report = Report(run_id=run_id, token=token, completion=completion or Completion())
        finish = reporting.completed(report.completion)
        call = Call(run_id, token, caller, RunState.COMPLETED)
        item = reporting.Item(call, finish)
        return self._store.write(lambda tx: _only(self._end(tx, [item], customer)))

    def complete_many(
        self, caller: Worker, reports: Sequence[Report], *, customer: str | None = None
    ) -> list[Ending | PenstockError]:
        """Completions of many runs in one transaction: for each its end, or why not."""
        _check_batch(len(reports), "completions")
        items = [
            reporting.Item(
                Call(report.run_id, report.token, caller, RunState.COMPLETED),
                reporting.completed(report.completion),
            )
            for report in reports
        ]
        return self._store.write(lambda tx: self._end(tx, items, customer))

    def fail(
        self,
        run_id: int,
        caller: Worker,
        mishap: Mishap,
        *,
        token: int | None = None,
        customer: str | None = None,
    ) -> Ending:
        """The run failed: it is retried later, or dead; one that was to be cancelled is that."""
        call = Call(run_id, token, caller, RunState.FAILED)
        item = reporting.Item(call, reporting.failed(mishap))
        return self._store.write(lambda tx: _only(self._end(tx, [item], customer)))

    def cancelled(
        self,
        run_id: int,
        caller: Worker,
        *,
        token: int | None = None,
        customer: str | None = None,
    ) -> Ending:
        """The worker stopped a run it was asked to cancel; Conflict when nobody asked."""
        call = Call(run_id, token, caller, RunState.CANCELLED)
        item = reporting.Item(call, reporting.cancelled)
        return self._store.write(lambda tx: _only(self._end(tx, [item], customer)))

    def _held(self, tx: Tx, call: Call, customer: str | None) -> Outside:
        """A run in the caller's hands, locked; the error that tells why it is not."""
        number = self._names.customer(tx, customer)
        found = outside_get_many(tx, [call.run_id], number).get(call.run_id)
        if found is None:
            run = run_find_many(tx, [call.run_id], number).get(call.run_id)
            raise refusal_unheld(run, call)
        error = refusal(found, call)
        if error is not None:
            raise error
        return found

    def _beat(
        self, tx: Tx, caller: Worker, beats: Sequence[Heartbeat], customer: str | None
    ) -> list[Pulse | PenstockError]:
        number = self._names.customer(tx, customer)
        found = outside_get_many(tx, [beat.run_id for beat in beats], number)
        lost = {beat.run_id for beat in beats} - found.keys()
        others = run_find_many(tx, lost, number) if lost else {}
        calls = [Call(beat.run_id, beat.token, caller, RunState.RUNNING) for beat in beats]
        errors = [
            _too_late(found[call.run_id], call)
            if call.run_id in found
            else refusal_beat(others.get(call.run_id), call)
            for call in calls
        ]
        good = {
            beat.run_id: beat for beat, error in zip(beats, errors, strict=True) if error is None
        }
        held = [found[run_id] for run_id in sorted(good)]
        until = lease_extend_many(
            tx, [("run", one.held.run_id, one.held.token, _more(one)) for one in held]
        )
        held = [one for one in held if one.held.run_id in until]  # no sweeper came in between
        running = [one.held.run_id for one in held if one.held.state == RunState.RUNNING]
        progress_beat_many(tx, [_told(run_id, good[run_id].progress) for run_id in running])
        return [
            error or _pulsed(found[call.run_id], until.get(call.run_id))
            for call, error in zip(calls, errors, strict=True)
        ]

    def _end(
        self, tx: Tx, items: Sequence[reporting.Item], customer: str | None
    ) -> list[Ending | PenstockError]:
        number = self._names.customer(tx, customer)
        return reporting.end_many(tx, self._store, items, number)


def _only(outcomes: Sequence[T | PenstockError]) -> T:
    """The one outcome of a batch of one; raises when it is a refusal."""
    (outcome,) = outcomes
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


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
    return _pulse(found, until_at)


def _pulse(found: Outside, until_at: int) -> Pulse:
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


def _check_batch(size: int, field: str) -> None:
    if not 1 <= size <= BATCH_MAX:
        raise InvalidInput(field, f"1 to {BATCH_MAX} items", f"{size} items")
