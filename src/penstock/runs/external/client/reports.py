"""Reports of external workers: validated, converted to a result, and stored by `run_end_many`.

A report becomes a result once its run is found and locked. A repeat of a report by the same caller
with the same outcome gets the stored result again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.access.store.names import NameResolver
from penstock.core.clock import SECOND
from penstock.core.errors import Conflict, InvalidInput, PenstockError, StaleToken
from penstock.core.fields import canonical_json_object, check_text
from penstock.core.ids import encode, stable_fraction
from penstock.core.naming import CustomerKey
from penstock.core.retry import DELAY_CAP_MAX, normalise_error_type
from penstock.core.utc_offsets import TIME_MAX
from penstock.db.store import Transactions, Tx
from penstock.entities.report import CHANGED, report_from, without_entities
from penstock.runs import attempt_result as settle
from penstock.runs.action_records import NewArtifact, RunActions
from penstock.runs.attempt_result import AttemptFailure
from penstock.runs.client.actions import (
    OwnedActions,
    artifact_row,
    check_actions,
    check_bounds,
    owner_of,
    perform_many,
)
from penstock.runs.external.client.holder import (
    CompletionResult,
    FailureReport,
    ProgressReport,
    RunOutcome,
    TransitionRequest,
    holder_error,
    is_repeat,
    unheld_error,
)
from penstock.runs.external.store import (
    ExternalRun,
    external_run_get_many,
    run_find_many,
    run_retry_of,
)
from penstock.runs.hooks import config_failures
from penstock.runs.rows import HeldRun, RunEnd, RunRow
from penstock.runs.states import RunState, RunStatus, check
from penstock.runs.store.actions import artifact_put_many
from penstock.runs.store.end_events import emit_ends_after_commit
from penstock.runs.store.finish import run_end_many

COUNT_MAX: Final = 2**63 - 1
PHASES: Final = ("INITIALIZING", "RUNNING", "FINALIZING")

Settle: TypeAlias = Callable[[HeldRun, str], RunEnd]
"""Function that returns the result for a held run and the reporting actor."""


class EndCall(NamedTuple):
    """One report: the call, and the function that makes its result."""

    call: TransitionRequest
    settle: Settle
    actions: RunActions | None = None
    """Actions to perform if the run completes."""
    artifacts: tuple[NewArtifact, ...] = ()


def completed(done: CompletionResult) -> Settle:
    """Validate a completion and return the function that settles a run with it."""
    if done.status not in (RunStatus.SUCCESS, RunStatus.PARTIAL_SUCCESS):
        raise InvalidInput(
            "status", "SUCCESS or PARTIAL_SUCCESS", done.status, "Report a failure with fail."
        )
    result = _result_text(done.result_summary)
    _check_count("records_processed", done.records_processed)
    _check_count("bytes_processed", done.bytes_processed)
    stages = None
    if done.stages is not None:
        for name, seconds in done.stages.items():
            _check_number(f"stages.{name}"[:100], seconds, 0, TIME_MAX / SECOND)
        micros = {name: round(seconds * SECOND) for name, seconds in done.stages.items()}
        stages = canonical_json_object(micros, "stages")

    def settled(held: HeldRun, actor: str) -> RunEnd:
        return settle.completed_result(
            held,
            status=RunStatus(done.status),
            result=result,
            records=done.records_processed,
            bytes=done.bytes_processed,
            stages=stages,
            actor=actor,
        )

    return settled


def _result_text(summary: Mapping[str, Any] | None) -> str | None:
    """Return the stored form of a summary; its report of changed entities is checked and bounded
    separately.
    """
    rest, entities = without_entities(summary)
    if not entities:
        return None if summary is None else canonical_json_object(summary, "result_summary")
    if entities.get(CHANGED) is not None:
        report_from(entities[CHANGED], f"result_summary.{CHANGED}")
    text = canonical_json_object(rest or {}, "result_summary")
    return json.dumps({**json.loads(text), **entities}, ensure_ascii=False)


def completion_call(call: TransitionRequest, done: CompletionResult) -> EndCall:
    """Return the validated report of a completion."""
    return EndCall(call, completed(done), done.actions, done.artifacts)


def failure_call(call: TransitionRequest, report: FailureReport) -> EndCall:
    """Return the validated report of a failure."""
    return EndCall(call, failed(report), None, report.artifacts)


def failed(report: FailureReport) -> Settle:
    """Validate a failure and return the function that settles a run with it.

    A run with a cancel request is settled as cancelled, so that it is not retried.
    """
    check_text("error_type", report.error_type)
    if not report.error_type.strip():
        raise InvalidInput("error_type", "a name such as TRANSIENT_NETWORK", report.error_type)
    details = report.error_details
    text = None if details is None else canonical_json_object(details, "error_details")
    after = report.retry_after_seconds
    _check_number("retry_after_seconds", after, 0, DELAY_CAP_MAX / SECOND)
    failure = AttemptFailure(
        error_type=normalise_error_type(report.error_type),
        details=text,
        force_retry=report.should_retry,
        retry_after_us=None if after is None else int(after * SECOND),
    )

    def settled(held: HeldRun, actor: str) -> RunEnd:
        if held.cancel_requested_at is not None:
            return cancelled(held, actor)
        # The token gives each run its own jitter, which stays the same if the transaction repeats.
        return settle.failed(held, failure, jitter=stable_fraction(held.token), actor=actor)

    return settled


def cancelled(held: HeldRun, actor: str) -> RunEnd:
    """Return the result of a run that its worker stopped after a cancel request."""
    if held.cancel_requested_at is None:
        raise Conflict(f"run {encode('run', held.run_id)} has no cancel request: use fail.")
    return settle.cancelled(held, actor=actor, why="cancelled by an external worker")


def end_many(
    tx: Tx,
    store: Transactions,
    names: NameResolver,
    items: Sequence[EndCall],
    customer_key: CustomerKey | None,
) -> list[RunOutcome | PenstockError]:
    """End runs in one transaction; return the outcome or the error of each report.

    Actions are checked before their run is ended, and performed with its end.
    """
    ids = [item.call.run_id for item in items]
    found = external_run_get_many(tx, ids, customer_key)
    lost = set(ids) - found.keys()
    others = run_find_many(tx, lost, customer_key) if lost else {}
    outcomes: dict[int, RunOutcome | PenstockError] = {}
    finishes: dict[int, RunEnd] = {}
    acting: list[OwnedActions] = []
    duplicates: set[int] = set()
    for index, item in enumerate(items):
        run_id = item.call.run_id
        if run_id in finishes or run_id in outcomes:
            duplicates.add(index)
        elif run_id not in found:
            outcomes[run_id] = _unheld(tx, others.get(run_id), item.call)
        else:
            try:
                finish = _result(found[run_id], item)
                if item.actions is not None:
                    acting.append(_acting(tx, names, found[run_id].held, item.actions))
                finishes[run_id] = finish
            except PenstockError as error:
                outcomes[run_id] = error
    outcomes |= _store(tx, store, finishes, {run_id: one.held for run_id, one in found.items()})
    done = [one for one in acting if isinstance(outcomes[one.owner.run_id], RunOutcome)]
    if done:
        perform_many(tx, store, names, done)
    artifact_put_many(
        tx,
        [
            artifact_row(found[item.call.run_id].held, made)
            for item in items
            for made in item.artifacts
            if item.call.run_id in finishes
        ],
    )
    return [
        InvalidInput("run_id", "each run once in a batch", encode("run", run_id))
        if index in duplicates
        else outcomes[run_id]
        for index, run_id in enumerate(ids)
    ]


def held_run(tx: Tx, call: TransitionRequest, customer_key: CustomerKey | None) -> HeldRun:
    """Return the run, locked, if the caller holds it; raise an error otherwise."""
    found = external_run_get_many(tx, [call.run_id], customer_key).get(call.run_id)
    if found is None:
        raise unheld_error(run_find_many(tx, [call.run_id], customer_key).get(call.run_id), call)
    error = holder_error(found, call)
    if error is not None:
        raise error
    return found.held


def check_progress(progress: ProgressReport) -> None:
    """Raise InvalidInput, with the name of the field, for progress that cannot be stored."""
    if progress.current_state not in PHASES:
        raise InvalidInput("current_state", f"one of {', '.join(PHASES)}", progress.current_state)
    if progress.stage is not None:
        check_text("current_stage", progress.stage)
    _check_number("progress_percentage", progress.percent, 0, 100)
    _check_count("estimated_completion_time", progress.estimated_completion_at, TIME_MAX)
    for name in ("records_extracted", "records_transformed", "records_loaded", "bytes_processed"):
        _check_count(name, getattr(progress, name))


def check_location(pod: str | None, region: str | None) -> None:
    """Raise InvalidInput for a pod or region name that cannot be stored."""
    for field, value in (("pod_name", pod), ("region", region)):
        if value is not None:
            check_text(f"execution_context.{field}", value)


def _result(found: ExternalRun, item: EndCall) -> RunEnd:
    call, held = item.call, found.held
    error = holder_error(found, call)
    if error is not None:
        raise error
    # CLAIMED to FAILED is only for claims that lapse for the last time; workers must start first.
    if held.state != RunState.RUNNING and call.to_state is RunState.FAILED:
        check(RunState.CLAIMED, RunState.COMPLETED, encode("run", held.run_id))
    check(RunState(held.state), call.to_state, encode("run", held.run_id))
    return item.settle(held, call.caller.name or held.claimed_by or "worker")


def _acting(tx: Tx, names: NameResolver, held: HeldRun, actions: RunActions) -> OwnedActions:
    owner = owner_of(held)
    checked = check_actions(tx, names, owner, actions)
    check_bounds(checked)
    return OwnedActions(owner, checked)


def _store(
    tx: Tx, store: Transactions, finishes: dict[int, RunEnd], held: Mapping[int, HeldRun]
) -> dict[int, RunOutcome | PenstockError]:
    """Write the results; return the outcome of each run."""
    ended = {end.run_id: end for end in run_end_many(tx, list(finishes.values()))}
    emit_ends_after_commit(tx, finishes.values(), ended.values(), held)
    again = {end.retry_run_id for end in ended.values() if end.retry_run_id is not None}
    retries = run_find_many(tx, again) if again else {}
    outcomes: dict[int, RunOutcome | PenstockError] = {}
    for run_id, finish in finishes.items():
        end = ended.get(run_id)
        if end is None:
            outcomes[run_id] = StaleToken(encode("run", run_id))
            continue
        retry = retries.get(end.retry_run_id or 0)
        outcomes[run_id] = RunOutcome(
            run_id,
            finish.token,
            end.final_state,
            end.status,
            end.retry_run_id,
            None if retry is None else retry.scheduled_time,
            bool(end.is_dead),
            end.consecutive_failures,
        )
    if again:
        tx.after_commit(lambda: store.wake(["admit"]))
    if any(end.flow_id is not None for end in ended.values()):
        tx.after_commit(lambda: store.wake(["flows"]))
    return outcomes


def _unheld(tx: Tx, run: RunRow | None, call: TransitionRequest) -> RunOutcome | PenstockError:
    """Return the stored outcome if the caller already ended the run this way, else an error."""
    ways = {call.to_state}
    if call.to_state is RunState.FAILED:
        ways.add(RunState.CANCELLED)
    if run is None or not is_repeat(run, call) or run.state not in ways:
        return unheld_error(run, call)
    retry = None if run.is_dead or run.state != RunState.FAILED else run_retry_of(tx, run)
    counts = run.is_dead and run.config_id is not None
    return RunOutcome(
        run.run_id,
        run.token,
        run.state,
        run.status,
        None if retry is None else retry[0],
        None if retry is None else retry[1],
        run.is_dead,
        config_failures(tx, run.config_id) if counts and run.config_id is not None else 0,
        is_repeat=True,
    )


def _check_count(field: str, value: Any, most: int = COUNT_MAX) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_whole and 0 <= value <= most):
        raise InvalidInput(field, "a whole number from 0", value)


def _check_number(field: str, value: Any, low: float, high: float) -> None:
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:
        raise InvalidInput(field, f"a number from {low} to {high:.0f}", value)
