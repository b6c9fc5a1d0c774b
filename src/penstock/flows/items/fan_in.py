"""The fan-in of items: when a processor with many runs is complete, and with which status.

Pure rules over the counts of an expansion. Items count like the processors of a phase: the
processor completes when all of them have ended, or at the phase's straggler deadline once enough of
them have succeeded (`min_items`).
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from penstock.core.naming import CustomerKey, ProcessorKey
from penstock.flows.cascade import CompletionStatus


class ExpansionState(StrEnum):
    """Whether the items of an expansion are known."""

    EVALUATING = "EVALUATING"
    """Its items are not known yet."""
    SEALED = "SEALED"
    """Its items are stored and no longer change."""
    FAILED = "FAILED"
    """Its items could not be determined."""
    CANCELLED = "CANCELLED"
    """Its flow was cancelled or failed at its deadline."""


class ExpansionRow(NamedTuple):
    """The expansion of one processor in one flow (SQL fragment `expansion_columns`)."""

    flow_id: int
    processor_key: ProcessorKey
    customer_key: CustomerKey
    phase: str
    processor: str
    state: str
    source: str
    is_entry: bool
    started_at: int
    sealed_at: int | None
    total: int
    created: int
    succeeded: int
    partial: int
    failed: int
    records: int
    due_at: int | None
    token: int
    tries: int
    error: str | None

    @property
    def done(self) -> int:
        """Number of items that succeeded, fully or in part."""
        return self.succeeded + self.partial

    @property
    def ended(self) -> int:
        """Number of items that ended."""
        return self.done + self.failed

    @property
    def is_incomplete(self) -> bool:
        """Whether items failed or have not ended."""
        return self.state != ExpansionState.SEALED or self.done < self.total


def quorum(total: int, min_items: float) -> int:
    """Return how many of the items must succeed."""
    return math.ceil(min_items * total - 1e-9)


def fan_in_status(
    row: ExpansionRow, min_items: float, *, stragglers_passed: bool
) -> CompletionStatus | None:
    """Return the status with which the processor completes now; None while it continues.

    An item that is retried manually counts as failed until it has succeeded.
    """
    if row.state == ExpansionState.FAILED:
        return CompletionStatus.FAILED
    if row.state != ExpansionState.SEALED:
        return None
    if row.succeeded >= row.total:
        return CompletionStatus.SUCCESS
    is_enough = row.done >= quorum(row.total, min_items)
    if row.ended >= row.total:
        return CompletionStatus.PARTIAL if is_enough else CompletionStatus.FAILED
    return CompletionStatus.PARTIAL if stragglers_passed and is_enough else None
