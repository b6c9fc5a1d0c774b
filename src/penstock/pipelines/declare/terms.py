"""Records of the validated options of a pipeline, a phase and a processor.

`pipelines.declare.declaration_options` creates them from a declaration. Their JSON omits defaults,
so that a declaration without options has a definition and a digest that do not change when new
options are introduced. They are read back from that JSON (`core.stored_json`), so a process without
the pipeline's code can plan its flows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.clock import Micros
from penstock.pipelines.declare.collect import Collect
from penstock.pipelines.declare.each import Each
from penstock.pipelines.declare.endpoint import HttpEndpoint
from penstock.pipelines.dependency import Dependency
from penstock.pipelines.mode import Mode
from penstock.pipelines.partition import DAY_RULE, PartitionRule


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """Validated options of a pipeline; see `PipelineOptions`."""

    partition: str | None = None
    """Column that holds the partition."""
    partition_rule: PartitionRule | None = None
    """Form of the partitions; None means days if there is a partition column, else undeclared."""
    warehouse: str | None = None
    customer_column: str | None = None
    modes: tuple[Mode, ...] = ()
    leniency: str = "auto"
    cascade: str = "active"
    slos: Mapping[str, Micros] | None = None
    fallback: Mapping[str, int] | None = None
    """Minute of the day by mode."""
    freshness: Mapping[str, tuple[int, str]] | None = None
    """Maximum age and age column by table."""

    @property
    def rule(self) -> PartitionRule | None:
        """The form of its partitions; None if it declares none."""
        if self.partition_rule is None and self.partition is not None:
            return DAY_RULE
        return self.partition_rule


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSettings:
    """Validated options of a phase; see `PhaseOptions`."""

    slo_us: Micros | None = None
    stragglers_us: Micros | None = None
    on: str = "set"
    on_late_data: str = "ignore"
    expects: Mapping[str, tuple[str, ...]] | None = None
    fallback: Mapping[str, int] | None = None
    """Minute of the day by mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorSettings:
    """Validated options of a processor; see `ProcessorOptions`."""

    needs: tuple[Dependency, ...] = ()
    modes: frozenset[str] | None = None
    produces: tuple[str, ...] = ()
    outputs: tuple[Dependency, ...] = ()
    """Tables among `produces` that are probed once the phase has completed."""
    limits: tuple[str, ...] = ()
    """Names of limits, optionally with placeholders filled in per run (`limit_needs`)."""
    weights: Mapping[str, int] | None = None
    """Weights by name of limit, where they are not 1."""
    concurrency: int | None = None
    per_customer: int | None = None
    per_key: Mapping[str, int] | None = None
    expires_us: Micros | None = None
    """How long its runs may wait to be started; None for no limit."""
    collect: Collect | None = None
    entities: tuple[str, ...] = ()
    endpoint: HttpEndpoint | None = None
    """Endpoint of an HTTP processor; None for other processors."""
    each: Each | None = None
    item_key: str | None = None
    min_items: float = 1.0
    incremental: tuple[str, ...] | None = None
    """Kinds of entities whose changes it receives; empty for all, None if it is not incremental."""
    incremental_per: str = "pipeline"
    """"pipeline": changes of all partitions; "partition": of its own partition only."""
