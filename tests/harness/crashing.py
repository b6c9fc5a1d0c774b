"""Real crashes: a process that drives a flow is killed at every commit, and another finishes.

The flow runs once to count its commits. Then, for each commit, a forked process is killed by
SIGKILL right before it (everything written, nothing committed) or right after it (committed, but
the process never learned of it). A new process opens the database and finishes the flow. Afterwards
triggers, first runs, completions, decisions, journal entries and log rows must exist exactly once.
Processes, files and servers are real; only the clock is virtual, so that leases of dead processes
expire at once.

    python -m tests.harness.crashing --engine sqlite
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.core.clock import DAY, SECOND, SystemClock
from penstock.db.postgres.store import PostgresStore
from penstock.db.sqlite.store import SqliteStore
from penstock.db.statements import Engine
from penstock.db.store import Capabilities, PendingResult, Row, Store, Tx, Waiter
from penstock.testing.clock import VirtualClock
from penstock.testing.postgres.server import open_server
from tests.harness.crash_flow import CrashTestFailed, check_result, drive

T = TypeVar("T")

START: Final = 1_767_225_600 * SECOND
BEFORE: Final = "before"
AFTER: Final = "after"
Open = Callable[[VirtualClock], Store]


@dataclass(slots=True)
class KillPoint:
    """Counts the effective commits of a process; it dies at number kill_at, or never if 0."""

    kill_at: int = 0
    moment: str = BEFORE
    commits: int = 0


class _Watched:
    """A transaction that records whether it found or changed anything.

    Transactions without an effect do not count as commits.
    """

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.has_effect = False

    @property
    def engine(self) -> Engine:
        """Engine that runs this transaction."""
        return self._tx.engine

    @property
    def sees_all(self) -> bool:
        """Whether it sees the rows of all customers."""
        return self._tx.sees_all

    @property
    def events(self) -> object | None:
        """Stream on which facts of this transaction are emitted."""
        return self._tx.events

    def now(self) -> int:
        """Return the current time of this transaction."""
        return self._tx.now()

    def rows(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> list[Row]:
        """Run a named statement."""
        found = self._tx.rows(name, params, batch)
        self.has_effect = self.has_effect or bool(found)
        return found

    def run(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> int:
        """Run a named statement."""
        touched = self._tx.run(name, params, batch)
        self.has_effect = self.has_effect or touched > 0
        return touched

    def later(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> PendingResult:
        """Queue a named statement; it counts as a change only if it has rows to write."""
        self.has_effect = self.has_effect or bool(batch)
        return self._tx.later(name, params, batch)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run a call once the transaction is durable."""
        self._tx.after_commit(call)

    def wake(self, channels: Iterable[str]) -> None:
        """Send a wake-up."""
        self._tx.wake(channels)


class KillingStore:
    """A store whose process dies at one of its commits."""

    def __init__(self, inner: Store, fate: KillPoint) -> None:
        self._inner = inner
        self.events = inner.events
        self._fate = fate

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the engine."""
        return self._inner.capabilities

    def read(self, body: Callable[[Tx], T]) -> T:
        """Read; reads never kill the process."""
        return self._inner.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Write, and die right before or right after the chosen commit."""
        fate = self._fate

        def last(real: Tx) -> T:
            tx = _Watched(real)
            value = body(tx)
            fate.commits += tx.has_effect
            if tx.has_effect and fate.commits == fate.kill_at:
                if fate.moment == BEFORE:
                    _die()
                tx.after_commit(_die)
            return value

        return self._inner.write(last)

    def reserved(self) -> KillingStore:
        """Return the same store, so that all commits of the process are counted."""
        return self

    def scoped(self, customer: int) -> Store:
        """Not supported here."""
        raise NotImplementedError

    def wake(self, channels: Iterable[str]) -> None:
        """Send a wake-up."""
        self._inner.wake(channels)

    def listen(self, channels: Iterable[str]) -> Waiter:
        """Return a waiter of the real store."""
        return self._inner.listen(channels)

    def migrate(self) -> list[str]:
        """Apply missing migrations."""
        return self._inner.migrate()

    def verify(self) -> list[str]:
        """Return the names of missing migrations."""
        return self._inner.verify()

    def vacuum(self, tables: Sequence[str]) -> None:
        """Remove dead row versions."""
        self._inner.vacuum(tables)

    def before_close(self, call: Callable[[], None]) -> None:
        """Register a call that runs before the real store closes."""
        self._inner.before_close(call)

    def close(self) -> None:
        """Close every connection."""
        self._inner.close()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def survive(open_store: Open, every: int = 1) -> tuple[int, int]:
    """Kill at every (n-th) commit, before and after it; return (commits of a flow, kills).

    Raises Wrong, naming the commit, when something is lost, duplicated or stuck afterwards.
    """
    _child(lambda: _migrate(open_store))
    commits = _commits(open_store)
    points = [
        (number, side)
        for number in range(1, commits + 1)
        for side in (BEFORE, AFTER)
        if (2 * number + (side == AFTER)) % every == 0
    ]
    for place, (number, side) in enumerate(points, 1):
        _point(open_store, START + place * 4 * DAY, KillPoint(number, side), f"2026-{place:04}")
    return commits, len(points)


