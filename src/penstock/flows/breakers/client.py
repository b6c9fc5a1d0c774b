"""Use cases of breakers: list, explain, reset.

A reset is one transaction that clears the failures, appends to the audit trail and the journal,
resolves the alert and requests a new evaluation of the partition's gates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.audit.rows import Entry
from penstock.audit.store.alerts import alert_resolve
from penstock.audit.store.journal import journal_append_many
from penstock.core.errors import NotFound
from penstock.core.ids import encode
from penstock.core.records.parameters import (
    CustomerFilter,
    CustomerOrDefault,
    PartitionFilter,
    PhaseFilter,
    PipelineFilter,
    PipelineName,
)
from penstock.core.records.record import Meta, Page
from penstock.db.store import Transactions, Tx
from penstock.flows.advance.messages import breaker_alert_key
from penstock.flows.breakers.from_rows import breaker_detail, breaker_record
from penstock.flows.breakers.records import (
    BreakerDetail,
    BreakerReset,
    BreakerTarget,
    PhaseBreaker,
)
from penstock.flows.breakers.rows import BreakerFilter, BreakerRow
from penstock.flows.breakers.store import (
    breaker_blocks,
    breaker_failures,
    breaker_list,
    breaker_reset,
)
from penstock.flows.store.completions import flow_event_put_for_partition
from penstock.schedules.store.configs import Change, audit_append

__all__ = ["Breakers"]

CHANNEL: Final = "flows"

_PARTITION = Meta(description="Partition of the data, such as `2025-12-31`.", max_length=500)
_PHASE = Meta(description="Phase of the breaker.", max_length=200)
_STATE = Meta(
    description="open: only open breakers; all: also closed ones that have counted failures."
)


class Breakers:
    """Use cases of breakers."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def list(
        self,
        *,
        state: Annotated[Literal["open", "all"], _STATE] = "open",
        customer: CustomerFilter = None,
        pipeline: PipelineFilter = None,
        partition: PartitionFilter = None,
        phase: PhaseFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[PhaseBreaker]:
        """List breakers, by customer, pipeline, partition and phase."""

        def body(tx: Tx, after: Sequence[Any] | None) -> Sequence[tuple[BreakerRow, int]]:
            info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
            wanted = BreakerFilter(
                customer=self._names.customer_key(tx, customer),
                pipeline=None if info is None else info.pipeline_key,
                partition=partition,
                phase=phase,
                is_open=state == "open",
                limit=limit,
            )
            if after is not None:
                wanted = wanted._replace(after=(after[0], after[1], after[2], after[3]))
            now = tx.now()
            return [(row, now) for row in breaker_list(tx, wanted)]

        return paged(
            self._names,
            "breakers",
            lambda after: self._store.read(lambda tx: body(tx, after)),
            cursor=cursor,
            limit=limit,
            position=lambda found: list(found[0].key),
            record=lambda found: breaker_record(*found),
            filters={
                "state": state, "customer": customer, "pipeline": pipeline, "partition": partition,
                "phase": phase,
            },
        )  # fmt: skip

    def get(
        self,
        pipeline: PipelineName,
        partition: Annotated[str, _PARTITION],
        phase: Annotated[str, _PHASE],
        *,
        customer: CustomerOrDefault = None,
    ) -> BreakerDetail:
        """Explain a breaker: its failures, the flows that it blocks, and when it allows a trial."""
        wanted = BreakerTarget(
            pipeline=pipeline, partition=partition, phase=phase, customer=customer
        )

        def body(tx: Tx) -> BreakerDetail:
            row = self._row(tx, wanted)
            return breaker_detail(row, tx.now(), breaker_failures(tx, row), breaker_blocks(tx, row))

        return self._store.read(body)

    def reset(self, target: BreakerTarget) -> BreakerReset:
        """Close a breaker and evaluate the gates that it blocked. Its failures are cleared."""
        who = self._actor

        def body(tx: Tx) -> BreakerReset:
            row = self._row(tx, target)
            before = breaker_record(row, tx.now())
            breaker_reset(tx, row)
            customer, pipeline, partition, phase = row.key
            flows = flow_event_put_for_partition(tx, row.customer_key, row.pipeline_key, partition)
            shown = {
                "pipeline": row.pipeline, "partition": partition, "phase": phase,
                "failures": row.failures, "opened_at": row.opened_at,
            }  # fmt: skip
            change = Change(row.customer_key, "BREAKER_RESET", None, who, target.reason, shown)
            audit_append(tx, [change])
            detail = json.dumps({"phase": phase, "partition": partition}, sort_keys=True)
            journal_append_many(
                tx,
                [
                    Entry("flow", flow_id, row.customer_key, "breaker_reset", who, before.state,
                          "CLOSED", None, target.reason or None, detail)
                    for flow_id in flows
                ],
            )  # fmt: skip
            alert_resolve(tx, breaker_alert_key((customer, pipeline, partition), phase), who)
            tx.after_commit(lambda: self._store.wake([CHANNEL]))
            return BreakerReset(breaker=before, flow_ids=[encode("flow", f) for f in flows])

        return self._store.write(body)

    def _row(self, tx: Tx, wanted: BreakerTarget) -> BreakerRow:
        info = self._names.pipeline(wanted.pipeline, "pipeline", tx)
        customer_id = self._names.customer_or_default(wanted.customer)
        given = BreakerFilter(
            customer=self._names.customer_key(tx, customer_id),
            pipeline=info.pipeline_key,
            partition=wanted.partition,
            phase=wanted.phase,
            is_open=False,
            limit=1,
        )
        found = breaker_list(tx, given)
        if not found:
            name = f"{wanted.pipeline} {wanted.partition} {wanted.phase} of {customer_id}"
            raise NotFound("breaker with failures", name)
        return found[0]
