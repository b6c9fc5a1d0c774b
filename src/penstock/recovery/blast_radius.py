"""The blast radius of an action: runs, tables, limits, service levels, duration. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.clock import Micros
from penstock.core.records.record import seconds
from penstock.core.stored_json import from_json
from penstock.flows.explain.times import format_list, format_span
from penstock.pipelines.declare.terms import ProcessorSettings
from penstock.pipelines.plan import Plan
from penstock.recovery.estimate import Estimate
from penstock.recovery.records import BlastRadius, Effect

NAMES_MAX: Final = 20


class Affected(NamedTuple):
    """The processors that one flow runs, with their tables and limits."""

    processors: tuple[tuple[str, str], ...]
    """Phase and name of each processor."""
    tables: tuple[str, ...]
    limits: tuple[str, ...]
    fans_out: bool

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases with a processor that runs, in order."""
        return tuple(dict.fromkeys(phase for phase, _ in self.processors))


def affected_by(
    definition: Mapping[str, Any],
    plan: Plan,
    phases: Iterable[str],
    only: Iterable[tuple[str, str]] | None = None,
) -> Affected:
    """Return the effects of the processors of these phases.

    only: phase and name of the processors that run in phases that are not repeated as a whole.
    """
    chosen, some = set(phases), None if only is None else set(only)
    restricted = set() if some is None else {phase for phase, _ in some}
    settings = {
        (phase["name"], one["name"]): from_json(ProcessorSettings, one)
        for phase in definition["phases"]
        for one in phase["processors"]
    }
    keys = tuple(
        (phase.name, name)
        for phase in plan.phases
        if phase.name in chosen
        for name in phase.expected
        if phase.name not in restricted or (some is not None and (phase.name, name) in some)
    )
    found = [settings[key] for key in keys if key in settings]
    return Affected(
        processors=keys,
        tables=tuple(dict.fromkeys(table for one in found for table in one.produces)),
        limits=tuple(dict.fromkeys(name for one in found for name in one.limits)),
        fans_out=any(one.each is not None for one in found),
    )


def work_effects(affected: Affected, flows: int, estimate: Estimate | None) -> list[Effect]:
    """Return the effects of running processors in a number of flows."""
    if not flows or not affected.processors:
        return []
    runs = flows * len(affected.processors)
    names = [f"{phase}.{name}" for phase, name in affected.processors]
    more = ", and one for each item of those that fan out" if affected.fans_out else ""
    effects = [
        Effect(
            kind="starts",
            text=f"{plural(runs, 'run')} in {plural(flows, 'flow')}{more}: "
            f"{format_list(names, NAMES_MAX)}.",
            count=runs,
            names=names[:NAMES_MAX],
        )
    ]
    if affected.tables:
        effects.append(
            Effect(
                kind="overwrites",
                text=f"Tables written again: {format_list(affected.tables, NAMES_MAX)}.",
                count=len(affected.tables),
                names=list(affected.tables[:NAMES_MAX]),
            )
        )
    if affected.limits:
        effects.append(
            Effect(
                kind="limits",
                text=f"The runs share {format_list(affected.limits, NAMES_MAX)} with other work.",
                count=len(affected.limits),
                names=list(affected.limits[:NAMES_MAX]),
            )
        )
    if estimate is not None:
        text = f"Takes about {duration_text(estimate)}, based on recorded durations."
        effects.append(Effect(kind="duration", text=text))
    return effects


def slo_effects(
    slo_us: Micros | None, sla_us: Micros | None, mode: str, estimate: Estimate | None
) -> list[Effect]:
    """Return the effect of the work on the service levels of its mode and its config."""
    found = []
    for name, target in ((f"slo of mode {mode}", slo_us), ("sla of the config", sla_us)):
        if not target:
            continue
        words = f"The {name} is {format_span(target)} for each flow"
        if estimate is not None and estimate.p90_us > target:
            likely = "probably" if estimate.p50_us > target else "possibly"
            words += f"; a flow takes about {duration_text(estimate)} and {likely} misses it"
        found.append(Effect(kind="slo", text=f"{words}."))
    return found


def duration_text(estimate: Estimate) -> str:
    """Return an estimate as text: "4 min (9 of 10 below 7 min)"."""
    likely, high = format_span(estimate.p50_us), format_span(estimate.p90_us)
    return likely if likely == high else f"{likely} (9 of 10 below {high})"


def listed_effect(
    kind: Any, words: str, names: Sequence[str], *, count: int | None = None
) -> list[Effect]:
    """Return an effect on the listed names; empty if there are none."""
    number = len(names) if count is None else count
    if not number:
        return []
    return [Effect(kind=kind, text=words, count=number, names=list(names[:NAMES_MAX]))]


def blast_radius(
    text: str,
    command: str,
    effects: Sequence[Effect],
    *,
    affected: Affected | None = None,
    flows: int = 0,
    estimate: Estimate | None = None,
) -> BlastRadius:
    """Return the record of an action's blast radius."""
    return BlastRadius(
        text=text,
        effects=list(effects),
        command=command,
        flows=flows,
        runs=0 if affected is None else flows * len(affected.processors),
        tables=[] if affected is None else list(affected.tables),
        limits=[] if affected is None else list(affected.limits),
        expected=None if estimate is None else seconds(estimate.p50_us),
        expected_p90=None if estimate is None else seconds(estimate.p90_us),
    )


def plural(n: int, word: str) -> str:
    """Return a count with its noun: "1 run", "2,000 runs"."""
    return f"{n:,} {word}{'' if n == 1 else 's'}"
