"""Failover under load: PostgreSQL's primary is killed, its synchronous standby is promoted.

Publishers, consumers with an SQL sink, a receiver of pushes, and a server with worker and services
work on one URL that names both hosts; another process submits runs and triggers flows over HTTP.
The primary is killed by SIGKILL, and the standby promoted; no process is restarted. Then
everything finishes, and the result is compared with what was acknowledged: every accepted message,
run and flow exists exactly once and is completed, and nothing exists that was not requested.

    python -m tests.harness.failover --seconds 20

The report has the seconds from the kill to the first acknowledgment of each kind, and what was
accepted per second after that as shares of the rates before the kill; `recovery` is the least one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg

from penstock.core.clock import SystemClock
from penstock.testing.postgres.process import port_free
from penstock.testing.postgres.server import PostgresServer
from tests.harness.crash_bus import (
    DATABASES,
    PUBLISHERS,
    CrashTestDatabases,
    ProcessGroup,
    Wrong,
    await_first,
    drain,
    history_of,
    judge,
    prepare,
)
from tests.harness.crash_bus_roles import history_read
from tests.harness.failover_load import FLOW, QUEUE, SENDERS
from tests.harness.failover_load import history_of as load_history_of
from tests.kits.standby import StandbyServer, replicated_pair, urls_of

PHASES: Final = 2
PROCESSORS: Final = 3
RECOVERY_SECONDS: Final = 120
DRAIN_SECONDS: Final = 180
POLL_SECONDS: Final = 0.02
# Runs by partition: how many exist, and how many of them are completed.
_RUNS: Final = """
SELECT r.partition, count(*), count(*) FILTER (WHERE r.state = 'COMPLETED') FROM (
    SELECT partition, processor, final_state AS state FROM history WHERE parent_run_id IS NULL
    UNION ALL SELECT partition, processor, 'LIVE' FROM runs WHERE parent_run_id IS NULL) AS r
JOIN processors p ON p.processor = r.processor JOIN pipelines l ON l.pipeline = p.pipeline
WHERE l.name = %s GROUP BY 1"""
_FLOWS: Final = """
SELECT f.partition, count(*), count(*) FILTER (WHERE f.state = 'COMPLETE'),
    sum((SELECT count(*) FROM completions c WHERE c.flow_id = f.flow_id)),
    sum((SELECT count(*) FROM phase_completion_log g WHERE g.flow_id = f.flow_id))
