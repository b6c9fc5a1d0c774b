"""Use cases of runs: submit, read, cancel, retry.

A submitted run is durable when the call returns. A repeated submit with the same idempotency key
returns the same run; the same key with another submission is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias, Unpack

import msgspec

from penstock.access.store.names import NameResolver, PipelineInfo, check_limit
from penstock.access.store.paging import Cursor, Offset, PageLimit, paged_part
from penstock.access.store.registry import customer_get
from penstock.audit.from_rows import journal_record
from penstock.audit.store.alerts import request_begin, request_finish
from penstock.audit.store.journal import journal_for
from penstock.audit.store.kept import HISTORY, kept_until
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.fields import check_customer, check_text
from penstock.core.formatting import id_or_none
from penstock.core.ids import decode, encode
from penstock.core.naming import CustomerKey
from penstock.core.records.parameters import (
    CustomerFilter,
    IdempotencyKey,
    PipelineFilter,
    RunId,
)
from penstock.core.records.record import JsonObject, Meta, Page, time_or_none
from penstock.core.records.remotely import remotely
from penstock.core.redact import redact
from penstock.db.store import Single, Transactions, Tx
from penstock.entities.store import inputs_of_flow
from penstock.runs.action_records import RunCheckpoint, RunUpstream
from penstock.runs.client.actions import SOURCE
from penstock.runs.client.filters import Before, RunFilters, RunOrder, Text, row_filter
from penstock.runs.client.listing import run_page
from penstock.runs.client.retry import run_retry
from penstock.runs.client.stop import run_stop
from penstock.runs.client.submission import (
    check_many,
    checked_parameters,
    fingerprint,
    insert,
    is_one_statement,
    with_customer,
)
from penstock.runs.from_rows import (
    action_record,
    artifact_record,
    checkpoint_record,
    counts_record,
    endpoint_record,
    logs_record,
    progress_record,
    run_record,
    similar_record,
)
from penstock.runs.hooks import sub_flows_of, upstream_of
from penstock.runs.records import (
    Cancellation,
    Run,
    RunCounts,
    RunDetail,
    RunInput,
    RunLogs,
    RunRef,
    Submission,
)
from penstock.runs.rows import RunRow
from penstock.runs.store.actions import action_cause, action_list, artifact_list, state_get
from penstock.runs.store.durations import eta_of
from penstock.runs.store.leases import progress_get
from penstock.runs.store.lists.counts import run_count
from penstock.runs.store.lists.pages import RunPosition, RunsPart
from penstock.runs.store.logs import run_log_list
from penstock.runs.store.runs import (
    run_chain,
    run_get,
    run_live_retry,
)
from penstock.runs.store.similar import run_similar

__all__ = ["Runs"]

Ids: TypeAlias = list[str]

REASON_MAX = 500

_PARAMETERS = Meta(description="Parameters that replace those of the run; null keeps them.")
_CONFIG_PARAMETERS = Meta(
    description="Use the current parameters of the run's config instead of those of the run."
)
_FORCE = Meta(
    description="End a claimed or running run now, without waiting for its worker to stop it."
)
_PROCESSOR = Meta(description="Count only runs of this processor, such as `load` or `main.load`.")
_REASON = Meta(description="Reason for the action, stored with its record.", max_length=REASON_MAX)


class Runs:
    """Use cases of runs."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def submit(self, submission: Submission, *, key: IdempotencyKey = None) -> RunRef:
        """Create a run for a customer. It is durable when the response arrives."""
        if key is not None:
            check_text("key", key)
        wanted = with_customer(self._names, submission)
        checked = check_many(self._names, [wanted])
        is_single = key is None and is_one_statement(self._names, checked)

        def created(tx: Tx) -> RunRef:
            (number,) = insert(
                tx, self._store, self._names, checked, self._actor, is_single=is_single
            )
            return RunRef(run_id=encode("run", number))

        if key is None:
            return self._store.write(Single(created) if is_single else created)
        scope = self._names.request_scope(f"submit:{check_customer(wanted.customer)}")

        def body(tx: Tx) -> RunRef:
            earlier = request_begin(tx, scope, key, fingerprint(checked[0]))
            if earlier is not None:
                return RunRef(run_id=encode("run", int(earlier["run_id"])))
            made = created(tx)
            request_finish(tx, scope, key, {"run_id": decode("run", made.run_id)})
            return made

        return self._store.write(body)

    def submit_many(self, submissions: Sequence[Submission]) -> Ids:
        """Create runs in one transaction and return their ids in order."""
        checked = check_many(self._names, [with_customer(self._names, s) for s in submissions])
        is_single = is_one_statement(self._names, checked)

        def body(tx: Tx) -> Sequence[int]:
            return insert(tx, self._store, self._names, checked, self._actor, is_single=is_single)

        numbers = self._store.write(Single(body) if is_single else body)
        return [encode("run", number) for number in numbers]

    @remotely(lambda runs, run_id: runs.detail(run_id).run)
    def get(self, run_id: RunId) -> Run:
        """Return one run, live or ended; raise NotFound if it does not exist."""
        return run_record(self._store.read(lambda tx: self._found(tx, run_id)))

    def detail(self, run_id: RunId) -> RunDetail:
        """Return a run with its attempts, journal, progress, actions and artifacts."""
        pipelines = self._names.cached_pipelines()

        def body(tx: Tx) -> RunDetail:
            row = self._found(tx, run_id)
            owner = customer_get(tx, row.customer_id)
            assert owner is not None
            progress = progress_get(tx, row.run_id)
            attempts = [one for one in run_chain(tx, row, owner) if one.run_id != row.run_id]
            live = run_live_retry(tx, row, owner)
            state = state_get(tx, row.root_run_id or row.run_id, row.parent_run_id)
            return RunDetail(
                run=run_record(row),
                **_outlook(tx, row, self._names.customer_key(tx, None)),
                attempts=[run_record(one) for one in (*attempts, live) if one is not None],
                journal=[journal_record(entry) for entry in journal_for(tx, "run", row.run_id)],
                progress=None if progress is None else progress_record(*progress),
                actions=[action_record(one) for one in action_list(tx, row.run_id)],
                artifacts=[artifact_record(one) for one in artifact_list(tx, row.run_id)],
                checkpoint=None if state is None else _shown(checkpoint_record(row.run_id, state)),
                sub_flows=sub_flows_of(tx, row.run_id),
                caused_by=_cause(tx, row),
                endpoint=endpoint_record(_endpoint_url(pipelines, row), row, attempts, progress),
            )

        return self._store.read(body)

    def logs(self, run_id: RunId) -> RunLogs:
        """Return the log entries of a run.

        A worker stores them every few seconds and when the run ends. They are kept as long as the
        run history.
        """

        def body(tx: Tx) -> RunLogs:
            row = self._found(tx, run_id)
            return logs_record(row.run_id, run_log_list(tx, row.run_id))

        return self._store.read(body)

    def upstream(self, run_id: RunId) -> RunUpstream:
        """Return the results that earlier phases of the run's flow reported."""

        def body(tx: Tx) -> RunUpstream:
            row = self._found(tx, run_id)
            found = [] if row.flow_id is None else upstream_of(tx, row.flow_id, row.phase)
            return RunUpstream(run_id=encode("run", row.run_id), results=found)

        return self._store.read(body)

    def list(
        self,
        *,
        customer: CustomerFilter = None,
        sort: RunOrder = "newest",
        before: Before = None,
        limit: PageLimit = 50,
        offset: Offset = 0,
        cursor: Cursor = None,
        **filters: Unpack[RunFilters],
    ) -> Page[Run]:
        """List runs. Active runs come first, then ended ones, newest first.

        Ended runs of one customer are ordered by scheduled time. Across all customers, runs that
        are filtered by anything but an id are ordered by the time they ended, as are all lists with
        `ended_since`, `ended_until` or `sort=ended_at`. A page may have fewer runs than `limit` if
        few of many examined rows match; `next_cursor` continues the search. A run that ends between
        two pages may appear twice, but is never missed.
        """
        wanted = row_filter(self._names, filters, sort)
        check_limit(limit)

        def read(after: Sequence[Any] | None) -> tuple[Sequence[Run], RunPosition | None]:
            def body(tx: Tx) -> RunsPart:
                key = self._names.customer_key(tx, customer)
                start: RunPosition | RunRow | None = None if after is None else RunPosition(*after)
                if start is None and before is not None:
                    start = self._found(tx, before)
                skipped = 0 if start is not None else offset
                part = run_page(tx, replace(wanted, customer=key, limit=limit + skipped), start)
                return part._replace(rows=part.rows[skipped:])

            part = self._store.read(body)
            return [run_record(row) for row in part.rows], part.following

        asked = {**filters, "customer": customer, "state": wanted.state, "sort": sort}
        return paged_part(self._names, "runs", read, cursor=cursor, filters=asked)

    def counts(
        self,
        *,
        customer: CustomerFilter = None,
        pipeline: PipelineFilter = None,
        processor: Annotated[Text | None, _PROCESSOR] = None,
    ) -> RunCounts:
        """Count active runs by state, and the runs that ended in the last 24 hours.

        At most 10,000 pending runs, and at most 10,000 ended runs of a customer, are counted.
        """
        info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline")
        key = None if info is None else info.pipeline_key

        def body(tx: Tx) -> RunCounts:
            number = self._names.customer_key(tx, customer)
            return counts_record(run_count(tx, number, key, processor))

        return self._store.read(body)

    def cancel(
        self,
        run_id: RunId,
        *,
        reason: Annotated[str, _REASON] = "",
        force: Annotated[bool, _FORCE] = False,
    ) -> Cancellation:
        """Cancel a pending run, or ask the worker to stop. Heartbeat responses contain the request.

        A pending run is cancelled immediately. For any other live run, a request is recorded, which
        its holder carries out. `force` ends a run that ignores it: the run fails with STOP_IGNORED,
        later writes of its holder are rejected, and its limits are released.
        """
        number = self._number(run_id)

        def body(tx: Tx) -> Cancellation:
            outcome = run_stop(
                tx,
                self._store,
                number,
                customer_key=self._names.customer_key(tx, None),
                actor=self._actor,
                reason=reason or None,
                force=force,
            )
            return Cancellation(run_id=encode("run", number), outcome=outcome)

        return self._store.write(body)

    def retry(
        self,
        run_id: RunId,
        *,
        parameters: Annotated[JsonObject | None, _PARAMETERS] = None,
        use_config_parameters: Annotated[bool, _CONFIG_PARAMETERS] = False,
    ) -> RunRef:
        """Run an ended run again now, with a new set of attempts.

        The new run has the scheduled time, the partition, the parameters and the SLA of the old
        one, so that a failed scheduled occurrence is processed.
        """
        number = self._number(run_id)
        if parameters is not None and use_config_parameters:
            raise InvalidInput("parameters", "either parameters or use_config_parameters", "both")

        def body(tx: Tx) -> RunRef:
            text = None
            if parameters is not None:
                text = self._checked_parameters(tx, run_id, parameters)
            made = run_retry(
                tx,
                self._store,
                self._names,
                number,
                customer_key=self._names.customer_key(tx, None),
                actor=self._actor,
                parameters=text,
                use_config_parameters=use_config_parameters,
            )
            return RunRef(run_id=encode("run", made))

        return self._store.write(body)

    def _checked_parameters(self, tx: Tx, run_id: str, parameters: object) -> str:
        """Return parameters as JSON; raise InvalidInput unless they fit the run's pipeline."""
        old = self._found(tx, run_id)
        return checked_parameters(self._names.pipeline(old.pipeline, "pipeline", tx), parameters)

    def _number(self, run_id: str) -> int:
        """Return the database id of a run; raise NotFound for a malformed id."""
        try:
            return decode("run", run_id)
        except InvalidInput:
            raise NotFound("run", str(run_id)) from None

    def _found(self, tx: Tx, run_id: str) -> RunRow:
        row = run_get(tx, self._number(run_id), self._names.customer_key(tx, None))
        if row is None:
            raise NotFound("run", run_id)
        return row


