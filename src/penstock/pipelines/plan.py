"""The plan of a flow: a pipeline's definition, resolved for one mode.

Reads the JSON of a definition, so that a process without the pipeline's code computes the same
plan. Phases that a mode does not run, and phases without expected processors, are skipped; phases
after them then follow the phases before them. Pure; the orchestrator computes plans and
`flows.cascade` evaluates them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Any

from penstock.core.clock import Micros
from penstock.core.stored_json import from_json
from penstock.pipelines.declare.declaration_options import EVERY_MODE
from penstock.pipelines.declare.terms import PhaseSettings, PipelineSettings, ProcessorSettings
from penstock.pipelines.dependency import Dependency
from penstock.pipelines.mode import Mode
from penstock.pipelines.modes import (
    Leniency,
    legacy_modes,
    partition_of,
    select_mode,
    with_leniency,
    with_slo,
)
from penstock.pipelines.partition import partition_rule_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A resolved dependency of a gate, and the processors that need it."""

    dependency: Dependency
    needed_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan:
    """A phase in one mode: the phases before it, its expected processors, and its options."""

    name: str
    after: tuple[str, ...]
    """The nearest earlier phases that this mode runs."""
    expected: tuple[str, ...]
    terms: PhaseSettings
    fallback: int | None = None
    """Minute of the day at which the scheduler starts it if the cascade has not; None for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The phases that a flow in this mode runs, in topological order."""

    pipeline: str
    mode: Mode
    phases: tuple[PhasePlan, ...]
    skipped: tuple[str, ...] = ()
    _by_name: dict[str, PhasePlan] = field(init=False, repr=False, compare=False)
    _next: dict[str, list[str]] = field(init=False, repr=False, compare=False)
    _positions: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        following: dict[str, list[str]] = {}
        for phase in self.phases:
            for name in phase.after:
                following.setdefault(name, []).append(phase.name)
        object.__setattr__(self, "_by_name", {phase.name: phase for phase in self.phases})
        object.__setattr__(self, "_next", following)
        positions = {phase.name: n for n, phase in enumerate(self.phases)}
        object.__setattr__(self, "_positions", positions)

    def phase(self, name: str) -> PhasePlan:
        """Return a phase of the plan. Raise KeyError if this mode does not run it."""
        return self._by_name[name]

    def has_phase(self, name: str) -> bool:
        """Whether this mode runs a phase."""
        return name in self._by_name

    def next_phases(self, name: str) -> Sequence[str]:
        """Return the phases that directly follow a phase."""
        return self._next.get(name, ())

    def in_order(self, names: Iterable[str]) -> list[PhasePlan]:
        """Return phases by name, in the order of the plan."""
        return [self._by_name[name] for name in sorted(names, key=self._positions.__getitem__)]

    def downstream(self, name: str) -> tuple[str, ...]:
        """Return every phase that directly or indirectly follows this one, in order."""
        found = {name}
        for phase in self.phases:
            if found & set(phase.after):
                found.add(phase.name)
        return tuple(phase.name for phase in self.phases if phase.name in found - {name})

    @property
    def last(self) -> tuple[str, ...]:
        """The phases that no other phase follows: the flow ends when they have ended."""
        followed = {name for phase in self.phases for name in phase.after}
        return tuple(phase.name for phase in self.phases if phase.name not in followed)


def modes_of(definition: Mapping[str, Any]) -> dict[str, Mode]:
    """Return the modes of a definition by name, in order, with its SLOs applied.

    A definition lists all of its modes, so that flows opened with it keep them when the built-in
    modes change. Definitions without a version, stored before that, have five built-in modes.
    """
    terms = from_json(PipelineSettings, definition)
    listed = terms.modes if definition.get("version", 1) > 1 else legacy_modes(terms.modes)
    slos = terms.slos or {}
    return {mode.name: with_slo(mode, slos.get(mode.name)) for mode in listed}


def mode_and_partition(
    definition: Mapping[str, Any],
    now: Micros,
    *,
    mode: str | None = None,
    backfill: bool = False,
    source: str | None = None,
    zone: str | None = None,
) -> tuple[str, str]:
    """Return the mode of a flow, and the partition that it processes.

    zone: the time zone of the config, which determines the partition; the pipeline's if None. A
    pipeline that declares no partition has one per occurrence.
    """
    timezone = definition["timezone"]
    chosen = select_mode(
        modes_of(definition),
        now=now,
        timezone=timezone,
        explicit=mode,
        backfill=backfill,
        trigger_source=source,
    )
    rule = partition_rule_of(definition)
    return chosen.name, partition_of(chosen, now=now, timezone=timezone, rule=rule, zone=zone)


def gate_mode(definition: Mapping[str, Any], mode: Mode) -> Mode:
    """Return the mode that gates use: the flow's mode with the pipeline's leniency applied."""
    terms = from_json(PipelineSettings, definition)
    return with_leniency(mode, Leniency(terms.leniency), modes_of(definition))