FROM flows f JOIN pipelines l ON l.pipeline = f.pipeline WHERE l.name = %s GROUP BY 1"""
_OPEN: Final = "SELECT (SELECT count(*) FROM runs) + count(*) FROM flows WHERE ended_at IS NULL"
_ENDED: Final = "SELECT count(*) FROM history"


class FailoverProcesses(ProcessGroup):
    """The processes of the bus, a server that executes pipelines, and what submits to it."""

    def names(self) -> list[str]:
        """Return the names of all processes."""
        return [*super().names(), "submitter"]

    def command(self, name: str) -> list[str]:
        """Return the command line of a process."""
        if name == "server":
            return [*super().command(name), "--pipelines", "tests.harness.failover_load"]
        if name != "submitter":
            return super().command(name)
        url = f"http://127.0.0.1:{self.port}"
        given = {"url": url, "key": self.key, "folder": str(self.place.folder)}
        return [sys.executable, "-m", "tests.harness.failover_load", json.dumps(given)]


def fail_over(seconds: float) -> dict[str, Any]:
    """Run, kill the primary, promote the standby, finish and check; raise Wrong for a loss."""
    clock = SystemClock()
    with (
        tempfile.TemporaryDirectory() as name,
        replicated_pair(durable=True) as (primary, standby),
    ):
        for database in DATABASES:
            primary.create_database(database)
        bus, sink, pushed = (urls_of(primary, standby, one) for one in DATABASES)
        place = CrashTestDatabases("postgres", Path(name), bus, sink, pushed)
        push_port = port_free()
        cast = FailoverProcesses(
            place, port_free(), push_port, prepare(place, push_port, "operator")
        )
        try:
            for process in cast.names():
                cast.start(process)
            await_first(place, clock)
            _wait(clock, lambda: all(_accepted(place).values()), "runs and flows are accepted")
            before = _rates(place, clock, seconds / 2)
            times = _promote(place, primary, standby, clock)
            after = _rates(place, clock, seconds / 2)
            ended = [name for name, one in cast.running.items() if one.poll() is not None]
            if ended:
                raise Wrong(f"ended by themselves: {', '.join(ended)}")
            for role in ("submitter", "publisher"):
                cast.stop(role)
            drain(place, clock)
            _finish(place, clock)
            for role in ("consumer", "receiver", "server"):
                cast.stop(role)
            shares = {kind: round(after[kind] / rate, 3) for kind, rate in before.items()}
            return {
                "seconds": seconds, "recovery_seconds": times, "recovery": min(shares.values()),
                "recovery_by_kind": shares, **_verdict(place),
            }  # fmt: skip
        finally:
            cast.close()


def _rates(place: CrashTestDatabases, clock: SystemClock, seconds: float) -> dict[str, float]:
    """Measure what is accepted per second, by kind."""
    since, before = clock.monotonic(), _accepted(place)
    clock.sleep(seconds)
    now, spent = _accepted(place), clock.monotonic() - since
    return {kind: (now[kind] - count) / spent for kind, count in before.items()}


def _promote(
    place: CrashTestDatabases, primary: PostgresServer, standby: StandbyServer, clock: SystemClock
) -> dict[str, float]:
    """Kill and promote; return the seconds from the kill to the first success of each kind."""
    began = clock.monotonic()
    primary.kill()
    accepted = _accepted(place)
    standby.promote()
    times = {"promoted": clock.monotonic() - began}
    counts: dict[str, Callable[[], int]] = {
        "runs ended": lambda: _number(standby, DATABASES[0], _ENDED),
        "messages applied": lambda: _number(standby, DATABASES[1], "SELECT count(*) FROM effects"),
    }
    before = {name: count() for name, count in counts.items()}
    waiting = {*accepted, *counts}

    def observe() -> bool:
        now = _accepted(place)
        now |= {name: count() for name, count in counts.items() if name in waiting}
        for kind in sorted(waiting):
            if now[kind] > (accepted | before)[kind]:
                times[kind] = clock.monotonic() - began
                waiting.discard(kind)
        return not waiting

    _wait(clock, observe, "every kind of work resumes", RECOVERY_SECONDS)
    return {kind: round(value, 2) for kind, value in times.items()}


def _accepted(place: CrashTestDatabases) -> dict[str, int]:
    """Count what was acknowledged so far, by kind."""
    found = {"messages accepted": sum(
        len(history_read(history_of(place, n))[1]) for n in range(PUBLISHERS)
    )}  # fmt: skip
    for kind in SENDERS:
        found[f"{kind} accepted"] = len(_asked(place, kind)[1])
    return found


def _asked(place: CrashTestDatabases, kind: str) -> tuple[set[str], set[str]]:
    """Return the partitions that were requested, and those that were accepted."""
    asked: set[str] = set()
    accepted: set[str] = set()
    for sender in range(SENDERS[kind]):
        numbers, done = history_read(load_history_of(place.folder, kind, sender))
        asked |= {f"n{n}" for n in numbers}
        accepted |= {f"n{n}" for n in done}
    return asked, accepted


def _verdict(place: CrashTestDatabases) -> dict[str, Any]:
    """Compare the promoted database with the histories; raise Wrong if anything differs."""
    verdict: dict[str, Any] = {"messages": judge(place)}
    with psycopg.connect(place.database_url) as connection:
        runs = connection.execute(_RUNS, (QUEUE,)).fetchall()
        flows = connection.execute(_FLOWS, (FLOW,)).fetchall()
    for kind, rows in (("runs", runs), ("flows", flows)):
        asked, accepted = _asked(place, kind)
        found = Counter({str(row[0]): int(row[1]) for row in rows})
        verdict[kind] = {
            "asked": len(asked),
            "accepted": len(accepted),
            "lost": len(accepted - found.keys()),
            "doubled": sum(1 for count in found.values() if count > 1),
            "unasked": len(found.keys() - asked),
            "not_completed": sum(1 for row in rows if row[2] != row[1]),
        }
    steps = [row for row in flows if tuple(row[3:]) != (PROCESSORS, PHASES)]
    verdict["flows"]["wrong_steps"] = len(steps)
    wrong = ("lost", "doubled", "unasked", "not_completed", "wrong_steps")
    if any(verdict[kind].get(name) for kind in SENDERS for name in wrong):
        raise Wrong(json.dumps(verdict))
    return verdict


def _finish(place: CrashTestDatabases, clock: SystemClock) -> None:
    """Wait until no run is live and no flow is open."""
    with psycopg.connect(place.database_url, autocommit=True) as connection:

        def is_done() -> bool:
            row = connection.execute(_OPEN).fetchone()
            return row == (0,)

        _wait(clock, is_done, "runs and flows end", DRAIN_SECONDS)


def _number(server: PostgresServer, database: str, text: str) -> int:
    with psycopg.connect(server.dsn(database)) as connection:
        row = connection.execute(text.encode()).fetchone()
    return int(row[0]) if row else 0


def _wait(
    clock: SystemClock, condition: Callable[[], bool], what: str, seconds: float = 60
) -> None:
    end = clock.monotonic() + seconds
    while not condition():
        if clock.monotonic() > end:
            raise Wrong(f"not within {seconds:g} s: {what}")
        clock.sleep(POLL_SECONDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fail over once and print the report as a JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of the load")
    given = parser.parse_args(arguments)
    sys.stdout.write(json.dumps(fail_over(given.seconds)) + "\n")


if __name__ == "__main__":
    main()
