"""Many simulated histories on all cores, with one summary line per kind; run by `make simulate`.

    python -m tests.harness.simulate --seeds 5000 [--only bus] [--steps 120] [--json]

First come histories of the queue, flows and limits, then as many of the bus and of the bridge.
`--steps` sets how many steps each has before it recovers: with fewer, more histories fit into the
same time.

Failing seeds are printed with the command that reproduces them; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.clock import SystemClock
from tests.harness.bridge_simulation import (
    BridgeReport,
    BridgeSimulationFailed,
    run_bridge_seed,
)
from tests.harness.bus_simulation import BusReport, BusSimulationFailed, run_bus_seed
from tests.harness.simulation import Options, Report, SimulationFailed, run_seed

FAILURES_SHOWN = 20
PROGRESS_EVERY = 100


def one(seed: int, steps: int | None = None) -> Report | str:
    """Run one history; return its report, or the error text if it failed."""
    try:
        recovers = seed % 2 == 1
        return run_seed(
            seed,
            Options(recovers=recovers)
            if steps is None
            else Options(steps=steps, recovers=recovers),
        )
    except SimulationFailed as error:
        return str(error)


def one_of_bus(seed: int, steps: int | None = None) -> BusReport | str:
    """Run one history of the bus; return its report, or the error text if it failed."""
    try:
        return run_bus_seed(seed) if steps is None else run_bus_seed(seed, steps)
    except BusSimulationFailed as error:
        return str(error)


def one_of_bridge(seed: int, steps: int | None = None) -> BridgeReport | str:
    """Run one history of the bridge; return its report, or the error text if it failed."""
    try:
        return run_bridge_seed(seed) if steps is None else run_bridge_seed(seed, steps)
    except BridgeSimulationFailed as error:
        return str(error)


AnyReport = Report | BusReport | BridgeReport
KINDS: dict[str, tuple[Callable[..., AnyReport | str], tuple[str, ...]]] = {
    "queue": (one, ("steps", "commits", "runs", "checks")),
    "bus": (one_of_bus, ("steps", "commits", "messages", "dead", "checks")),
    "bridge": (one_of_bridge, ("messages", "crashes")),
}
"""The kinds of histories: the function that runs one, and the counts shown in the summary."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds and print the summary."""
    parser = argparse.ArgumentParser(description="Run many simulated histories.")
    parser.add_argument("--seeds", type=int, default=5_000, help="number of histories of each kind")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument(
        "--processes",
        type=int,
        default=int(os.environ.get("SIMULATE_PROCESSES", 0)) or os.cpu_count() or 1,
        help="default: SIMULATE_PROCESSES, or one for each core",
    )
    parser.add_argument("--only", choices=tuple(KINDS), help="run one kind only")
    parser.add_argument("--steps", type=int, help="steps of each history; default: by kind")
    parser.add_argument("--json", action="store_true", help="print a JSON line for each kind")
    given = parser.parse_args(arguments)
    kinds = [given.only] if given.only else list(KINDS)
    failed = [_many(kind, given) for kind in kinds]
    return 1 if any(failed) else 0


def _many(kind: str, given: argparse.Namespace) -> int:
    """Run the seeds of one kind and print a summary; return the number of failures."""
    make, fields = KINDS[kind]
    first, seeds = given.first, given.seeds
    clock = SystemClock()
    began = clock.monotonic()
    total = Counter[str]()
    faults = Counter[str]()
    failures: list[str] = []
    with multiprocessing.Pool(given.processes) as pool:
        history = functools.partial(make, steps=given.steps)
        histories = pool.imap_unordered(history, range(first, first + seeds), chunksize=5)
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
    if given.json:
        figures: dict[str, Any] = {
            "kind": kind, "seeds": seeds, "first": first, "seconds": round(seconds, 1),
            **{name: total[name] for name in fields},
            "faults": faults.total(), "failures": len(failures),
        }  # fmt: skip
        sys.stdout.write(json.dumps(figures) + "\n")
        return len(failures)
    kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(faults.items()))
    counts = ", ".join(f"{total[name]:,} {name}" for name in fields)
    sys.stdout.write(
        f"{kind}: {seeds:,} seeds in {seconds:,.0f} s ({seeds / seconds:.1f}/s): {counts}, "
        f"{faults.total():,} faults ({kinds}), {len(failures):,} failures\n"
    )
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
