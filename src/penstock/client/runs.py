"""Runs from the caller's side: submit, look, cancel, retry, and the dead letters.

A submitted run is durable when the call returns. Repeating a submit with the same idempotency key
answers with the same run; the same key for something else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.client.names import Names, check_limit
from penstock.client.starting import LOOK, check_overlap, free_slot
from penstock.client.submission import (
    Submission,
    addressed,
    check_many,
    check_text,
    fingerprint,
    insert,
    is_one_statement,
)
from penstock.core import settle
from penstock.core.drafts import check_customer
from penstock.core.errors import Conflict, IllegalTransition, InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.core.model import Config, NewRun, ProcessorRow, Run
from penstock.core.states import LIVE, RunState
from penstock.store.alerts import (
    DeadLetter,
    dead_letter_list,
    dead_letter_resolve,
    request_answer,
    request_begin,
)
from penstock.store.api import Single, Store, Tx
from penstock.store.configs import config_get, config_lock
from penstock.store.ending import run_end_many
from penstock.store.journal import JournalRow, journal_for
from penstock.store.leases import progress_get
from penstock.store.registry import customer_get
from penstock.store.runs import (
    FAR_FUTURE,
    RunFilter,
    ordering_key_lock,
    run_cancel_ask,
    run_cancel_pending,
    run_chain,
    run_get,
    run_held_get,
    run_insert_many,
    run_list_ended,
    run_list_live,
)
from penstock.store.schedule import schedule_get

__all__ = ["Place", "RunDetail", "RunFilter", "Runs", "Submission", "place_of"]

DEAD_STATUSES = ("open", "replayed", "discarded")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """A run with its attempts, its journal and its progress."""

    run: Run
    attempts: list[Run]
    journal: list[JournalRow]
    progress: dict[str, Any] | None


class Place(NamedTuple):
    """Where a list of runs goes on: behind this run, in the list it was in."""

    is_live: bool
    slot: int
    run_id: int


def place_of(run: Run) -> Place:
    """The place of a run in a list."""
    return Place(run.finished_at is None, run.slot, run.run_id)


class Runs:
    """Use cases about runs."""

    def __init__(self, store: Store, names: Names, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def submit(
        self, submission: Submission | str, *, key: str | None = None, actor: str | None = None
    ) -> int:
        """Create one run; returns its id. `key` makes the call safe to repeat."""
        wanted = Submission(pipeline=submission) if isinstance(submission, str) else submission
        wanted = addressed(self._names, wanted)
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
            request_answer(tx, scope, key, {"run_id": run_id})
            return run_id

        return self._store.write(body)

    def submit_many(
        self, submissions: Sequence[Submission], *, actor: str | None = None
    ) -> list[int]:
        """Create runs in one transaction; returns their ids in order."""
        checked = check_many(self._names, [addressed(self._names, s) for s in submissions])
        who = actor or self._actor

        def body(tx: Tx) -> list[int]:
            return insert(tx, self._store, self._names, checked, who)

        is_single = is_one_statement(self._names, checked)
        return self._store.write(Single(body) if is_single else body)

    def get(self, run_id: int, customer: str | None = None) -> Run:
        """One run, live or ended."""
        found = self._store.read(lambda tx: run_get(tx, run_id, self._names.customer(tx, customer)))
        if found is None:
            raise NotFound("run", encode("run", run_id))
        return found

    def detail(self, run_id: int, customer: str | None = None) -> RunDetail:
        """One run with everything that is known of it."""

        def body(tx: Tx) -> RunDetail:
            number = self._names.customer(tx, customer)
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
    ) -> list[Run]:
        """Runs, live ones first, newest first; `before` names the last run of the page before."""

        def place(tx: Tx, number: int | None) -> Place | None:
            last = None if wanted.before == FAR_FUTURE else run_get(tx, wanted.before, number)
            return None if last is None else place_of(last)

        return self._page(wanted, customer, pipeline, place)

    def page_after(
        self,
        wanted: RunFilter,
        place: Place | None,
        customer: str | None = None,
        *,
        pipeline: str | None = None,
    ) -> list[Run]:
        """The page behind a place. A run that ends meanwhile may be seen twice, never missed."""
        return self._page(wanted, customer, pipeline, lambda _tx, _number: place)

    def _page(
        self,
        wanted: RunFilter,
        customer: str | None,
        pipeline: str | None,
        find: Callable[[Tx, int | None], Place | None],
    ) -> list[Run]:
        check_limit(wanted.limit)
        if pipeline is not None:
            wanted = replace(wanted, pipeline=self._names.pipeline(pipeline, "pipeline").number)
        if wanted.state is not None and wanted.state not in tuple(RunState):
            raise InvalidInput("state", f"one of {', '.join(RunState)}", wanted.state)

        def body(tx: Tx) -> list[Run]:
            number = self._names.customer(tx, customer)
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
        """Cancel a pending run at once ("cancelled"), ask the holder of a running one ("asked")."""
        who = actor or self._actor

        def body(tx: Tx) -> str:
            number = self._names.customer(tx, customer)
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
                run_cancel_ask(tx, run_id, who, reason or None)
                tx.after_commit(lambda: self._store.wake(["cancel"]))
                return "asked"
            token = run_cancel_pending(tx, run_id)
            assert token is not None, "the row is locked"
            end = settle.cancelled(held._replace(token=token), actor=who, why=reason or None)
            ended_runs = run_end_many(tx, [end])
            assert ended_runs, "the row is locked"
            return "cancelled"

        return self._store.write(body)

    def retry(self, run_id: int, *, customer: str | None = None, actor: str | None = None) -> int:
        """Run an ended run again, now, as a new chain; returns the new run's id."""
        who = actor or self._actor

        def body(tx: Tx) -> int:
            number = self._names.customer(tx, customer)
            old = run_get(tx, run_id, number)
            if old is None:
                raise NotFound("run", encode("run", run_id))
            if old.finished_at is None:
                raise IllegalTransition("run", encode("run", run_id), old.state, "PENDING (retry)")
            row = self._current(tx, old)
            owner = customer_get(tx, old.customer_id)
            assert owner is not None
            config = _config_for_retry(tx, old, owner)
            new = NewRun(
                customer=owner,
                processor=row.processor,
                config_id=old.config_id,
                flow_id=old.flow_id,
                partition=old.partition,
                mode=old.mode,
                slot=None if config is None else free_slot(tx, config),
                scheduled_time=tx.now(),
                priority=old.priority,
                max_execution_us=None if config is None else config.max_execution_us,
                sla_us=None if config is None else config.sla_us,
                ordering_key=old.ordering_key,
                parameters=None if config is not None else old.parameters,
                correlation_id=old.correlation_id or encode("run", old.root_run_id or run_id),
                parent_run_id=run_id,
                trigger_source="manual",
            )
            new_id = run_insert_many(tx, [new], who)[0]
            dead_letter_resolve(
                tx,
                kind="run",
                subject=run_id,
                status="replayed",
                actor=who,
                resolution=f"replayed as {encode('run', new_id)}",
            )
            tx.after_commit(lambda: self._store.wake([f"runs:{row.pool}"]))
            return new_id

        return self._store.write(body)

    def dead_letters(
        self,
        *,
        status: str | None = "open",
        customer: str | None = None,
        before: int = FAR_FUTURE,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """Runs that died, newest first; `before` continues an earlier page."""
        check_limit(limit)
        if status not in (None, *DEAD_STATUSES):
            raise InvalidInput("status", f"one of {', '.join(DEAD_STATUSES)}", status)
        return self._store.read(
            lambda tx: dead_letter_list(
                tx,
                status=status,
                customer=self._names.customer(tx, customer),
                before=before,
                limit=limit,
            )
        )

    def discard(
        self, run_id: int, reason: str, *, customer: str | None = None, actor: str | None = None
    ) -> None:
        """Close a dead letter without running it again."""
        if not reason:
            raise InvalidInput("reason", "why the dead letter is discarded", reason)
        who = actor or self._actor

        def body(tx: Tx) -> None:
            if run_get(tx, run_id, self._names.customer(tx, customer)) is None:
                raise NotFound("run", encode("run", run_id))
            if not dead_letter_resolve(
                tx, kind="run", subject=run_id, status="discarded", actor=who, resolution=reason
            ):
                raise Conflict(f"{encode('run', run_id)} is not an open dead letter.")

        self._store.write(body)

    def _current(self, tx: Tx, old: Run) -> ProcessorRow:
        """The processor of an ended run, as long as it is still declared."""
        info = self._names.pipeline(old.pipeline, "pipeline", tx)
        for row in info.processors:
            if row.is_current and (row.phase, row.name) == (old.phase, old.processor):
                return row
        path = f"{old.pipeline}/{old.phase}/{old.processor}"
        raise Conflict(f"{path} is no longer declared: submit a run of another processor.")


def _listed(tx: Tx, wanted: RunFilter, place: Place | None) -> list[Run]:
    """Live runs, then ended ones, behind a place."""
    found = replace(wanted, before=FAR_FUTURE)
    runs: list[Run] = []
    if wanted.state in (None, *LIVE) and (place is None or place.is_live):
        before = FAR_FUTURE if place is None else place.run_id
        runs = run_list_live(tx, replace(found, before=before))
    if wanted.state in LIVE or len(runs) == wanted.limit:
        return runs
    # Live runs go by id, ended ones by slot and id: the second list starts from its top.
    if place is not None and not place.is_live:
        found = replace(found, before=place.run_id, slot_before=place.slot)
    return runs + run_list_ended(tx, replace(found, limit=wanted.limit - len(runs)))


def _config_for_retry(tx: Tx, old: Run, owner: int) -> Config | None:
    """Lock what a retry may collide with; Conflict while another attempt has not ended."""
    root = old.root_run_id or old.run_id
    if old.config_id is not None:
        config_lock(tx, old.config_id)
        schedule_get(tx, old.config_id)  # a tick that holds the row goes first
    live = run_list_live(tx, RunFilter(customer=owner, config_id=old.config_id, limit=LOOK))
    for run in live:
        if root in (run.root_run_id, run.run_id) or run.parent_run_id == old.run_id:
            name = encode("run", run.run_id)
            raise Conflict(
                f"{name} already tries it again ({run.state}): penstock runs show {name}"
            )
    config = None if old.config_id is None else config_get(tx, old.config_id)
    if config is not None:
        check_overlap(config, live, encode("cfg", config.config_id))
    return config
