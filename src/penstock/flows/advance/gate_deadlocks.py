"""Rings: gates of one flow that wait for each other's tables, and so would wait for ever.

Asked before a gate decides, in memory over its `Book`. What the other gates wait for is what they
saw last; a table that somebody outside the waiting gates makes may still come. Processors also wait
for the phases before theirs, which is how two branches come to wait for each other. Data that
nobody here declares to produce is never a ring.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from penstock.flows.advance.snapshot import Book
from penstock.flows.cascade import Ask
from penstock.flows.gates.evidence import Assessment
from penstock.flows.gates.gate_score import is_critical_absent
from penstock.flows.gates.override import covering
from penstock.flows.phases import WAITS_FOR_GATE, PhaseState
from penstock.flows.store.flows import Phase
from penstock.pipelines.cycles import cycle_of
from penstock.pipelines.dependency import Kind
from penstock.pipelines.plan import PhasePlan


def ring_of(book: Book, ask: Ask, found: Sequence[Assessment]) -> tuple[str, ...]:
    """Return the processors that wait for each other when this gate is among them; else nothing."""
    lacking = {
        a.table
        for a in found
        if is_critical_absent(a) and a.rows == 0 and not covering(a, book.overrides, book.now)
    }
    products = book.planned.products
    if not any(lacking & tables for tables in products.values()):
        return ()
    waits: dict[str, set[str]] = {}
    makers: dict[str, set[str]] = {place: set(tables) for place, tables in products.items()}
    for phase in book.planned.plan.phases:
        for name in phase.expected:
            row = _gate(book, phase, name)
            if row.started_at is not None or PhaseState(row.state) not in WAITS_FOR_GATE:
                continue
            place = f"{phase.name}/{name}"
            is_asked = ask.phase == phase.name and ask.processor in (None, name)
            tables = lacking if is_asked else _absent(book, row)
            waits[place] = {*tables, *_order(book, phase, place, makers)}
    for name in book.planned.plan.phase(ask.phase).expected:
        if ask.processor in (None, name):
            ring = cycle_of(f"{ask.phase}/{name}", waits, makers)
            if ring:
                return ring
    return ()


def _gate(book: Book, phase: PhasePlan, processor: str) -> Phase:
    return book.row(phase.name, processor if phase.terms.on == "each" else "")


def _absent(book: Book, row: Phase) -> set[str]:
    """The critical tables of the day that a gate saw without rows when it looked last."""
    seen: Mapping[str, list[object]] = {} if row.evidence is None else json.loads(row.evidence)
    needs = [need.dependency for need in book.planned.needs(row.phase, row.processor)]
    return {
        need.table
        for need in needs
        if need.kind is Kind.SAME_DAY and need.critical and seen.get(need.key, [None])[0] == 0
    }


def _order(
    book: Book, phase: PhasePlan, place: str, makers: dict[str, set[str]]
) -> Collection[str]:
    """What a processor waits for because phases follow each other, as tables those make.

    All of them where a phase waits for a whole set; any of them where it starts without stragglers,
    or where one report is enough.
    """
    found: set[str] = set()
    for name in phase.after:
        before = book.planned.plan.phase(name)
        some = phase.terms.on == "each" or before.terms.stragglers_us is not None
        for processor in before.expected:
            told = f"some of {name} for {place}" if some else f"end of {name}/{processor}"
            makers.setdefault(f"{name}/{processor}", set()).add(told)
            found.add(told)
    return found
