"""Text drawings of pipelines: phases as a chain or a graph, with processors, needs and modes.

The drawing is made from the JSON of a definition, so that a registered pipeline can be drawn
without its code. Lines have no colour, and passwords in addresses are removed. `penstock pipelines
show` prints the lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from penstock.core.clock import MINUTE, format_duration
from penstock.core.formatting import format_percent
from penstock.core.stored_json import from_json
from penstock.pipelines.declare import limit_needs
from penstock.pipelines.declare.declaration_options import EVERY_MODE
from penstock.pipelines.declare.endpoint import HttpEndpoint
from penstock.pipelines.declare.terms import PhaseSettings, PipelineSettings, ProcessorSettings
from penstock.pipelines.dependency import Dependency, DependencyKind, ExpectKind
from penstock.pipelines.mode import Mode
from penstock.pipelines.plan import modes_of, plan_of
from penstock.pipelines.shown import warehouse_shown

Json: TypeAlias = Mapping[str, Any]

TIMEOUT_DEFAULT: Final = 60 * MINUTE


def draw(definition: Json) -> list[str]:
    """Return the lines of the drawing, with phases in the order in which they can run."""
    lines = [_title(definition)]
    phases = {phase["name"]: phase for phase in definition["phases"]}
    order = _order(phases)
    for index, name in enumerate(order):
        phase, previous = phases[name], order[index - 1] if index else None
        lines += _joint(phase["after"], previous)
        lines += _phase(phase)
    return [*lines, *_modes(definition)]


def _title(definition: Json) -> str:
    terms = from_json(PipelineSettings, definition)
    parts = [definition["name"], definition["timezone"]]
    if terms.rule is not None:
        column = f" in {terms.partition}" if terms.partition else ""
        parts.append(f"partition by {terms.rule.words}{column}")
    if terms.warehouse:
        parts.append(f"warehouse {warehouse_shown(terms.warehouse)}")
    if terms.leniency != "auto":
        parts.append(terms.leniency)
    if terms.cascade != "active":
        parts.append(f"cascade {terms.cascade}")
    return " · ".join(parts)


def _order(phases: Mapping[str, Json]) -> list[str]:
    """Return the phases in topological order, keeping chains together."""
    remaining, order = dict(phases), list[str]()
    while remaining:
        ready = [
            name for name, phase in remaining.items() if not set(phase["after"]) & set(remaining)
        ]
        # Prefer a phase that directly follows the last one. Cycles are invalid but still drawn.
        chained = [n for n in ready if order and order[-1] in remaining[n]["after"]]
        name = (chained or ready or list(remaining))[0]
        order.append(name)
        del remaining[name]
    return order


def _joint(after: Sequence[str], previous: str | None) -> list[str]:
    if not after:
        return [] if previous is None else ["  ┌ starts with the flow"]
    return ["  ▼"] if list(after) == [previous] else [f"  ├ after {' and '.join(after)}"]


def _phase(phase: Json) -> Iterator[str]:
    terms = from_json(PhaseSettings, phase)
    notes = []
    if terms.on == "each":
        notes.append("processors start individually")
    if terms.stragglers_us is not None:
        notes.append(f"stragglers {format_duration(terms.stragglers_us)}")
    if terms.slo_us is not None:
        notes.append(f"slo {format_duration(terms.slo_us)}")
    if terms.on_late_data == "rerun":
        notes.append("reruns on late data")
    notes += [f"fallback {text}" for text in _times(terms.fallback)]
    yield f"  ■ {phase['name']}" + (f"  ({', '.join(notes)})" if notes else "")
    for processor in phase["processors"]:
        yield from _processor(processor)
    for mode, names in (terms.expects or {}).items():
        yield f"  │    in {mode}: {', '.join(names) or 'none'}"


def _times(fallback: Mapping[str, int] | None) -> list[str]:
    return [
        f"{minute // 60:02}:{minute % 60:02}" + ("" if mode == EVERY_MODE else f" in {mode}")
        for mode, minute in (fallback or {}).items()
    ]


def _endpoint(endpoint: HttpEndpoint) -> str:
    ways = ["signed"] if endpoint.signing_secrets else []
    ways += [] if endpoint.oidc_email is None else [f"OIDC token of {endpoint.oidc_email}"]
    within = format_duration(endpoint.reply_within_us)
    return f"{endpoint.shown} ({', '.join(ways) or 'not signed'}), reply within {within}"


def _processor(processor: Json) -> Iterator[str]:
    terms = from_json(ProcessorSettings, processor)
    notes = [f"timeout {_timeout(processor)}", processor["runs"]]
    if terms.endpoint is None:
        notes.insert(0, f"pool {processor['pool']}")
    if processor["retry"]:
        settings = (f"{key} {value}" for key, value in sorted(processor["retry"].items()))
        notes.append(f"retry {', '.join(settings)}")
    if terms.modes is not None:
        notes.append(f"only {', '.join(sorted(terms.modes))}")
    yield f"  │  • {processor['name']}  {'  '.join(notes)}"
    if terms.endpoint is not None:
        yield f"  │      sent to {_endpoint(terms.endpoint)}"
    for need in terms.needs:
        yield f"  │      needs {_need(need)}"
    for table in terms.produces:
        yield f"  │      produces {table}"
    for limit in limit_needs.limit_needs_of(terms):
        yield f"  │      limit {limit_needs.describe_need(limit)}"
    if terms.collect is not None:
        wait = format_duration(terms.collect.wait_us)
        yield f"  │      collects up to {terms.collect.max} runs, waits up to {wait}"
    if terms.entities:
        yield f"  │      reports changed {', '.join(terms.entities)}"
    if terms.incremental is not None:
        kinds = ", ".join(terms.incremental) or "entities"
        where = " of its partition" if terms.incremental_per == "partition" else ""
        yield f"  │      incremental: receives changed {kinds}{where} since its last success"


def _timeout(processor: Json) -> str:
    """Return the time limit of a processor, which applies unless its config is stricter."""
    return format_duration(processor["timeout_us"] or TIMEOUT_DEFAULT)


def _need(need: Dependency) -> str:
    if need.kind is DependencyKind.HISTORICAL:
        words = f"{need.min_days} of the last {need.lookback_days} days"
        if need.degraded_days != need.min_days:
            words += f", degraded from {need.degraded_days}"
    else:
        words = need.expect.words
    notes = ["optional"] if need.kind is DependencyKind.OPTIONAL else []
    if need.expect.kind is not ExpectKind.NUMBER or need.expect.number != 1 or not notes:
        notes.append(words)
    if need.max_age_us is not None:
        notes.append(f"not older than {format_duration(need.max_age_us)}")
    if need.not_null:
        notes.append(f"{', '.join(need.not_null)} not null")
    notes += [f"check: {check.name}" for check in need.checks]
    if need.fail_if_missing:
        notes.append("fails if missing")
    if need.modes is not None:
        notes.append(f"only {', '.join(sorted(need.modes))}")
    return f"{need.table}  ({'; '.join(notes)})"


def _modes(definition: Json) -> Iterator[str]:
    """Yield a line per mode if the pipeline has flows, which have modes."""
    processors = [p for phase in definition["phases"] for p in phase["processors"]]
    if len(processors) == 1 and not processors[0].get("needs"):
        return
    yield "  modes"
    modes = modes_of(definition)
    width = max(len(name) for name in modes)
    for name, mode in modes.items():
        plan = plan_of(definition, mode)
        runs = " → ".join(f"{p.name} {len(p.expected)}" for p in plan.phases) or "nothing"
        yield f"    {name:<{width}}  {_mode(mode)}; {runs}"


def _mode(mode: Mode) -> str:
    when = ""
    if mode.window is not None:
        start, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in mode.window)
        when = f"{start}–{end}, "
    when += "default, " if mode.default else ""
    degraded = (
        "" if mode.degraded_at is None else f", degraded at {format_percent(mode.degraded_at)}"
    )
    waits = "else fails"
    if mode.waits and mode.max_wait_us is not None:
        waits = f"else waits up to {format_duration(mode.max_wait_us)}"
    full = f"{format_percent(mode.proceed_at)} and quality {mode.min_quality:.2f}"
    return f"{when}proceeds at {full}{degraded}, {waits}"