def _migrate(open_store: Open) -> None:
    store = open_store(VirtualClock(START))
    store.migrate()
    store.close()


def _commits(open_store: Open) -> int:
    """Return the number of commits of a flow without crashes.

    The second flow is counted: the first one on a database also sets the clock of fair ranks.
    """
    out, into = os.pipe()

    def first() -> None:
        clock = VirtualClock(START - 4 * DAY)
        drive(open_store(clock), clock, "2025-0000")

    def body() -> None:
        fate, clock = KillPoint(), VirtualClock(START)
        drive(KillingStore(open_store(clock), fate), clock, "2026-0000")
        os.write(into, str(fate.commits).encode())

    _child(first)
    _child(body)
    os.close(into)
    with os.fdopen(out) as output:
        return int(output.read())


def _point(open_store: Open, start: int, fate: KillPoint, partition: str) -> None:
    """Kill one process; let another finish the flow and check the result."""
    where = f"killed right {fate.moment} commit {fate.kill_at}"

    def victim() -> None:
        clock = VirtualClock(start)
        drive(KillingStore(open_store(clock), fate), clock, partition)

    def successor() -> None:
        clock = VirtualClock(start + DAY // 4)  # the dead process's leases have expired
        store = open_store(clock)
        try:
            drive(store, clock, partition)
            check_result(store, partition)
        except CrashTestFailed as wrong:
            raise CrashTestFailed(f"{where}: {wrong}") from None

    if _child(victim) != -signal.SIGKILL:
        raise CrashTestFailed(
            f"{where}: it was not killed; the flow made other commits than when counted"
        )
    if _child(successor) != 0:
        raise CrashTestFailed(f"{where}: see above")


def _child(body: Callable[[], None]) -> int:
    """Run in a forked process; return its exit code, or minus the signal that ended it."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    code = 1
    try:
        body()
        code = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
    os._exit(code)


@contextmanager
def opened(engine: str, where: str | None) -> Iterator[Open]:
    """Yield a function that opens stores, on the given file or URL or on a temporary one."""
    if engine == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            path = where or str(Path(folder) / "crash.db")
            yield lambda clock: SqliteStore(path, clock)
    elif where is not None:
        yield lambda clock: PostgresStore(where, clock)
    else:
        with open_server() as server:
            dsn = server.create_database("penstock_crash")
            yield lambda clock: PostgresStore(dsn, clock)
            server.drop_database("penstock_crash")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run on each engine and print one line for each."""
    parser = argparse.ArgumentParser(description="Kill a flow at every commit it makes.")
    parser.add_argument("--engine", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--where", help="database file or URL; default: a temporary one")
    parser.add_argument("--every", type=int, default=1, help="kill only at every n-th point")
    parser.add_argument("--json", action="store_true", help="print a JSON line for each engine")
    given: Any = parser.parse_args(arguments)
    clock = SystemClock()
    engines = ("sqlite", "postgres") if given.engine == "both" else (given.engine,)
    kills = Counter[str]()
    for engine in engines:
        began = clock.monotonic()
        try:
            with opened(engine, given.where) as open_store:
                commits, kills[engine] = survive(open_store, given.every)
        except CrashTestFailed as wrong:
            sys.stdout.write(f"{engine}: {wrong}\n")
            return 1
        seconds = clock.monotonic() - began
        if given.json:
            found = {"engine": engine, "commits": commits, "kills": kills[engine]}
            sys.stdout.write(json.dumps({**found, "seconds": round(seconds, 1)}) + "\n")
            continue
        sys.stdout.write(
            f"{engine}: a flow of {commits} commits killed {kills[engine]} times, "
            f"finished every time, nothing lost or duplicated ({seconds:.1f} s)\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
