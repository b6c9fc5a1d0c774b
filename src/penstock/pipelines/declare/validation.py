"""Checks across a whole pipeline definition: unknown names, cycles and needs that cannot be met.

The checks work on the JSON of a definition, so that a registered pipeline can be checked without
its code. The first problem found is raised as a DeclarationError that names it and lists the valid
names. `Pipeline.check` calls `check_definition` before registration. Nothing here has side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, TypeAlias

from penstock.core.errors import DeclarationError
from penstock.core.stored_json import from_json
from penstock.pipelines.cycles import cycle_of, deadlocked
from penstock.pipelines.declare.declaration_options import EVERY_MODE
from penstock.pipelines.declare.limit_needs import check_placeholders, limit_needs_of
from penstock.pipelines.declare.terms import PhaseSettings, PipelineSettings, ProcessorSettings
from penstock.pipelines.dependency import Dependency, DependencyKind, ExpectKind
from penstock.pipelines.mode import check_deadline
from penstock.pipelines.modes import find_overlap, with_slo
from penstock.pipelines.partition import PartitionKind
from penstock.pipelines.query_text import query_parameters

Json: TypeAlias = Mapping[str, Any]

_WITHOUT_DAYS: Final = (PartitionKind.HOUR, PartitionKind.WEEK, PartitionKind.MONTH)
"""Partitions before which no days can be counted."""


def check_definition(definition: Json) -> None:
    """Raise DeclarationError if the definition is inconsistent."""
    name, phases = definition["name"], definition["phases"]
    if not phases:
        raise DeclarationError(
            f"pipeline {name} has no phases and no processors. Declare a processor: a function "
            "with @PIPELINE.processor() above it, or with @PHASE.processor() for a phase."
        )
    _check_graph(name, phases)
    terms = from_json(PipelineSettings, definition)
    _check_modes(name, terms, [phase["name"] for phase in phases])
    modes = {mode.name for mode in terms.modes}
    _check_mode_names(f"pipeline {name}: slos", terms.slos or (), modes)
    _check_mode_names(f"pipeline {name}: fallback", terms.fallback or (), modes | {EVERY_MODE})
    parameters = (definition.get("parameters") or {}).get("properties", {})
    for phase in phases:
        _check_phase(f"{name}/{phase['name']}", phase, modes)
        for path, own in _processors(name, [phase]):
            _check_processor(path, own, modes, terms)
            for need in limit_needs_of(own):
                check_placeholders(need.name, parameters, f"processor {path}: limits")
    _check_products(name, phases)
    _check_items(name, phases)


def _check_graph(name: str, phases: list[Json]) -> None:
    names = [phase["name"] for phase in phases]
    for phase in phases:
        if not phase["processors"]:
            raise DeclarationError(f"phase {name}/{phase['name']} has no processors.")
        for earlier in phase["after"]:
            if earlier not in names:
                raise DeclarationError(
                    f"phase {name}/{phase['name']}: after names {earlier!r}, "
                    f"which is not a phase of this pipeline; phases: {', '.join(names)}."
                )
    try:
        TopologicalSorter({phase["name"]: phase["after"] for phase in phases}).prepare()
    except CycleError as error:
        cycle = " → ".join(error.args[1])
        raise DeclarationError(
            f"pipeline {name}: the phases wait for each other: {cycle}."
        ) from None


def _check_modes(name: str, terms: PipelineSettings, phases: list[str]) -> None:
    seen: set[str] = set()
    for mode in terms.modes:
        if mode.name in seen:
            raise DeclarationError(f"pipeline {name}: mode {mode.name!r} is declared twice.")
        seen.add(mode.name)
        for phase in (*(mode.phases or ()), mode.until):
            if phase is not None and phase not in phases:
                raise DeclarationError(
                    f"pipeline {name}: mode {mode.name!r} names {phase!r}, "
                    f"which is not a phase of this pipeline; phases: {', '.join(phases)}."
                )
        rule = terms.rule
        if mode.partition_days and rule is not None and rule.kind in _WITHOUT_DAYS:
            raise DeclarationError(
                f"pipeline {name}: mode {mode.name!r} has partition_days={mode.partition_days}, "
                f"but its partitions are by {rule.kind}; use {rule.kind}(offset=...) instead."
            )
        slo = (terms.slos or {}).get(mode.name)
        check_deadline(with_slo(mode, slo), f"pipeline {name}: mode {mode.name!r}")
    both = find_overlap(terms.modes)
    if both is not None:
        raise DeclarationError(
            f"pipeline {name}: the windows of modes {both[0]!r} and {both[1]!r} overlap; "
            "at most one mode may apply at any time of day."
        )


def _check_mode_names(where: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(set(known) - {EVERY_MODE}))
            raise DeclarationError(
                f"{where}: {name!r} is not a mode of this pipeline; modes: {listed}."
            )


def _check_phase(path: str, phase: Json, modes: Iterable[str]) -> None:
    where, terms = f"phase {path}", from_json(PhaseSettings, phase)
    _check_mode_names(f"{where}: expects", terms.expects or (), modes)
    _check_mode_names(f"{where}: fallback", terms.fallback or (), {*modes, EVERY_MODE})
    declared = {given["name"]: given.get("modes") for given in phase["processors"]}
    for mode, names in (terms.expects or {}).items():
        for name in names:
            if name not in declared:
                raise DeclarationError(
                    f"{where}: mode {mode!r} expects {name!r}, which is not a processor of this "
                    f"phase; processors: {', '.join(declared)}."
                )
            runs_in = declared[name]
            if runs_in is not None and mode not in runs_in:
                raise DeclarationError(
                    f"{where}: mode {mode!r} expects {name!r}, which runs only in "
                    f"{', '.join(runs_in)}."
                )


def _check_processor(
    path: str, terms: ProcessorSettings, modes: Iterable[str], pipeline: PipelineSettings
) -> None:
    where = f"processor {path}"
    _check_mode_names(f"{where}: modes", sorted(terms.modes or ()), modes)
    each = terms.each
    if each is not None and each.sql is not None:
        if pipeline.warehouse is None:
            raise DeclarationError(
                f"{where}: each is a query, but the pipeline has no warehouse; declare "
                "Pipeline(warehouse=...)."
            )
        if pipeline.customer_column and "customer" not in query_parameters(each.sql):
            raise DeclarationError(
                f"{where}: the query of each=... reads the rows of all customers; add "
                f"{pipeline.customer_column} = :customer to its conditions."
            )
    seen: list[Dependency] = []
    for need in (*terms.needs, *terms.outputs):
        _check_mode_names(f"{where}: needs {need.table}: modes", sorted(need.modes or ()), modes)
        if need.partition is None and pipeline.partition is None:
            raise DeclarationError(
                f"{where}: needs {need.table}, but no partition column is set; "
                'declare Pipeline(partition=day("column")) or set partition on the need.'
            )
        kind = None if pipeline.rule is None else pipeline.rule.kind
        if need.kind is DependencyKind.HISTORICAL and kind in _WITHOUT_DAYS:
            raise DeclarationError(
                f"{where}: needs the days before a partition of {need.table}, but the pipeline's "
                f"partitions are by {kind}; historical(...) needs partition=day(...)."
            )
        if need in seen and need in terms.needs:
            raise DeclarationError(f"{where}: needs {need.table} ({need.kind}) twice.")
        seen.append(need)
        _check_queries(where, need.with_defaults(None, None, pipeline.customer_column))


def _check_queries(where: str, need: Dependency) -> None:
    """Reject queries that would count the rows of all customers for a need of one customer."""
    if need.customer is None:
        return
    queries = {f"check {check.name!r}": check.sql for check in need.checks}
    if need.expect.kind is ExpectKind.QUERY:
        queries["the query of expect"] = need.expect.sql or ""
    for name, sql in queries.items():
        if "customer" not in query_parameters(sql):
            raise DeclarationError(
                f"{where}: needs {need.table}: {name} reads the rows of all customers; "
                f"add {need.customer} = :customer to its conditions, or declare the need with "
                "shared=True."
            )


def _check_products(name: str, phases: list[Json]) -> None:
    """Reject same-day needs that only the same or a later phase can meet, and cycles of needs."""
    after = _ancestors(phases)
    producers: dict[str, set[tuple[str, str]]] = {}
    for phase in phases:
        for path, terms in _processors(name, [phase]):
            for table in terms.produces:
                producers.setdefault(table, set()).add((phase["name"], path))
    waits: dict[str, set[str]] = {}
    for phase in phases:
        each = from_json(PhaseSettings, phase).on == "each"
        for path, terms in _processors(name, [phase]):
            for table in _awaited_tables(terms):
                waits.setdefault(path, set()).add(table)
                _check_producers(
                    phase["name"], path, table, producers.get(table, set()), after, each
                )
    produces = {
        path: set(terms.produces) for path, terms in _processors(name, phases) if terms.produces
    }
    stuck = deadlocked(waits, produces)
    if stuck:
        cycle = " → ".join(cycle_of(min(stuck), waits, produces))
        raise DeclarationError(
            f"pipeline {name}: processors wait for each other's tables: {cycle}."
        )


def _check_items(name: str, phases: list[Json]) -> None:
    """Reject a fan-out over the result of a processor that does not run before it."""
    after = _ancestors(phases)
    fans_out = {path for path, terms in _processors(name, phases) if terms.each is not None}
    for phase in phases:
        for path, terms in _processors(name, [phase]):
            each = terms.each
            if each is None or each.processor is None:
                continue
            earlier = [
                f"{before['name']}.{given['name']}"
                for before in phases
                if before["name"] in after[phase["name"]]
                for given in before["processors"]
            ]
            found = [p for p in earlier if each.processor in (p, p.partition(".")[2])]
            where = f"processor {path}: each=upstream({each.processor!r})"
            if not found:
                known = ", ".join(earlier) or "none"
                raise DeclarationError(
                    f"{where} names no processor of an earlier phase; processors before it: "
                    f"{known}."
                )
            if len(found) > 1:
                raise DeclarationError(
                    f"{where} is ambiguous; write one of {', '.join(map(repr, found))}."
                )
            if f"{name}/{found[0].replace('.', '/')}" in fans_out:
                raise DeclarationError(
                    f"{where} names a processor that fans out itself, so it has many results; "
                    "name the processor that lists the items."
                )


def _check_producers(
    phase: str,
    path: str,
    table: str,
    producers: set[tuple[str, str]],
    after: Mapping[str, frozenset[str]],
    each: bool,
) -> None:
    """Raise if every producer of the table runs too late for this processor."""
    if not producers:
        return  # raw data, produced outside the pipeline
    for at, producer in producers:
        is_peer = at == phase and each and producer != path
        if is_peer or (at != phase and phase not in after[at]):
            return
    at, producer = min(producers)
    if producer == path:
        text = (
            f"needs {table} of the same day, which it produces itself; "
            "declare it with historical(...) if it means earlier days."
        )
    elif at == phase:
        text = (
            f"needs {table}, which only {producer} of the same phase produces; "
            'move this processor to a later phase, or declare the phase with on="each".'
        )
    else:
        text = f"needs {table}, which only the later phase {at!r} produces ({producer})."
    raise DeclarationError(f"processor {path}: {text}")


def _awaited_tables(terms: ProcessorSettings) -> Iterator[str]:
    for need in terms.needs:
        if need.kind is DependencyKind.SAME_DAY and need.critical:
            yield need.table


def _ancestors(phases: list[Json]) -> dict[str, frozenset[str]]:
    """Return, for each phase, all phases upstream of it."""
    before = {phase["name"]: set(phase["after"]) for phase in phases}
    for name in TopologicalSorter(before).static_order():
        for earlier in tuple(before[name]):
            before[name] |= before[earlier]
    return {name: frozenset(found) for name, found in before.items()}


def _processors(pipeline: str, phases: Iterable[Json]) -> Iterator[tuple[str, ProcessorSettings]]:
    for phase in phases:
        for given in phase["processors"]:
            path = f"{pipeline}/{phase['name']}/{given['name']}"
            yield path, from_json(ProcessorSettings, given)
