"""The plan of a flow: a pipeline's declaration in one mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.stored_json import from_json
from penstock.pipelines.declare.each import Each
from penstock.pipelines.declare.incremental import IncrementalPlan, incremental_of
from penstock.pipelines.declare.terms import PipelineSettings, ProcessorSettings
from penstock.pipelines.mode import Mode
from penstock.pipelines.modes import default_mode
from penstock.pipelines.plan import Need, Plan, gate_mode, modes_of, needs_from_definition, plan_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut:
    """The source of a processor's items, and how many of them must succeed."""

    each: Each
    item_key: str | None
    min_items: float
    warehouse: str | None


@dataclass(slots=True, kw_only=True)
class FlowPlan:
    """A declaration in one mode."""

    definition: Mapping[str, Any]
    mode: Mode
    gate_mode: Mode
    """The mode that applies to gate decisions."""
    plan: Plan
    observes: bool
    """Whether the cascade decides and records but starts nothing."""
    partition: str | None
    timezone: str = "UTC"
    external: frozenset[str] = frozenset()
    """`phase/processor` of the processors that run externally."""
    products: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Tables that each `phase/processor` declares as outputs, in any mode."""
    fan_outs: Mapping[tuple[str, str], FanOut] = field(default_factory=dict)
    """By phase and name, the processors that have one run per item."""
    _needy: frozenset[str] = field(init=False)
    """Phases whose processors declare data that they need or produce."""
    reporting: frozenset[tuple[str, str]] = frozenset()
    """Phase and name of the processors that report changed entities."""
    incremental: Mapping[tuple[str, str], IncrementalPlan] = field(default_factory=dict)
    """Inputs of incremental processors, by phase and name; the same in every mode."""
    _needs: dict[tuple[str, str], tuple[Need, ...]] = field(default_factory=dict)
    _outputs: dict[str, tuple[Need, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._needy = frozenset(
            phase["name"]
            for phase in self.definition.get("phases", ())
            for processor in phase["processors"]
            if processor.get("needs") or processor.get("outputs")
        )

    @property
    def is_plain(self) -> bool:
        """Whether phases depend on nothing but the phases before them: no data, no items."""
        return not (self._needy or self.fan_outs) and all(
            phase.terms.on == "set" for phase in self.plan.phases
        )

    def needs(self, phase: str, processor: str = "") -> tuple[Need, ...]:
        """Return the dependencies of a gate; callables in them are not restored."""
        key = (phase, processor)
        if key not in self._needs:
            found: tuple[Need, ...] = ()
            if phase in self._needy:
                found = needs_from_definition(
                    self.definition, self.mode, phase, processor or None, plan=self.plan
                )
            self._needs[key] = found
        return self._needs[key]

    def outputs(self, phase: str) -> tuple[Need, ...]:
        """Return the tables that are probed when a phase has completed."""
        if phase not in self._outputs:
            found: tuple[Need, ...] = ()
            if phase in self._needy:
                found = needs_from_definition(
                    self.definition, self.mode, phase, outputs=True, plan=self.plan
                )
            self._outputs[phase] = found
        return self._outputs[phase]


def planned_of(definition: Mapping[str, Any], mode: str) -> FlowPlan:
    """Return the plan of a definition in a mode."""
    modes = modes_of(definition)
    chosen = modes.get(mode) or default_mode(modes)
    terms = from_json(PipelineSettings, definition)
    return FlowPlan(
        definition=definition,
        mode=chosen,
        gate_mode=gate_mode(definition, chosen),
        plan=plan_of(definition, chosen),
        observes=terms.cascade == "observe",
        partition=terms.partition,
        timezone=definition["timezone"],
        external=frozenset(
            f"{phase['name']}/{processor['name']}"
            for phase in definition["phases"]
            for processor in phase["processors"]
            if processor.get("runs") == "external"
        ),
        products={
            f"{phase['name']}/{processor['name']}": frozenset(processor["produces"])
            for phase in definition["phases"]
            for processor in phase["processors"]
            if processor.get("produces")
        },
        fan_outs={
            (phase["name"], processor["name"]): _fan_out(
                from_json(ProcessorSettings, processor), terms.warehouse
            )
            for phase in definition["phases"]
            for processor in phase["processors"]
            if processor.get("each")
        },
        reporting=frozenset(
            (phase["name"], processor["name"])
            for phase in definition["phases"]
            for processor in phase["processors"]
            if processor.get("entities")
        ),
        incremental=incremental_of(definition),
    )


def _fan_out(settings: ProcessorSettings, warehouse: str | None) -> FanOut:
    assert settings.each is not None
    return FanOut(
        each=settings.each,
        item_key=settings.item_key,
        min_items=settings.min_items,
        warehouse=warehouse,
    )


def has_same_graph(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether flows of one declaration can follow the other: same phases and processors.

    Their order, expected processors and mode names are compared; needs and thresholds may differ.
    """
    return _graph(old) == _graph(new) and set(modes_of(old)) <= set(modes_of(new))


def _graph(definition: Mapping[str, Any]) -> list[Any]:
    return [
        (
            phase["name"],
            phase["after"],
            phase.get("on"),
            phase.get("expects"),
            [(p["name"], p.get("modes"), p["runs"], p.get("each")) for p in phase["processors"]],
        )
        for phase in definition["phases"]
    ]
