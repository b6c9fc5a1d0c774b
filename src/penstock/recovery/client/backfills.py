"""Use cases of backfills: start, read, pause, resume and cancel.

A backfill is stored in the database. `recovery.backfiller` executes it in the scheduler process, so
it continues after the caller exits; the caller's progress bar only reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.audit.rows import Entry
from penstock.audit.store.alerts import alert_resolve
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import FAR_FUTURE
from penstock.core.errors import IllegalTransition, NotFound
from penstock.core.ids import decode_or_not_found, encode
from penstock.core.naming import CustomerKey
from penstock.core.records.parameters import CustomerFilter, PipelineFilter
from penstock.core.records.record import Meta, Page
from penstock.db.store import Transactions, Tx
from penstock.flows.client.closing import flow_close
from penstock.flows.rows import BACKFILL
from penstock.recovery.client.backfill_start import (
    backfill_choose,
    backfill_create,
    backfill_impact,
)
from penstock.recovery.fates import (
    ALERT_RULES,
    ENDED,
    BackfillState,
)
from penstock.recovery.from_rows import backfill_record, partition_record
from penstock.recovery.records import (
    Backfill,
    BackfillPartition,
    BackfillRequest,
    BackfillStart,
)
from penstock.recovery.rows import BackfillRow, PartitionRow
from penstock.recovery.store.backfills import (
    backfill_counts,
    backfill_get,
    backfill_list,
    backfill_lock,
    backfill_open_flows,
    backfill_partition_again,
    backfill_partition_end_pending,
    backfill_partition_list,
    backfill_set,
    backfill_settle,
)

__all__ = ["Backfills"]

SHOWN_MAX: Final = 1_000

BackfillId = Annotated[
    str, Meta(description="Id of the backfill (`bf_…`).", examples=["bf_7h2kq0v3"], max_length=64)
]
BackfillStateFilter = Annotated[
    Literal["RUNNING", "PAUSED", "COMPLETE", "FAILED", "CANCELLED"] | None,
    Meta(description="Return only backfills in this state."),
]
PartitionStateFilter = Annotated[
    Literal["PENDING", "RUNNING", "COMPLETE", "DEGRADED", "FAILED", "CANCELLED", "SKIPPED"] | None,
    Meta(description="Return only partitions in this state."),
]
ActionReason = Annotated[
    str, Meta(description="Reason for the action, stored with its record.", max_length=500)
]
Again = Annotated[
    bool, Meta(description="Whether to process failed and cancelled partitions again.")
]
NewParallelism = Annotated[
    Annotated[int, Meta(ge=1, le=1_000)] | None,
    Meta(description="New number of partitions in progress at a time; unchanged when omitted."),
]


class Backfills:
    """Use cases of backfills."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def start(self, request: BackfillRequest) -> BackfillStart:
        """Process a range of partitions in the background, a bounded number at a time.

        Partitions that are complete or in progress are skipped. A dry run returns what would start,
        what would be overwritten and how long it will probably take.
        """

        def body(tx: Tx) -> BackfillStart:
            chosen = backfill_choose(tx, self._names, request)
            impact = backfill_impact(tx, request, chosen)
            made = None
            if not request.is_dry_run:
                number = backfill_create(tx, self._names, request, chosen, self._actor)
                made = _record(tx, self._must(backfill_get(tx, number), ""))
            return BackfillStart(
                is_dry_run=request.is_dry_run,
                backfill=made,
                impact=impact,
                starts=chosen.starts[:SHOWN_MAX],
                skipped=[f"{name}: {why}" for name, why in chosen.skipped.items()][:SHOWN_MAX],
            )

        return self._store.write(body)

    def get(self, backfill_id: BackfillId) -> Backfill:
        """Return a backfill with its progress."""
        number = decode_or_not_found("bf", "backfill", backfill_id)

        def body(tx: Tx) -> Backfill:
            row = self._must(backfill_get(tx, number, self._own(tx)), backfill_id)
            return _record(tx, row)

        return self._store.read(body)

    def list(
        self,
        *,
        customer: CustomerFilter = None,
        pipeline: PipelineFilter = None,
        state: BackfillStateFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[Backfill]:
        """List backfills, newest first, with their progress."""

        def body(tx: Tx, before: int) -> Sequence[Backfill]:
            info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
            rows = backfill_list(
                tx,
                customer_key=self._names.customer_key(tx, customer),
                pipeline_key=None if info is None else info.pipeline_key,
                state=state,
                before=before,
                limit=limit,
            )
            counts = backfill_counts(tx, [row.backfill_id for row in rows])
            now = tx.now()
            return [backfill_record(row, counts[row.backfill_id], now) for row in rows]

        return paged(
            self._names,
            "backfills",
            lambda after: self._store.read(
                lambda tx: body(tx, FAR_FUTURE if after is None else after[0])
            ),
            cursor=cursor,
            limit=limit,
            position=lambda one: [decode_or_not_found("bf", "backfill", one.backfill_id)],
            record=lambda one: one,
            filters={"customer": customer, "pipeline": pipeline, "state": state},
        )

    def partitions(
        self,
        backfill_id: BackfillId,
        *,
        state: PartitionStateFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[BackfillPartition]:
        """List the partitions of a backfill in the order in which they start."""
        number = decode_or_not_found("bf", "backfill", backfill_id)

        def body(tx: Tx, after: int) -> Sequence[PartitionRow]:
            self._must(backfill_get(tx, number, self._own(tx)), backfill_id)
            return backfill_partition_list(tx, number, state=state, after=after, limit=limit)

        return paged(
            self._names,
            "backfills.partitions",
            lambda after: self._store.read(lambda tx: body(tx, 0 if after is None else after[0])),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.position],
            record=partition_record,
            filters={"backfill_id": backfill_id, "state": state},
        )

    def pause(self, backfill_id: BackfillId, reason: ActionReason = "") -> Backfill:
        """Start no more partitions; those in progress continue."""

        def act(tx: Tx, row: BackfillRow) -> None:
            if row.state != BackfillState.RUNNING:
                raise IllegalTransition("backfill", backfill_id, row.state, BackfillState.PAUSED)
            backfill_set(tx, row.backfill_id, BackfillState.PAUSED, reason or "paused manually")

        return self._changed(backfill_id, "paused", BackfillState.PAUSED, reason, act)

    def resume(
        self,
        backfill_id: BackfillId,
        reason: ActionReason = "",
        *,
        again: Again = False,
        parallelism: NewParallelism = None,
    ) -> Backfill:
        """Continue a paused backfill; with `again`, also repeat failed and cancelled partitions.

        A backfill that has ended can only be resumed with `again`.
        """

        def act(tx: Tx, row: BackfillRow) -> None:
            number = row.backfill_id
            settled, repeated_ones = backfill_settle(tx, number), 0
            if again:
                why = f"{encode('bf', number)} processes the partition again"
                while not self._close_flows(tx, number, why, only_failed=True):
                    settled += backfill_settle(tx, number)  # a retried flow completed just now
                repeated_ones = backfill_partition_again(tx, number)
            if row.state in ENDED and not repeated_ones and not settled:
                raise IllegalTransition("backfill", backfill_id, row.state, BackfillState.RUNNING)
            if row.state == BackfillState.RUNNING and not repeated_ones and parallelism is None:
                raise IllegalTransition("backfill", backfill_id, row.state, BackfillState.RUNNING)
            backfill_set(tx, number, BackfillState.RUNNING, None, parallelism)
            self._resolve_alerts(tx, number)

        return self._changed(backfill_id, "resumed", BackfillState.RUNNING, reason, act)

    def cancel(self, backfill_id: BackfillId, reason: ActionReason = "") -> Backfill:
        """Cancel a backfill and its flows in progress. Completed partitions stay complete.

        To let partitions in progress finish, pause it instead.
        """

        def act(tx: Tx, row: BackfillRow) -> None:
            number = row.backfill_id
            if row.state in ENDED:
                raise IllegalTransition("backfill", backfill_id, row.state, BackfillState.CANCELLED)
            why = reason or f"{encode('bf', number)} was cancelled"
            backfill_partition_end_pending(tx, number, why)
            self._close_flows(tx, number, why)
            backfill_settle(tx, number)
            backfill_set(tx, number, BackfillState.CANCELLED, why)
            self._resolve_alerts(tx, number)

        return self._changed(backfill_id, "cancelled", BackfillState.CANCELLED, reason, act)

    def _close_flows(self, tx: Tx, number: int, why: str, *, only_failed: bool = False) -> bool:
        """Close the open flows of a backfill. Return False if one of them ended in the meantime."""
        flows = backfill_open_flows(tx, number, only_failed=only_failed)
        closed = [flow_close(tx, flow_id, self._actor, why) for flow_id in flows]
        tx.wake(["cancel", "flows"])
        return None not in closed

    def _changed(
        self, backfill_id: str, action: str, state: BackfillState, reason: str, act: Any
    ) -> Backfill:
        """Change a locked backfill and record the actor."""
        number = decode_or_not_found("bf", "backfill", backfill_id)

        def body(tx: Tx) -> Backfill:
            row = self._must(backfill_lock(tx, number, self._own(tx)), backfill_id)
            act(tx, row)
            entry = Entry("backfill", number, row.customer_key, action, self._actor, row.state,
                          state.value, None, reason or None)  # fmt: skip
            journal_append_many(tx, [entry])
            tx.wake([BACKFILL])
            return _record(tx, self._must(backfill_get(tx, number), backfill_id))

        return self._store.write(body)

    def _own(self, tx: Tx) -> CustomerKey | None:
        return self._names.customer_key(tx, None)

    def _must(self, row: BackfillRow | None, backfill_id: str) -> BackfillRow:
        if row is None:
            raise NotFound("backfill", backfill_id)
        return row

    def _resolve_alerts(self, tx: Tx, number: int) -> None:
        for rule in ALERT_RULES:
            alert_resolve(tx, f"{rule}:{number}", self._actor)


def _record(tx: Tx, row: BackfillRow) -> Backfill:
    counts = backfill_counts(tx, [row.backfill_id])[row.backfill_id]
    return backfill_record(row, counts, tx.now())
