"""Many simulated histories on all cores, with one summary line per kind; run by `make simulate`.

    python -m penstock.testing.simulate --seeds 5000 [--only bus]

First come histories of the queue, flows and limits, then as many of the bus.

Failing seeds are printed with the command that reproduces them; the exit code is then 1.
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
PROGRESS_EVERY = 100


def one(seed: int) -> Report | str:
    """Run one history; return its report, or the error text if it failed."""
    try:
        return run_seed(seed)
    except SimulationFailed as error:
        return str(error)


def one_of_bus(seed: int) -> BusReport | str:
    """Run one history of the bus; return its report, or the error text if it failed."""
    try:
        return run_bus_seed(seed)
    except BusSimulationFailed as error:
        return str(error)


KINDS: dict[str, tuple[Callable[[int], Report | BusReport | str], tuple[str, ...]]] = {
    "queue": (one, ("steps", "commits", "runs", "checks")),
    "bus": (one_of_bus, ("steps", "commits", "messages", "dead", "checks")),
}
"""The kinds of histories: the function that runs one, and the counts shown in the summary."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds and print the summary."""
    parser = argparse.ArgumentParser(description="Run many simulated histories.")
    parser.add_argument("--seeds", type=int, default=5_000, help="number of histories of each kind")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=tuple(KINDS), help="run one kind only")
    given = parser.parse_args(arguments)
    kinds = [given.only] if given.only else list(KINDS)
    failed = [_many(kind, given.first, given.seeds, given.processes) for kind in kinds]
    return 1 if any(failed) else 0


def _many(kind: str, first: int, seeds: int, processes: int) -> int:
    """Run the seeds of one kind and print a summary; return the number of failures."""
    make, fields = KINDS[kind]
    clock = SystemClock()
    began = clock.monotonic()
    total = Counter[str]()
    faults = Counter[str]()
    failures: list[str] = []
    with multiprocessing.Pool(processes) as pool:
        histories = pool.imap_unordered(make, range(first, first + seeds), chunksize=5)
        for number, found in enumerate(histories, 1):
            if number % PROGRESS_EVERY == 0 and number < seeds:
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
    counts = ", ".join(f"{total[name]:,} {name}" for name in fields)
    sys.stdout.write(
        f"{kind}: {seeds:,} seeds in {seconds:,.0f} s ({seeds / seconds:.1f}/s): {counts}, "
        f"{faults.total():,} faults ({kinds}), {len(failures):,} failures\n"
    )
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
