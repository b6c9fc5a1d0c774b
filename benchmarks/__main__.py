"""`python -m benchmarks [name ...]`: run benchmarks, print one JSON line per result."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from typing import Protocol, cast

from benchmarks.result import Result, print_progress
from benchmarks.site import Site, site_open
from penstock.db.statements import Engine

# name -> (module, what it measures), in execution order
BENCHES = {
    "sched_due": ("schedule", "100,000 due configs become runs"),
    "sched_idle": ("schedule", "a tick over 1,000,000 configs, none due"),
    "sched_race": ("schedule", "4 scheduler processes on the same 100,000"),
    "queue": ("queue", "bulk enqueue, then one worker drains"),
    "telemetry": ("telemetry", "the queue with and without exporters of telemetry"),
    "limit_blocked": ("limited", "claims next to 100,000 runs blocked on one limit"),
    "limit_drain": ("limited", "runs behind one limit of ten, and behind a thousand such limits"),
    "latency": ("latency", "submit to start at 50/s, also from another process; idle CPU"),
    "heartbeat": ("heartbeat", "5,000 live runs with a heartbeat every 10 s"),
    "crash": ("crash", "kill -9 a worker holding 100 runs (takes the lease, 30 s)"),
    "fairness": ("fairness", "a flood delays neither other customers nor its sender's later runs"),
    "api": ("api", "50 external workers hold 1,000 runs of 10,000 customers over HTTP"),
    "overload": ("overload", "ten times the sustainable rate of the API, then back to normal"),
    "start": ("start", "`penstock up` on a new file until the API responds"),
    "cli_start": ("cli_start", "`penstock runs list` on a small SQLite database"),
    "gate": ("gate", "20 dependencies over 10,000,000 rows (DuckDB instead of SQLite)"),
    "cascade_latency": ("cascade", "from the commit of the last completion to the next phase"),
    "cascade_throughput": ("cascade", "500 flows of 6 phases of 5 no-op processors"),
    "cascade_waiting": ("cascade", "10,000 flows that wait at gates: CPU between re-checks"),
    "backfill": ("backfill", "1,000 partitions of 3 no-op phases, 8 and 64 at a time"),
    "monitor": ("monitor", "a pass of all detections over 10,000 live flows"),
    "fan_out": (
        "fan_out",
        "10,000 items in one phase, one in a hundred fails, then the next phase",
    ),
    "chain": ("chain", "one flow of 1,000 consecutive phases with one processor each"),
    "limit": ("limit", "a slot alone, and 64 contenders in 2 processes on a limit of 10"),
    "limit_fair": ("limit", "1,000 waiters of 2 processes in ticket order, a tenth of them heavy"),
    "limit_source": ("limit_cases", "30 messages, 3 processes, a table whose quota is 10, then 4"),
    "limit_rate": ("limit_cases", "100 a second over a minute, 4 processes"),
    "limit_crash": ("limit_cases", "200 contenders x 4 processes, kill -9 at random, a minute"),
    "bus": ("bus", "publish, deliver, ack: in one process, also in order over 1,000 keys"),
    "bus_backlog": ("bus", "a pull with 1,000,000 messages waiting, against 1,000"),
    "bus_ordered": ("bus", "pull and ack a backlog of one ordering key, and of 100"),
    "bus_poison": ("bus", "one message that always fails among 10,000"),
    "pubsub_wire": ("pubsub_wire", "Google's client library against the Pub/Sub front end"),
    "hostile": (
        "hostile",
        "200 hostile connections, and 1,000 hostile messages to every consumer of the bus",
    ),
    "consumer_sink": ("kit", "pushes through the kit into an SQL sink, singly and in batches"),
    "http_processor": ("http_processor", "runs sent to an endpoint on this machine"),
    "drivers": ("drivers", "small calls with the libpq pipeline and through psycopg's cursors"),
    "scale": (
        "scale",
        "PostgreSQL: 10,000 customers with 1,000 runs in progress, then 50,000 with 5,000",
    ),
    "snapshot": (
        "snapshot",
        "PostgreSQL: a session idle in a transaction for two minutes, at saturation",
    ),
    "verify": ("verify", "10,000,000 journal entries: hashes recomputed, compared with history"),
    "audit_ship": (
        "audit_ship",
        "1,000,000 journal rows to Parquet files by a process that is killed ten times",
    ),
    "load_map": (
        "load_map",
        "50,000 configs at two o'clock: starts per minute before and after jitter",
    ),
    "trace": ("trace", "traces, entities and search over 10,000,000 executions (takes minutes)"),
    "alerts": (
        "alerts",
        "a pass of the alert rules beside 50,000 configs and 10,000,000 executions",
    ),
    "pages": (
        "pages",
        "each page over 10,000,000 executions, 50,000 configs, 1,000,000 dead letters; 200 viewers",
    ),
    "partitions": (
        "partitions",
        "PostgreSQL: creating and dropping partitions of 100,000,000 ended runs (--rows)",
    ),
    "history": ("history", "lists and sums over 10,000,000 ended runs (takes minutes)"),
}


SIZED = ("partitions",)
"""Benchmarks whose number of rows can be chosen."""


class Bench(Protocol):
    """A benchmark on one site."""

    def __call__(self, site: Site, *, quick: bool, **more: int) -> Iterable[Result]:
        """Measure and yield the results."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named benchmarks; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="benchmarks to run; default: all")
    parser.add_argument("--engine", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--quick", action="store_true", help="use small sizes, as a smoke test")
    parser.add_argument("--rows", type=int, help="rows that partitions loads")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and exit")
    given = parser.parse_args(arguments)
    if given.list:
        for name, (_, about) in BENCHES.items():
            print(f"{name:12} {about}")
        return 0
    unknown = [name for name in given.names if name not in BENCHES]
    if unknown:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    engines: list[Engine] = ["sqlite", "postgres"] if given.engine == "both" else [given.engine]
    names = [name for name in BENCHES if not given.names or name in given.names]
    broken = 0
    for engine in engines:
        with site_open(engine) as site:
            for name in names:
                broken += _run(name, site, quick=given.quick, rows=given.rows)
    return 1 if broken else 0


def _run(name: str, site: Site, *, quick: bool, rows: int | None = None) -> int:
    """Run one benchmark; a failure is printed and does not stop the others."""
    print(f"{name} on {site.engine}", file=sys.stderr, flush=True)
    began = time.perf_counter()
    try:
        module = importlib.import_module(f"benchmarks.{BENCHES[name][0]}")
        bench = cast("Bench", getattr(module, name))
        more = {"rows": rows} if rows and name in SIZED else {}
        for result in bench(site, quick=quick, **more):
            print(result.line(), flush=True)
    except Exception:
        traceback.print_exc()
        return 1
    print_progress(f"took {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