def plan_of(definition: Mapping[str, Any], mode: Mode) -> Plan:
    """Return the plan of a flow in this mode."""
    pipeline = from_json(PipelineSettings, definition)
    phases = {phase["name"]: phase for phase in definition["phases"]}
    graph = {name: tuple(phase["after"]) for name, phase in phases.items()}
    positions = {name: position for position, name in enumerate(phases)}
    order = _in_order(graph, positions)
    ends = _past_end(graph, order, mode)
    expected = {
        name: () if name in ends else expected_processors(phase, mode.name)
        for name, phase in phases.items()
    }
    upstream: dict[str, tuple[str, ...]] = {}
    plans = []
    for name in order:
        # Skipped phases are replaced by the phases before them that run.
        found = [real for up in graph[name] for real in ((up,) if expected[up] else upstream[up])]
        upstream[name] = tuple(dict.fromkeys(found))
        if expected[name]:
            terms = from_json(PhaseSettings, phases[name])
            plans.append(
                PhasePlan(
                    name=name,
                    after=upstream[name],
                    expected=expected[name],
                    terms=terms,
                    fallback=_fallback(mode.name, terms.fallback, pipeline.fallback),
                )
            )
    return Plan(
        pipeline=definition["name"],
        mode=mode,
        phases=tuple(plans),
        skipped=tuple(name for name in order if not expected[name]),
    )


def expected_processors(phase: Mapping[str, Any], mode: str) -> tuple[str, ...]:
    """Return the processors that a phase expects in a mode: those listed, or all that run in it."""
    listed: Mapping[str, Sequence[str]] = phase.get("expects") or {}
    if mode in listed:
        return tuple(listed[mode])
    return tuple(
        processor["name"]
        for processor in phase["processors"]
        if processor.get("modes") is None or mode in processor["modes"]
    )


def needs_from_definition(
    definition: Mapping[str, Any],
    mode: Mode,
    phase: str,
    processor: str | None = None,
    *,
    outputs: bool = False,
    plan: Plan | None = None,
) -> tuple[Need, ...]:
    """Return the dependencies that a gate probes, from JSON, which cannot contain counting
    functions.

    outputs: return what is probed after the phase instead. plan: the plan in this mode, if it is
    known.
    """
    pipeline = from_json(PipelineSettings, definition)
    if processor is not None:
        # A single run may belong to a phase that the mode does not run.
        names: tuple[str, ...] = (processor,)
    else:
        plan = plan_of(definition, mode) if plan is None else plan
        names = plan.phase(phase).expected if plan.has_phase(phase) else ()
    asked = [
        (given["name"], from_json(ProcessorSettings, given))
        for declared in definition["phases"]
        if declared["name"] == phase
        for given in declared["processors"]
        if given["name"] in names
    ]
    return needs_of(asked, mode.name, pipeline, outputs=outputs)


def needs_of(
    processors: Iterable[tuple[str, ProcessorSettings]],
    mode: str,
    pipeline: PipelineSettings,
    *,
    outputs: bool = False,
) -> tuple[Need, ...]:
    """Return the union of the processors' needs in a mode; equal needs are merged.

    Different needs of the same kind and table are numbered, so that each has its own key.
    """
    found: list[Need] = []
    numbers: Counter[str] = Counter()
    for name, terms in processors:
        for dependency in terms.outputs if outputs else terms.needs:
            if not dependency.applies_in(mode):
                continue
            asked = replace(
                dependency.with_defaults(
                    pipeline.partition, pipeline.warehouse, pipeline.customer_column
                ),
                modes=None,
            )
            same = next(
                (n for n, need in enumerate(found) if replace(need.dependency, number=0) == asked),
                None,
            )
            if same is None:
                numbered = replace(asked, number=numbers[asked.key])
                numbers[asked.key] += 1
                found.append(Need(dependency=numbered, needed_by=(name,)))
            elif name not in found[same].needed_by:
                needed_by = (*found[same].needed_by, name)
                found[same] = replace(found[same], needed_by=needed_by)
    return tuple(found)


def _in_order(graph: Mapping[str, tuple[str, ...]], positions: Mapping[str, int]) -> list[str]:
    """Return the phases in topological order; ties are in order of declaration."""
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=lambda name: positions[name])
        order += ready
        sorter.done(*ready)
    return order


def _past_end(
    graph: Mapping[str, tuple[str, ...]], order: Sequence[str], mode: Mode
) -> frozenset[str]:
    """Return the phases that a mode does not run: not in its `phases`, or after its `until`."""
    if mode.phases is not None:
        return frozenset(name for name in order if name not in mode.phases)
    past: set[str] = set()
    for name in order:
        if any(up == mode.until or up in past for up in graph[name]):
            past.add(name)
    return frozenset(past)


def _fallback(
    mode: str, own: Mapping[str, int] | None, all_phases: Mapping[str, int] | None
) -> int | None:
    for times in (own, all_phases):
        for key in (mode, EVERY_MODE):
            if times is not None and key in times:
                return times[key]
    return None
