"""Use cases of items: counts, lists, and retries of one, several or all failed items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import decode_or_not_found, encode
from penstock.core.records.parameters import FlowId
from penstock.core.records.record import Meta, Page
from penstock.db.store import Transactions, Tx
from penstock.flows.items.fan_in import ExpansionRow
from penstock.flows.items.from_rows import item_record, summary_record
from penstock.flows.items.records import FlowItem, ItemRetry, ItemsRetried, ItemSummary
from penstock.flows.items.store.expansions import expansions_of
from penstock.flows.items.store.reads import (
    ItemFilter,
    ItemRow,
    item_errors,
    item_list,
    item_retryable,
)
from penstock.flows.rows import FlowRow
from penstock.flows.store.flows import flow_get
from penstock.flows.store.plans import planned
from penstock.runs.client.retry import run_retry

__all__ = ["Items"]

FIRST_MAX: Final = 5
RETRY_MAX: Final = 500

ProcessorFilter = Annotated[
    Annotated[str, Meta(max_length=200)] | None,
    Meta(description="Return only items of this processor."),
]
ItemStateFilter = Annotated[
    Literal["waiting", "running", "succeeded", "partial", "failed"] | None,
    Meta(description="Return only items in this state."),
]


class Items:
    """Use cases of items."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def list(
        self,
        flow_id: FlowId,
        *,
        processor: ProcessorFilter = None,
        state: ItemStateFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[FlowItem]:
        """List the items of a flow by processor and key, each with its latest run."""
        number = decode_or_not_found("flow", "flow", flow_id)

        def body(tx: Tx, after: Sequence[int | str]) -> list[ItemRow]:
            flow = self._flow(tx, number)
            only = None if processor is None else self._expansion(tx, flow, processor)
            wanted = ItemFilter(
                flow_id=number,
                processor=None if only is None else only.processor_key,
                state=state,
                after_processor=int(after[0]),
                after_key=str(after[1]),
                limit=limit,
            )
            return item_list(tx, wanted)

        return paged(
            self._names,
            "items",
            lambda after: self._store.read(lambda tx: body(tx, after or (0, ""))),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.processor_key, row.item_key],
            record=item_record,
            filters={"flow_id": flow_id, "processor": processor, "state": state},
        )

    def summary(self, flow_id: FlowId) -> Page[ItemSummary]:
        """Count the items of a flow by processor, with the first failures and their errors."""
        number = decode_or_not_found("flow", "flow", flow_id)

        def body(tx: Tx) -> Page[ItemSummary]:
            flow = self._flow(tx, number)
            plan = planned(tx, flow.pipeline_key, flow.digest, flow.mode)
            return Page(
                items=[
                    summary_record(
                        row,
                        plan.fan_outs[row.phase, row.processor].min_items,
                        item_errors(tx, number, row.processor_key, FIRST_MAX),
                        item_list(
                            tx,
                            ItemFilter(number, row.processor_key, "failed", limit=FIRST_MAX),
                        ),
                    )
                    for row in expansions_of(tx, [number])[number]
                    if (row.phase, row.processor) in plan.fan_outs
                ],
                next_cursor=None,
            )

        return self._store.read(body)

    def retry(self, flow_id: FlowId, request: ItemRetry) -> ItemsRetried:
        """Run items again: the named ones, the failed ones that match, or all failed ones.

        Each gets a new run with new attempts; its dead letter is closed. Items whose run has not
        ended are skipped. At most 500 items per request.
        """
        number = decode_or_not_found("flow", "flow", flow_id)

        def body(tx: Tx) -> ItemsRetried:
            flow = self._flow(tx, number)
            found = self._retryable(tx, flow, request)
            unknown = sorted({*request.items} - {key for key, _ in found})
            if unknown:
                raise NotFound("ended item", unknown[0])
            chosen = found[:RETRY_MAX]
            made = [
                run_retry(
                    tx, self._store, self._names, run_id, customer_key=flow.customer_key,
                    actor=self._actor,
                )
                for _, run_id in chosen
            ]  # fmt: skip
            return ItemsRetried(
                flow_id=encode("flow", number),
                run_ids=[encode("run", run_id) for run_id in made],
                items=[key for key, _ in chosen],
                has_more=len(found) > RETRY_MAX,
            )

        return self._store.write(body)

    def _retryable(self, tx: Tx, flow: FlowRow, request: ItemRetry) -> Sequence[tuple[str, int]]:
        """Return the keys and last runs of the selected items, one more than the maximum."""
        if request.processor is None and not expansions_of(tx, [flow.flow_id])[flow.flow_id]:
            return []
        row = self._expansion(tx, flow, request.processor)
        return item_retryable(
            tx,
            flow.flow_id,
            row.processor_key,
            keys=request.items,
            pattern=None if request.match is None else _like(request.match),
            error_type=request.error_type,
            limit=RETRY_MAX + 1,
        )

    def _flow(self, tx: Tx, number: int) -> FlowRow:
        found = flow_get(tx, number, self._names.customer_key(tx, None))
        if found is None:
            raise NotFound("flow", encode("flow", number))
        return found

    def _expansion(self, tx: Tx, flow: FlowRow, processor: str | None) -> ExpansionRow:
        """Return the expansion of a processor; None means the only one of the flow."""
        rows = expansions_of(tx, [flow.flow_id])[flow.flow_id]
        known = ", ".join(f"{row.phase}.{row.processor}" for row in rows) or "none"
        named = [
            row
            for row in rows
            if processor in (None, row.processor, f"{row.phase}.{row.processor}")
        ]
        if len(named) == 1:
            return named[0]
        expected = f"a processor of the flow with items (among {known})"
        raise InvalidInput("processor", expected, processor)


def _like(pattern: str) -> str:
    """Convert a pattern with `*` and `?` to a LIKE pattern with backslash as escape character."""
    for mark in ("\\", "%", "_"):
        pattern = pattern.replace(mark, f"\\{mark}")
    return pattern.replace("*", "%").replace("?", "_")
