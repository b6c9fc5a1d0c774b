"""Many simulated histories on all cores, and a line about each kind: what `make simulate` runs.

    python -m penstock.testing.simulate --seeds 5000 [--only bus]

First histories of the queue, flows and limits, then as many of the bus.

Failing seeds are printed with the command that shows them again; the exit code then is 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from penstock.core.clock import SystemClock
from tests.harness.bus_simulation import BusReport, BusSimulationFailed, run_bus_seed
from tests.harness.simulation import Report, SimulationFailed, run_seed

FAILURES_SHOWN = 20
TELL_EVERY = 100


def one(seed: int) -> Report | str:
    """A history, or how it failed."""
    try:
        return run_seed(seed)
    except SimulationFailed as error:
        return str(error)


def one_of_bus(seed: int) -> BusReport | str:
    """A history of the bus, or how it failed."""
    try:
        return run_bus_seed(seed)
    except BusSimulationFailed as error:
        return str(error)


KINDS: dict[str, tuple[Callable[[int], Report | BusReport | str], tuple[str, ...]]] = {
    "queue": (one, ("steps", "commits", "runs", "checks")),
    "bus": (one_of_bus, ("steps", "commits", "messages", "dead", "checks")),
}
"""Which histories there are: how one is made, and what is told of it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds and print the summary."""
    parser = argparse.ArgumentParser(description="Run many simulated histories.")
    parser.add_argument("--seeds", type=int, default=5_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=tuple(KINDS), help="histories of one kind")
    given = parser.parse_args(arguments)
    kinds = [given.only] if given.only else list(KINDS)
    failed = [_many(kind, given.first, given.seeds, given.processes) for kind in kinds]
    return 1 if any(failed) else 0


def _many(kind: str, first: int, seeds: int, processes: int) -> int:
    """Run the seeds of one kind and say what they were like; returns how many failed."""
    make, fields = KINDS[kind]
    clock = SystemClock()
    began = clock.monotonic()
    total = Counter[str]()
    faults = Counter[str]()
    failures: list[str] = []
    with multiprocessing.Pool(processes) as pool:
        histories = pool.imap_unordered(make, range(first, first + seeds), chunksize=5)
        for number, found in enumerate(histories, 1):
            if number % TELL_EVERY == 0 and number < seeds:
                rate = number / (clock.monotonic() - began)
                left = (seeds - number) / rate / 60
                sys.stderr.write(
                    f"{kind}: {number:,} of {seeds:,}, {len(failures)} failures, "
                    f"{rate:.1f}/s, {left:.0f} min to go\n"
                )
            if isinstance(found, str):
                failures.append(found)
                sys.stdout.write(f"{found}\n" if len(failures) <= FAILURES_SHOWN else "")
                sys.stdout.flush()
                continue
            faults.update(found.faults)
            total.update({name: getattr(found, name) for name in fields})
    seconds = clock.monotonic() - began
    kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(faults.items()))
    told = ", ".join(f"{total[name]:,} {name}" for name in fields)
    sys.stdout.write(
        f"{kind}: {seeds:,} seeds in {seconds:,.0f} s ({seeds / seconds:.1f}/s): {told}, "
        f"{faults.total():,} faults ({kinds}), {len(failures):,} failures\n"
    )
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
