"""Use cases of runs: submit, read, cancel, retry.

A submitted run is durable when the call returns. A repeated submit with the same idempotency key
returns the same run; the same key with another submission is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.access.store.names import NameResolver, check_limit
from penstock.access.store.registry import customer_get
from penstock.audit.rows import JournalRow
from penstock.audit.store.alerts import request_begin, request_finish
from penstock.audit.store.journal import journal_for
from penstock.core.clock import FAR_FUTURE
from penstock.core.errors import IllegalTransition, InvalidInput, NotFound
from penstock.core.fields import check_customer, check_text
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Single, Transactions, Tx
from penstock.runs import attempt_result
from penstock.runs.client.retry import run_retry
from penstock.runs.client.submission import (
    Submission,
    check_many,
    fingerprint,
    insert,
    is_one_statement,
    with_customer,
)
from penstock.runs.rows import RunRow
from penstock.runs.states import LIVE, RunState
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.leases import progress_get
from penstock.runs.store.runs import (
    RunFilter,
    ordering_key_lock,
    run_cancel_pending,
    run_cancel_request,
    run_chain,
    run_get,
    run_held_get,
    run_list_ended,
    run_list_live,
)

__all__ = ["RunDetail", "RunFilter", "RunPosition", "Runs", "Submission", "position_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """A run with its attempts, its journal and its progress."""

    run: RunRow
    attempts: list[RunRow]
    journal: list[JournalRow]
    progress: dict[str, Any] | None


class RunPosition(NamedTuple):
    """Position in a list of runs: the next page continues after this run."""

    is_live: bool
    occurrence_time: int
    run_id: int


def position_of(run: RunRow) -> RunPosition:
    """Return the position of a run in a list."""
    return RunPosition(run.finished_at is None, run.occurrence_time, run.run_id)


class Runs:
    """Use cases of runs."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def submit(
        self, submission: Submission | str, *, key: str | None = None, actor: str | None = None
    ) -> int:
        """Create one run and return its id; an idempotency `key` makes the call safe to repeat."""
        wanted = Submission(pipeline=submission) if isinstance(submission, str) else submission
        wanted = with_customer(self._names, wanted)
        if key is None:
            return self.submit_many([wanted], actor=actor)[0]
        check_text("key", key)
        checked = check_many(self._names, [wanted])
        scope = self._names.request_scope(f"submit:{check_customer(wanted.customer)}")
        who = actor or self._actor

        def body(tx: Tx) -> int:
            earlier = request_begin(tx, scope, key, fingerprint(wanted))
            if earlier is not None:
                return int(earlier["run_id"])
            run_id = insert(tx, self._store, self._names, checked, who)[0]
            request_finish(tx, scope, key, {"run_id": run_id})
            return run_id

        return self._store.write(body)

    def submit_many(
        self, submissions: Sequence[Submission], *, actor: str | None = None
    ) -> list[int]:
        """Create runs in one transaction and return their ids in order."""
        checked = check_many(self._names, [with_customer(self._names, s) for s in submissions])
        who = actor or self._actor

        def body(tx: Tx) -> list[int]:
            return insert(tx, self._store, self._names, checked, who)

        is_single = is_one_statement(self._names, checked)
        return self._store.write(Single(body) if is_single else body)

    def get(self, run_id: int, customer: str | None = None) -> RunRow:
        """Return one run, live or ended; raise NotFound if it does not exist."""
        found = self._store.read(
            lambda tx: run_get(tx, run_id, self._names.customer_key(tx, customer))
        )
        if found is None:
            raise NotFound("run", encode("run", run_id))
        return found

    def detail(self, run_id: int, customer: str | None = None) -> RunDetail:
        """Return one run with its other attempts, its journal and its progress."""

        def body(tx: Tx) -> RunDetail:
            number = self._names.customer_key(tx, customer)
            found = run_get(tx, run_id, number)
            if found is None:
                raise NotFound("run", encode("run", run_id))
            owner = customer_get(tx, found.customer_id)
            assert owner is not None
            progress = progress_get(tx, run_id)
            return RunDetail(
                run=found,
                attempts=[r for r in run_chain(tx, found, owner) if r.run_id != run_id],
                journal=journal_for(tx, "run", run_id),
                progress=None
                if progress is None
                else {name: getattr(progress[0], name) for name in progress[0].__slots__}
                | {"last_heartbeat_at": progress[1]},
            )

        return self._store.read(body)

    def page(
        self, wanted: RunFilter, customer: str | None = None, *, pipeline: str | None = None
    ) -> list[RunRow]:
        """Return runs, live ones first, newest first; `before` is the previous page's last id."""

        def position(tx: Tx, number: CustomerKey | None) -> RunPosition | None:
            last = None if wanted.before == FAR_FUTURE else run_get(tx, wanted.before, number)
            return None if last is None else position_of(last)

        return self._page(wanted, customer, pipeline, position)

    def page_after(
        self,
        wanted: RunFilter,
        position: RunPosition | None,
        customer: str | None = None,
        *,
        pipeline: str | None = None,
    ) -> list[RunRow]:
        """Return the page after a position.

        A run that ends between two pages may appear twice, but is never missed.
        """
        return self._page(wanted, customer, pipeline, lambda _tx, _number: position)

    def _page(
        self,
        wanted: RunFilter,
        customer: str | None,
        pipeline: str | None,
        find: Callable[[Tx, CustomerKey | None], RunPosition | None],
    ) -> list[RunRow]:
        check_limit(wanted.limit)
        if pipeline is not None:
            wanted = replace(
                wanted, pipeline=self._names.pipeline(pipeline, "pipeline").pipeline_key
            )
        if wanted.state is not None and wanted.state not in tuple(RunState):
            raise InvalidInput("state", f"one of {', '.join(RunState)}", wanted.state)

        def body(tx: Tx) -> list[RunRow]:
            number = self._names.customer_key(tx, customer)
            return _listed(tx, replace(wanted, customer=number), find(tx, number))

        return self._store.read(body)

    def cancel(
        self,
        run_id: int,
        *,
        reason: str = "",
        customer: str | None = None,
        actor: str | None = None,
    ) -> str:
        """Cancel a run; return "cancelled" or "asked".

        A pending run is cancelled at once. For any other live run, a request is recorded, which its
        holder carries out.
        """
        who = actor or self._actor

        def body(tx: Tx) -> str:
            number = self._names.customer_key(tx, customer)
            seen = run_get(tx, run_id, number)
            if seen is not None and seen.ordering_key is not None:
                ordering_key_lock(tx, seen.ordering_key)
            held = run_held_get(tx, run_id, number)
            if held is None:
                ended = run_get(tx, run_id, number)
                if ended is None:
                    raise NotFound("run", encode("run", run_id))
                raise IllegalTransition("run", encode("run", run_id), ended.state, "CANCELLED")
            if held.state != RunState.PENDING:
                run_cancel_request(tx, run_id, who, reason or None)
                tx.after_commit(lambda: self._store.wake(["cancel"]))
                return "asked"
            token = run_cancel_pending(tx, run_id)
            assert token is not None, "the row is locked"
            end = attempt_result.cancelled(
                held._replace(token=token), actor=who, why=reason or None
            )
            ended_runs = run_end_many(tx, [end])
            assert ended_runs, "the row is locked"
            return "cancelled"

        return self._store.write(body)

    def retry(self, run_id: int, *, customer: str | None = None, actor: str | None = None) -> int:
        """Retry an ended run now, as a new chain of attempts; return the new run's id."""
        who = actor or self._actor

        def body(tx: Tx) -> int:
            number = self._names.customer_key(tx, customer)
            return run_retry(tx, self._store, self._names, run_id, customer_key=number, actor=who)

        return self._store.write(body)


def _listed(tx: Tx, wanted: RunFilter, position: RunPosition | None) -> list[RunRow]:
    """Return live runs, then ended ones, after a position."""
    found = replace(wanted, before=FAR_FUTURE)
    runs: list[RunRow] = []
    if wanted.state in (None, *LIVE) and (position is None or position.is_live):
        before = FAR_FUTURE if position is None else position.run_id
        runs = run_list_live(tx, replace(found, before=before))
    if wanted.state in LIVE or len(runs) == wanted.limit:
        return runs
    # Live runs are ordered by id, ended ones by scheduled time and id: the second list starts at
    # its top.
    if position is not None and not position.is_live:
        found = replace(found, before=position.run_id, occurrence_before=position.occurrence_time)
    return runs + run_list_ended(tx, replace(found, limit=wanted.limit - len(runs)))
