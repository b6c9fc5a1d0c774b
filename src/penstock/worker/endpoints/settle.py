"""Storage of the outcomes of requests: runs end as if an external worker had reported, or stay
held.

One transaction stores a batch and claims the next runs. Runs end through the code path of external
workers (`runs.external.client.reports`), so a response that comes too late, or after the endpoint
has reported by callback, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.access.store.names import NameResolver
from penstock.core.clock import Clock
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.retry import ErrorType
from penstock.db.store import Transactions, Tx
from penstock.runs.external.client.holder import (
    ExternalWorker,
    FailureReport,
    RunOutcome,
    TransitionRequest,
)
from penstock.runs.external.client.reports import (
    EndCall,
    Settle,
    completion_call,
    end_many,
    failure_call,
)
from penstock.runs.external.from_rows import completion_of
from penstock.runs.external.records import RunCompletion
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.states import RunState
from penstock.runs.store.runs import fair_clock_raise
from penstock.worker.endpoints.claims import EndpointRow, endpoint_claim, run_accept_many
from penstock.worker.endpoints.exchange import Exchanged
from penstock.worker.endpoints.reply import Reply, RunAccepted
from penstock.worker.endpoints.request import OutgoingRun


class Wanted(NamedTuple):
    """Runs to claim: endpoints, and the maximum number of runs of each."""

    claims: Sequence[tuple[EndpointRow, int]] = ()
    raises_clock: bool = False


class Settlement(NamedTuple):
    """Result of a transaction: stored outcomes and claimed runs."""

    outcomes: Mapping[int, str]
    """Outcome by run: done, accepted, failed, or stale if the run had ended before."""
    claimed: Sequence[OutgoingRun]


class ReplyStore:
    """Stores the outcomes of requests and claims runs, for one dispatcher."""

    def __init__(self, store: Transactions, clock: Clock, holder: str) -> None:
        """`holder` is recorded as the worker that claims and ends runs."""
        self._store = store
        self._names = NameResolver(store, clock)
        self._holder = holder

    def settle_and_claim(self, tx: Tx, done: Sequence[Exchanged], wanted: Wanted) -> Settlement:
        """End or hold the runs of requests that were sent, then claim the next ones."""
        outcomes: dict[int, str] = {}
        ends = [one for one in done if not isinstance(one.reply, RunAccepted)]
        if ends:
            calls = [_end_call(one, self._holder) for one in ends]
            results = end_many(tx, self._store, self._names, calls, None)
            for one, result in zip(ends, results, strict=True):
                outcomes[one.run.held.run_id] = _outcome(result)
        accepted = [one.run for one in done if isinstance(one.reply, RunAccepted)]
        if accepted:
            held = run_accept_many(tx, accepted)
            for run in accepted:
                outcomes[run.held.run_id] = "accepted" if run.held.run_id in held else "stale"
        claimed: list[OutgoingRun] = []
        for row, n in wanted.claims:
            claimed += endpoint_claim(tx, row, n, self._holder)
        if claimed and wanted.raises_clock:
            fair_clock_raise(tx, [run.held for run in claimed])
        return Settlement(outcomes, claimed)


def _end_call(one: Exchanged, holder: str) -> EndCall:
    made = _report(one.run.held, one.reply, holder)
    return made if one.status is None else made._replace(settle=_noting(made.settle, one.status))


def _report(held: HeldRun, reply: Reply, holder: str) -> EndCall:
    """Return the report of a response; one that cannot be stored is reported as a failure."""
    worker = ExternalWorker(holder)
    if isinstance(reply, RunCompletion):
        call = TransitionRequest(held.run_id, held.token, worker, RunState.COMPLETED)
        try:
            return completion_call(call, completion_of(reply))
        except InvalidInput as error:
            reply = _invalid(f"the reply of the endpoint cannot be stored: {error.message}")
    assert isinstance(reply, FailureReport), reply
    call = TransitionRequest(held.run_id, held.token, worker, RunState.FAILED)
    try:
        return failure_call(call, reply)
    except InvalidInput as error:
        text = f"the endpoint failed, and its reply cannot be stored: {error.message}"
        return failure_call(call, _invalid(text))


def _invalid(message: str) -> FailureReport:
    return FailureReport(
        error_type=ErrorType.VALIDATION_ERROR,
        error_details={"message": message},
        should_retry=False,
    )


def _noting(settle: Settle, status: int) -> Settle:
    """Record the endpoint's status in the journal of a run that has no other reason."""

    def settled(held: HeldRun, actor: str) -> RunEnd:
        end = settle(held, actor)
        return end if end.why else end._replace(why=f"the endpoint replied {status}")

    return settled


def _outcome(result: RunOutcome | PenstockError) -> str:
    if isinstance(result, PenstockError) or result.is_repeat:
        return "stale"
    return "done" if result.state == RunState.COMPLETED else "failed"
