"""Deadlocks between processors, detected from the tables they wait for and the tables they produce.

A processor is stuck if a table that it waits for is produced only by processors that are also
stuck. A table that no processor declares may still be written by other systems. Pure; the
orchestrator checks for a cycle before a gate decides, because waiting never resolves one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def deadlocked(
    waits: Mapping[str, Collection[str]], produces: Mapping[str, Collection[str]]
) -> frozenset[str]:
    """Return the waiting processors that can never start.

    waits: same-day tables that each waiting processor waits for. produces: tables that each
    processor writes, whether it waits or not.
    """
    producers: dict[str, set[str]] = {}
    for processor, tables in produces.items():
        for table in tables:
            producers.setdefault(table, set()).add(processor)
    held = set(waits)
    while True:
        free = {
            processor
            for processor in held
            if not any(
                producers.get(table) and producers[table] <= held for table in waits[processor]
            )
        }
        if not free:
            return frozenset(held)
        held -= free


def cycle_of(
    processor: str,
    waits: Mapping[str, Collection[str]],
    produces: Mapping[str, Collection[str]],
) -> tuple[str, ...]:
    """Return the cycle that a processor is part of or waits for, with its first member repeated at
    the end; empty if there is none.
    """
    held = deadlocked(waits, produces)
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
    """Return a stuck producer of a table that the processor waits for; the first by name."""
    for table in sorted(waits[processor]):
        producers = sorted(name for name, tables in produces.items() if table in tables)
        if producers and all(name in held for name in producers):
            return producers[0]
    raise AssertionError(f"{processor} is not stuck")
