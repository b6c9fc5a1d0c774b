"""What a flow runs: a pipeline's definition seen in one mode.

Reads the JSON of a definition, so that a process without the pipeline's code plans the same flow.
Phases a mode does not run, and phases in which nobody is expected, are skipped; what follows them
follows what came before them instead. Pure; the orchestrator plans with it, `core.cascade` judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Any

from penstock.core.record import read
from penstock.pipelines.declare.declaration_options import EVERY_MODE
from penstock.pipelines.declare.terms import PhaseTerms, PipelineTerms, ProcessorTerms
from penstock.pipelines.dependency import Dependency
from penstock.pipelines.mode import Mode
from penstock.pipelines.modes import Leniency, judged, known_modes


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A dependency of a gate, with its partition column and warehouse, and who needs it."""

    dependency: Dependency
    needed_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan:
    """A phase in one mode: what it follows, whom it expects, and its terms."""

    name: str
    after: tuple[str, ...]
    """The phases before it that this mode runs."""
    expected: tuple[str, ...]
    terms: PhaseTerms
    fallback: int | None = None
    """The minute of the day at which the scheduler starts it if the cascade has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a flow of this mode runs; phases come after the ones they follow."""

    pipeline: str
    mode: Mode
    phases: tuple[PhasePlan, ...]
    skipped: tuple[str, ...] = ()

    def phase(self, name: str) -> PhasePlan:
        """Return a phase of the plan; KeyError when this mode does not run it."""
        for phase in self.phases:
            if phase.name == name:
                return phase
        raise KeyError(name)

    def downstream(self, name: str) -> tuple[str, ...]:
        """Return every phase that follows this one, near or far, in order."""
        found = {name}
        for phase in self.phases:
            if found & set(phase.after):
                found.add(phase.name)
        return tuple(phase.name for phase in self.phases if phase.name in found - {name})

    @property
    def last(self) -> tuple[str, ...]:
        """The phases that nothing follows: when they have ended, the flow has."""
        followed = {name for phase in self.phases for name in phase.after}
        return tuple(phase.name for phase in self.phases if phase.name not in followed)


def modes_of(definition: Mapping[str, Any]) -> dict[str, Mode]:
    """Return the modes of a definition by name, its own first, with its SLOs."""
    terms = read(PipelineTerms, definition)
    slos = terms.slos or {}
    return {
        name: mode.but(slo=slos[name] / 1_000_000) if name in slos else mode
        for name, mode in known_modes(terms.modes).items()
    }


def judging_mode(definition: Mapping[str, Any], mode: Mode) -> Mode:
    """Return the mode as its gates judge: with the leniency of the pipeline."""
    terms = read(PipelineTerms, definition)
    return judged(mode, Leniency(terms.leniency), modes_of(definition))


def plan_of(definition: Mapping[str, Any], mode: Mode) -> Plan:
    """Return what a flow in this mode runs."""
    pipeline = read(PipelineTerms, definition)
    phases = {phase["name"]: phase for phase in definition["phases"]}
    graph = {name: tuple(phase["after"]) for name, phase in phases.items()}
    places = {name: place for place, name in enumerate(phases)}
    order = _in_order(graph, places)
    ends = _past_end(graph, order, mode)
    expected = {
        name: () if name in ends else expected_in(phase, mode.name)
        for name, phase in phases.items()
    }
    upstream: dict[str, tuple[str, ...]] = {}
    plans = []
    for name in order:
        # Through skipped phases, to the ones before them that run.
        found = [real for up in graph[name] for real in ((up,) if expected[up] else upstream[up])]
        upstream[name] = tuple(dict.fromkeys(found))
        if expected[name]:
            terms = read(PhaseTerms, phases[name])
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


def expected_in(phase: Mapping[str, Any], mode: str) -> tuple[str, ...]:
    """Return the processors a phase expects in a mode: the listed ones, else all that run in it."""
    listed: Mapping[str, Sequence[str]] = phase.get("expects") or {}
    if mode in listed:
        return tuple(listed[mode])
    return tuple(
        processor["name"]
        for processor in phase["processors"]
        if processor.get("modes") is None or mode in processor["modes"]
    )


def definition_needs(
    definition: Mapping[str, Any], mode: Mode, phase: str, processor: str | None = None
) -> tuple[Need, ...]:
    """Return what a gate looks at, from JSON: callables have lost their function there."""
    pipeline = read(PipelineTerms, definition)
    planned = next((p for p in plan_of(definition, mode).phases if p.name == phase), None)
    names = () if planned is None else planned.expected if processor is None else (processor,)
    asked = [
        (given["name"], read(ProcessorTerms, given))
        for declared in definition["phases"]
        if declared["name"] == phase
        for given in declared["processors"]
        if given["name"] in names
    ]
    return needs_of(asked, mode.name, pipeline.partition, pipeline.warehouse)


def needs_of(
    processors: Iterable[tuple[str, ProcessorTerms]],
    mode: str,
    partition: str | None,
    warehouse: str | None,
) -> tuple[Need, ...]:
    """Return the union of the processors' needs in a mode; equal needs are looked at once."""
    found: list[Need] = []
    for name, terms in processors:
        for dependency in terms.needs:
            if not dependency.in_mode(mode):
                continue
            asked = replace(dependency.resolved(partition, warehouse), modes=None)
            same = next((n for n, need in enumerate(found) if need.dependency == asked), None)
            if same is None:
                found.append(Need(dependency=asked, needed_by=(name,)))
            elif name not in found[same].needed_by:
                who = (*found[same].needed_by, name)
                found[same] = replace(found[same], needed_by=who)
    return tuple(found)


def _in_order(graph: Mapping[str, tuple[str, ...]], places: Mapping[str, int]) -> list[str]:
    """Return the phases so that each follows what it is after; else as declared."""
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=lambda name: places[name])
        order += ready
        sorter.done(*ready)
    return order


def _past_end(
    graph: Mapping[str, tuple[str, ...]], order: Sequence[str], mode: Mode
) -> frozenset[str]:
    """Return the phases that a mode does not run, by its list or because they lie past its end."""
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
