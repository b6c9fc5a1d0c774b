"""The terms of a pipeline, a phase and a processor: data, modes and cascade, as checked records.

Made by `core.options` from what a declaration says. Each leaves its defaults out of its JSON, so
that a declaration that uses none of this has the definition, and the digest, it always had; each
reads back from that JSON (`core.record`), which is how a process without the code plans a flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.clock import Micros
from penstock.pipelines.declare.collect import Collect
from penstock.pipelines.dependency import Dependency
from penstock.pipelines.mode import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTerms:
    """The options of a pipeline, checked."""

    partition: str | None = None
    warehouse: str | None = None
    modes: tuple[Mode, ...] = ()
    leniency: str = "auto"
    cascade: str = "active"
    slos: Mapping[str, Micros] | None = None
    fallback: Mapping[str, int] | None = None
    """Minutes of the day by mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTerms:
    """The options of a phase, checked."""

    slo_us: Micros | None = None
    stragglers_us: Micros | None = None
    on: str = "set"
    on_late_data: str = "ignore"
    expects: Mapping[str, tuple[str, ...]] | None = None
    fallback: Mapping[str, int] | None = None
    """Minutes of the day by mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorTerms:
    """The options of a processor, checked."""

    needs: tuple[Dependency, ...] = ()
    modes: frozenset[str] | None = None
    produces: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    """Names of limits, perhaps with places that a run fills in (`core.runlimits`)."""
    weights: Mapping[str, int] | None = None
    """How much of a limit a run takes, where that is not 1."""
    concurrency: int | None = None
    per_customer: int | None = None
    per_key: Mapping[str, int] | None = None
    collect: Collect | None = None
    entities: tuple[str, ...] = ()
