"""Processors that wait for each other: found by what they wait for and what they produce.

A processor is stuck when something it waits for is produced only by processors that are stuck too;
data that nobody declares to produce may still arrive from outside. Pure; the orchestrator asks
before a gate decides, because a cycle never resolves by waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def stuck(
    waits: Mapping[str, Collection[str]], produces: Mapping[str, Collection[str]]
) -> frozenset[str]:
    """Return the waiting processors that can never start, whatever the others do.

    waits: processor to the same-day tables it waits for; produces: processor to its tables, for
    waiting and other processors alike.
    """
    makers: dict[str, set[str]] = {}
    for processor, tables in produces.items():
        for table in tables:
            makers.setdefault(table, set()).add(processor)
    held = set(waits)
    while True:
        free = {
            processor
            for processor in held
            if not any(makers.get(table) and makers[table] <= held for table in waits[processor])
        }
        if not free:
            return frozenset(held)
        held -= free


def cycle_of(
    processor: str,
    waits: Mapping[str, Collection[str]],
    produces: Mapping[str, Collection[str]],
) -> tuple[str, ...]:
    """Return the ring a processor waits in or for, its first member last again; empty if none."""
    held = stuck(waits, produces)
    if processor not in held:
        return ()
    path = [processor]
    while True:
        step = _next(path[-1], held, waits, produces)
        if step in path:
            return (*path[path.index(step) :], step)
        path.append(step)


def _next(
    processor: str,
    held: frozenset[str],
    waits: Mapping[str, Collection[str]],
    produces: Mapping[str, Collection[str]],
) -> str:
    """Return a stuck maker of something the processor waits for; the first by name."""
    for table in sorted(waits[processor]):
        makers = sorted(name for name, tables in produces.items() if table in tables)
        if makers and all(name in held for name in makers):
            return makers[0]
    raise AssertionError(f"{processor} is not stuck")
