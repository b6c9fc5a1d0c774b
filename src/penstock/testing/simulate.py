"""Many simulated histories on all cores, and one line about them: what `make simulate` runs.

    python -m penstock.testing.simulate --seeds 5000

Failing seeds are printed with the command that shows them again; the exit code then is 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Sequence

from penstock.core.clock import SystemClock
from penstock.testing.simulation import Report, SimulationFailed, run_seed

FAILURES_SHOWN = 20


def one(seed: int) -> Report | str:
    """A history, or how it failed."""
    try:
        return run_seed(seed)
    except SimulationFailed as error:
        return str(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds and print the summary."""
    parser = argparse.ArgumentParser(description="Run many simulated histories.")
    parser.add_argument("--seeds", type=int, default=5_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(arguments)
    clock = SystemClock()
    began = clock.monotonic()
    total = Counter[str]()
    faults = Counter[str]()
    failures: list[str] = []
    with multiprocessing.Pool(given.processes) as pool:
        seeds = range(given.first, given.first + given.seeds)
        for found in pool.imap_unordered(one, seeds, chunksize=5):
            if isinstance(found, str):
                failures.append(found)
                sys.stdout.write(f"{found}\n" if len(failures) <= FAILURES_SHOWN else "")
                continue
            faults.update(found.faults)
            total.update(
                steps=found.steps, commits=found.commits, runs=found.runs, checks=found.checks
            )
    seconds = clock.monotonic() - began
    kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(faults.items()))
    sys.stdout.write(
        f"{given.seeds:,} seeds in {seconds:,.0f} s ({given.seeds / seconds:.1f}/s): "
        f"{total['steps']:,} steps, {total['commits']:,} commits, {total['runs']:,} runs, "
        f"{total['checks']:,} invariants checked, {faults.total():,} faults ({kinds}), "
        f"{len(failures):,} failures\n"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
