"""The read-only part of a run: its identity, partition, times, and its gate's decision.

Cheap to build: JSON is parsed and ids are encoded on first use. `context.RunContext` adds the
methods to report back; a processor sees both as one object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from penstock.access.secrets import Secrets
from penstock.core.clock import iso, to_datetime
from penstock.core.ids import encode
from penstock.core.naming import ProcessorKey
from penstock.core.tracing.trace_context import run_context
from penstock.entities.changed import NOT_INCREMENTAL, OUTSIDE, ChangedEntities
from penstock.pipelines.declare.processor import Processor
from penstock.pipelines.partition import range_of
from penstock.runs.attempt_result import retry_settings
from penstock.runs.rows import HeldRun


@dataclass(frozen=True, slots=True)
class LoadedProcessor:
    """A processor that this worker can execute, with the key that runs refer to it by."""

    processor_key: ProcessorKey
    processor: Processor
    defaults: Mapping[str, Any]
    secrets: Secrets = field(default_factory=Secrets)


class RunInfo:
    """A run's data as claimed."""

    __slots__ = ("_gate", "_known", "changed_input", "held")

    def __init__(self, held: HeldRun, known: LoadedProcessor) -> None:
        self.held = held
        self._known = known
        self._gate: Mapping[str, Any] | None = None
        self.changed_input: ChangedEntities | None = None
        """What an incremental processor receives; the worker sets it."""

    @property
    def run_id(self) -> str:
        """The run's public id."""
        return encode("run", self.held.run_id)

    @property
    def customer_id(self) -> str:
        """Id of the customer that owns the run."""
        return self.held.customer_id

    @property
    def pipeline(self) -> str:
        """Name of the pipeline."""
        return self._known.processor.pipeline

    @property
    def phase(self) -> str:
        """Name of the phase."""
        return self._known.processor.phase

    @property
    def processor(self) -> str:
        """Name of the processor."""
        return self._known.processor.name

    @property
    def declared(self) -> Processor:
        """The processor's declaration."""
        return self._known.processor

    @property
    def loaded(self) -> LoadedProcessor:
        """The worker's record of the processor."""
        return self._known

    @property
    def partition(self) -> str:
        """The slice of data to process; the scheduled time as ISO text unless one was given."""
        return (
            self.held.partition
            if self.held.partition is not None
            else iso(self.held.occurrence_time)
        )

    @property
    def partition_range(self) -> tuple[str, str] | None:
        """First and last partition of a one-pass backfill; None for a single partition."""
        return range_of(self.partition)

    @property
    def mode(self) -> str | None:
        """Mode of the flow; None outside a flow."""
        return self.held.mode

    @property
    def occurrence_time(self) -> datetime:
        """The scheduled time of the occurrence this run belongs to; retries keep it."""
        return to_datetime(self.held.occurrence_time)

    @property
    def scheduled_time(self) -> datetime:
        """Time at which this attempt was due."""
        return to_datetime(self.held.scheduled_time)

    @property
    def attempt(self) -> int:
        """Number of this attempt, starting at 1."""
        return self.held.attempt

    @property
    def max_attempts(self) -> int | None:
        """Attempts that the config or processor allows; None when the error type decides."""
        settings = retry_settings(self.held)
        return None if settings is None else settings.max_attempts

    @property
    def correlation_id(self) -> str:
        """Shared by everything that one cause started; the first attempt's id unless given."""
        return self.held.correlation_id or encode("run", self.held.root_run_id or self.held.run_id)

    @property
    def traceparent(self) -> str:
        """W3C trace context of this run, for requests and spans of the processor."""
        return run_context(self.correlation_id, self.held.run_id).header

    @property
    def token(self) -> int:
        """Fencing token; pass it to sinks that can reject writes with an older token."""
        return self.held.token

    @property
    def idempotency_key(self) -> str:
        """Key that is the same for every attempt of this piece of work."""
        held = self.held
        if held.flow_id is not None:
            subject = encode("flow", held.flow_id)
        elif held.config_id is not None:
            subject = f"{encode('cfg', held.config_id)}@{iso(held.occurrence_time)}"
        else:
            subject = encode("run", held.root_run_id or held.run_id)
        item = f"/{held.item_key}" if held.item_key else ""
        return f"{subject}/{self.phase}/{self.processor}{item}"

    @property
    def item_key(self) -> str | None:
        """Key of the run's item, the same in every attempt; None if its processor has no items."""
        return self.held.item_key or None

    @property
    def item(self) -> Any:
        """The run's item: the JSON value that the source of the items listed; None without one."""
        if not self.held.item_key:
            return None
        text = self.held.item
        return self.held.item_key if text is None else msgspec.json.decode(text)

    @property
    def attempt_key(self) -> str:
        """Key of this attempt alone."""
        return f"{self.idempotency_key}#{self.held.attempt}"

    @property
    def flow_id(self) -> str | None:
        """Id of the flow the run belongs to; None outside a flow."""
        return None if self.held.flow_id is None else encode("flow", self.held.flow_id)

    @property
    def gate(self) -> Mapping[str, Any]:
        """The decision of the run's gate: verdict, missing, warnings; empty if all passed."""
        if self._gate is None:
            text = self.held.gate_context
            self._gate = {} if text is None else dict(msgspec.json.decode(text))
        return self._gate

    @property
    def changed(self) -> ChangedEntities:
        """The entities that changed since this processor last succeeded, or everything.

        For a processor that is declared `incremental`; others always process everything.
        """
        if self.changed_input is not None:
            return self.changed_input
        is_incremental = self._known.processor.terms.incremental is not None
        return ChangedEntities(reason=OUTSIDE if is_incremental else NOT_INCREMENTAL)

    @property
    def is_degraded(self) -> bool:
        """Whether the run was started with incomplete data; see `missing`."""
        return bool(self.gate.get("is_degraded"))

    @property
    def missing(self) -> tuple[str, ...]:
        """Tables and processors that were missing when this phase, or one before it, started."""
        return tuple(self.gate.get("missing", ()))
