"""Rows of reports of changed entities, and of the inputs of incremental processors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from penstock.core.naming import CustomerKey, PipelineKey, ProcessorKey
from penstock.entities.report import EntityId, EntityReport

InputKey: TypeAlias = tuple[int, int]
"""Flow and processor."""


class ChangeReport(NamedTuple):
    """The report of an ended run; `is_reported` is False if it reported nothing."""

    run_id: int
    report: EntityReport
    is_reported: bool = True


class ReportedEntities(NamedTuple):
    """The changes that the executions of a processor in a flow reported."""

    counts: Mapping[str, int]
    """Number of ids by kind; an id that several executions reported counts once for each."""
    ids: Mapping[str, Sequence[EntityId]] | None
    """Ids by kind; None if there are too many to list."""
    unknown: str | None
    """Why everything may have changed; None if the ids are known."""


class InputRequest(NamedTuple):
    """An incremental processor that starts in a flow."""

    flow_id: int
    processor_key: ProcessorKey
    customer_key: CustomerKey
    pipeline_key: PipelineKey
    config_id: int
    partition: str
    """Partition whose changes it receives; empty for those of all partitions."""
    kinds: tuple[str, ...]
    names: Mapping[int, str]
    """The processors before it, by key."""
    required: frozenset[int]
    """Processors among them that must report."""
    signature: str
    is_rerun: bool
    moves: bool
    """Whether its success moves its watermark."""

    @property
    def series(self) -> tuple[int, int, int]:
        """Key of the series of flows: customer, pipeline, config."""
        return self.customer_key, self.pipeline_key, self.config_id


class NewInput(NamedTuple):
    """The input of a processor in a flow (batch of `entity_input_put_many`)."""

    flow_id: int
    processor_key: ProcessorKey
    customer_key: CustomerKey
    pipeline_key: PipelineKey
    config_id: int
    partition: str
    epoch: int
    signature: str
    kinds: str
    changes: str
    reason: str | None
    moves: bool
    chosen: str | None = None
    """Ids by kind that a replay chose, as JSON; None for the ids in the reports."""


class EntityChange(NamedTuple):
    """A report that names an entity."""

    change_id: int
    flow_id: int | None
    pipeline: str
    pipeline_key: PipelineKey
    config_id: int
    phase: str
    processor: str
    partition: str | None
    mode: str | None
    run_id: int | None
    execution_id: str | None
    at: int
    epoch: int | None


class InputRow(NamedTuple):
    """The stored input of a processor in a flow."""

    flow_id: int
    processor_key: int
    kinds: str
    changes: str
    reason: str | None
    moves: bool
    phase: str
    name: str
    chosen: str | None = None

    @property
    def key(self) -> InputKey:
        """Flow and processor."""
        return self.flow_id, self.processor_key
