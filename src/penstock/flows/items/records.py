"""Records of items: one item of a processor, the counts of all of them, and a retry of several."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from penstock.core.records.record import Meta, Record, Time, field

__all__ = ["FlowItem", "ItemError", "ItemRetry", "ItemSummary", "ItemsRetried"]

ItemState: TypeAlias = Literal["waiting", "running", "succeeded", "partial", "failed"]


class FlowItem(Record):
    """An item of a processor in a flow, with its latest run."""

    item_key: str
    """Key of the item, unique among the items of the processor."""
    phase: str
    """Phase of the processor."""
    processor: str
    """Processor that has one run per item."""
    state: ItemState
    """waiting or running while it has a live run, otherwise succeeded, partial or failed."""
    run_id: str
    """The live run, or the run that ended last (`run_…`)."""
    since: Time
    """Time at which it entered its state."""
    error_type: str | None
    """Error type; null unless it failed."""
    records: int | None
    """Number of records that the processor reported for the item; null before its end."""


class ItemError(Record):
    """Number of items that failed with the same kind of error."""

    error_type: str
    """Error type, or CANCELLED."""
    count: int
    """Number of failed items."""


class ItemSummary(Record):
    """The items of one processor in a flow, as counts."""

    phase: str
    """Phase of the processor."""
    processor: str
    """Processor that has one run per item."""
    state: Literal["EVALUATING", "SEALED", "FAILED", "CANCELLED"]
    """Whether the items are being determined, are stored, could not be determined, or were
    cancelled with their flow."""
    total: int
    """Number of items; 0 until they are known."""
    created: int
    """Number of items whose runs were created; long lists are created in parts."""
    succeeded: int
    """Number of items that succeeded."""
    partial: int
    """Number of items that succeeded in part."""
    failed: int
    """Number of items that failed and have not succeeded since."""
    required: int
    """Number of items that must succeed (`min_items`)."""
    records: int
    """Number of records that the processor reported for all items."""
    error: str | None
    """Why the items could not be determined; null otherwise."""
    errors: list[ItemError]
    """Kinds of errors of failed items, most frequent first; at most five."""
    first_failures: list[FlowItem]
    """The first failed items by key; at most five."""


class ItemRetry(Record):
    """The items of a flow to run again; without a filter, all failed items."""

    processor: str | None = None
    """Only items of this processor; required if the flow has items of several."""
    items: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=500)] = field(
        default_factory=list
    )
    """Keys of the items, failed or not; if empty, all failed items that match the other filters."""
    match: Annotated[str, Meta(max_length=200)] | None = None
    """Only failed items whose key matches this pattern, such as `2025-*`."""
    error_type: Annotated[str, Meta(max_length=64)] | None = None
    """Only items that failed with this kind of error."""


class ItemsRetried(Record):
    """The runs that a retry of items created."""

    flow_id: str
    """Id of the flow (`flow_…`)."""
    run_ids: list[str]
    """New runs, in the order of their items' keys; at most 500."""
    items: list[str]
    """Keys of the items, in the same order."""
    has_more: bool
    """Whether more items match; repeat the request."""