def _shown(checkpoint: RunCheckpoint) -> RunCheckpoint:
    return msgspec.structs.replace(checkpoint, state=redact(checkpoint.state))


def _endpoint_url(pipelines: Mapping[str, PipelineInfo], row: RunRow) -> str | None:
    """Return the URL of a run's HTTP processor; None for other processors."""
    info = pipelines.get(row.pipeline)
    rows = () if info is None else info.processors
    found = next((r for r in rows if (r.phase, r.name) == (row.phase, row.processor)), None)
    return None if info is None or found is None else info.endpoint_url(found)


def _cause(tx: Tx, row: RunRow) -> str | None:
    """Return the run that created this one as an action."""
    if row.trigger_source != SOURCE:
        return None
    return id_or_none("run", action_cause(tx, "submit", row.run_id))


def _changed(tx: Tx, row: RunRow) -> RunInput | None:
    """Return the input of an incremental processor's run."""
    received = {} if row.flow_id is None else inputs_of_flow(tx, row.flow_id)
    found = received.get((row.phase, row.processor))
    if found is None:
        return None
    return RunInput(
        everything=found.everything,
        reason=found.reason,
        entities_total=found.counts,
        partitions=list(found.partitions),
    )


def _outlook(tx: Tx, row: RunRow, customer_key: CustomerKey | None) -> dict[str, Any]:
    """Return fields of a run's record: its input, its estimated end and, for an ended run, similar
    failures and its retention.
    """
    p50_at, p90_at = eta_of(tx, row)
    return {
        "changed": _changed(tx, row),
        "eta_p50_at": time_or_none(p50_at),
        "eta_p90_at": time_or_none(p90_at),
        "similar": similar_record(run_similar(tx, row, customer_key)),
        "still_kept_until": time_or_none(kept_until(tx, HISTORY, row.finished_at)),
    }
