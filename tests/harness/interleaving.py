"""Interleaves transactions of several connections on a real PostgreSQL, statement by statement.

SQLite has one writer, so races between statements occur only on PostgreSQL. Each act (a callable
over a store, such as a service step) runs in its own thread and connection and parks before every
statement and every commit; a chooser selects which one continues. A statement that waits for a lock
is detected through `pg_blocking_pids`; the server resolves deadlocks, and the act is retried as the
store would. `exhaust` walks through all orders of a small scene, `explore` draws some orders of a
larger one from seeds.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, LiteralString, TypeVar, cast

import psycopg
from psycopg import errors as pgerrors

from penstock.core.clock import Clock
from penstock.core.errors import StoreBusy
from penstock.db.postgres.pipeline import PipelinedStatement, PostgresSession
from penstock.db.postgres.store import ATTEMPTS_MAX, SESSION
from penstock.db.postgres.transaction import PostgresTx
from penstock.db.store import Capabilities, Store, Tx, Waiter
from tests.harness.figures import FIGURES

T = TypeVar("T")
Act = Callable[[Store], Any]
Chooser = Callable[[Sequence[int]], int]
"""Given the parked actors, return the index of the one that continues."""

BEGIN_WRITE: LiteralString = "BEGIN"
BEGIN_READ: LiteralString = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
POLL_SECONDS = 0.003
POLLS_MAX = 5_000


class InterleavingFailed(AssertionError):
    """An order of statements broke something; the message shows the order."""

    def __init__(self, order: str, trace: Sequence[str], cause: BaseException) -> None:
        self.cause = cause
        steps = "\n".join(f"  {n:3d} {step}" for n, step in enumerate(trace))
        super().__init__(f"{order}: {cause!r}\n{steps}")


@dataclass(slots=True)
class Outcome:
    """The result of one act."""

    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class _Actor:
    """One thread with its connection."""

    name: str
    connection: PostgresSession
    state: str = "idle"
    is_granted: bool = False
    label: str = ""
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def pid(self) -> int:
        """Process id of its server process."""
        return self.connection.info.backend_pid


class Arena:
    """Connections to one database on which acts run in chosen orders."""

    def __init__(self, dsn: str, clock: Clock, actors: int = 3) -> None:
        """Open one connection per actor and one to watch them."""
        options = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
        options += " -c deadlock_timeout=20ms"
        self._clock = clock
        self._changed = threading.Condition()
        self._watch = psycopg.connect(dsn, autocommit=True)
        self._actors: list[_Actor] = []
        for n in range(actors):
            connection = PostgresSession.connect(dsn, autocommit=True, options=options)
            self._actors.append(_Actor(f"{chr(65 + n)}", connection))
        self.trace: list[str] = []

    def close(self) -> None:
        """Close every connection."""
        for actor in self._actors:
            actor.connection.close()
        self._watch.close()

    def play(self, acts: Sequence[Act], choose: Chooser) -> list[Outcome]:
        """Run the acts to their ends, one statement at a time, in the chooser's order."""
        assert len(acts) <= len(self._actors), "more acts than actors"
        self.trace = []
        actors = self._actors[: len(acts)]
        threads = []
        for actor, act in zip(actors, acts, strict=True):
            actor.state, actor.is_granted, actor.outcome = "running", False, Outcome()
            thread = threading.Thread(target=self._run, args=(actor, act), daemon=True)
            threads.append(thread)
            thread.start()
        while True:
            self._settle(actors)
            parked = [actor for actor in actors if actor.state == "parked"]
            if not parked:
                if all(actor.state == "done" for actor in actors):
                    break
                continue
            places = [actors.index(actor) for actor in parked]
            actor = parked[choose(places) if len(parked) > 1 else 0]
            self.trace.append(f"{actor.name}: {actor.label}")
            with self._changed:
                actor.is_granted, actor.state = True, "running"
                self._changed.notify_all()
        for thread in threads:
            thread.join()
        return [actor.outcome for actor in actors]

    def park(self, actor: _Actor, label: str) -> None:
        """Wait to be chosen; called by an actor's thread before each statement."""
        with self._changed:
            actor.label, actor.state = label, "parked"
            self._changed.notify_all()
            while not actor.is_granted:
                self._changed.wait()
            actor.is_granted = False

    def _run(self, actor: _Actor, act: Act) -> None:
        try:
            actor.outcome.value = act(cast("Store", ActorStore(self, actor, self._clock)))
        except BaseException as error:
            actor.outcome.error = error
        with self._changed:
            actor.state = "done"
            self._changed.notify_all()

    def _settle(self, actors: Sequence[_Actor]) -> None:
        """Wait until every actor is parked, done, or waits for a lock in the server."""
        for _ in range(POLLS_MAX):
            with self._changed:
                moving = [actor for actor in actors if actor.state == "running"]
                if not moving:
                    return
                self._changed.wait(POLL_SECONDS)
                moving = [actor for actor in actors if actor.state == "running"]
            if not moving:
                return
            blocked = self._blocked([actor.pid for actor in moving])
            parked = any(actor.state == "parked" for actor in actors)
            if parked and all(actor.pid in blocked for actor in moving):
                return
        raise AssertionError(f"no actor makes progress: {self.trace[-5:]}")

    def _blocked(self, pids: list[int]) -> set[int]:
        rows = self._watch.execute(
            "SELECT pid FROM unnest(%s::int[]) AS pid WHERE cardinality(pg_blocking_pids(pid)) > 0",
            (pids,),
        )
        return {row[0] for row in rows}


class _ParkingTx(PostgresTx):
    """A transaction that parks before each statement, even those that could be sent together.

    Statements sent in one flush cannot be interleaved on purpose, but the server still takes locks
    and reads data statement by statement.
    """

    def __init__(self, arena: Arena, actor: _Actor, injected: int | None) -> None:
        super().__init__(actor.connection.statement_pipeline, injected)
        self._arena = arena
        self._actor = actor

    def _send(self, asks: Sequence[PipelinedStatement]) -> None:
        for ask in asks:
            self._arena.park(self._actor, ask.label)
            super()._send([ask])


class ActorStore:
    """A store whose statements wait until their actor is chosen."""

    def __init__(self, arena: Arena, actor: _Actor, clock: Clock) -> None:
        self._arena = arena
        self._actor = actor
        self._clock = clock

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of PostgreSQL."""
        return Capabilities(
            engine="postgres",
            concurrent_writers=True,
            cross_process_wake=True,
            partitioned_history=True,
            row_level_security=True,
        )

    def read(self, body: Callable[[Tx], T]) -> T:
        """Read in a snapshot."""
        return self._attempt(body, BEGIN_READ)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Write in a transaction; it also parks before its commit."""
        return self._attempt(body, BEGIN_WRITE)

    def reserved(self) -> ActorStore:
        """Return the same connection."""
        return self

    def scoped(self, customer: int) -> Store:
        """Not part of this harness."""
        raise NotImplementedError

    def wake(self, channels: Iterable[str]) -> None:
        """Drop wake-ups."""

    def listen(self, channels: Iterable[str]) -> Waiter:
        """Not part of this harness."""
        raise NotImplementedError

    def migrate(self) -> list[str]:
        """Not part of this harness."""
        raise NotImplementedError

    def verify(self) -> list[str]:
        """Not part of this harness."""
        raise NotImplementedError

    def vacuum(self, tables: Sequence[str]) -> None:
        """Not part of this harness."""
        raise NotImplementedError

    def before_close(self, call: Callable[[], None]) -> None:
        """Ignore close hooks: the arena owns the connection."""

    def close(self) -> None:
        """Do nothing: the arena owns the connection."""

    def _attempt(self, body: Callable[[Tx], T], begin: LiteralString) -> T:
        connection = self._actor.connection
        for _ in range(ATTEMPTS_MAX):
            tx = _ParkingTx(self._arena, self._actor, self._clock.now())
            connection.execute(begin)
            try:
                value = body(tx)
                tx.flush()
                if begin is BEGIN_WRITE:
                    self._arena.park(self._actor, "COMMIT")
                connection.execute("COMMIT")
            except (pgerrors.DeadlockDetected, pgerrors.SerializationFailure):
                connection.execute("ROLLBACK")
                continue
            except BaseException:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
                raise
            for call in tx.callbacks:
                call()
            return value
        raise StoreBusy(f"gave up after {ATTEMPTS_MAX} tries")


Scene = Callable[[], tuple[Sequence[Act], Callable[[list[Outcome]], None]]]
"""Prepares the database; returns the acts and a check of their outcomes."""


def explore(arena: Arena, scene: Scene, seeds: Iterable[int]) -> int:
    """Run the scene in one random order per seed; return how many orders were different.

    Every other seed lets actors run for a while: many races need one actor to pause for long.
    """
    orders: set[tuple[str, ...]] = set()
    for seed in seeds:
        rng = random.Random(seed)
        _play(arena, scene, _uniform(rng) if seed % 2 else _ranked(rng), f"seed {seed}")
        orders.add(tuple(arena.trace))
    _count("sampled", len(orders))
    return len(orders)


def _uniform(rng: random.Random) -> Chooser:
    return lambda actors: rng.randrange(len(actors))


def _ranked(rng: random.Random) -> Chooser:
    """Continue the highest-ranked parked actor; a few times, mostly early, demote it."""
    rank: dict[int, float] = {}
    moments = {int(24 * rng.random() ** 2) for _ in range(rng.randint(1, 3))}
    steps = itertools.count()

    def choose(actors: Sequence[int]) -> int:
        for actor in actors:
            rank.setdefault(actor, rng.random())
        best = max(actors, key=rank.__getitem__)
        if next(steps) in moments:
            rank[best] = min(rank.values()) - 1
            best = max(actors, key=rank.__getitem__)
        return actors.index(best)

    return choose


def exhaust(arena: Arena, scene: Scene, limit: int) -> int:
    """Run the scene in every order, up to `limit` of them; return how many were run."""
    played = 0
    for choose, order in _all_orders(limit):
        _play(arena, scene, choose, order)
        played += 1
    # A scene that reaches the limit may have more orders: what was run is a sample of them.
    _count("exhausted" if played < limit else "sampled", played)
    return played


def _count(kind: Literal["exhausted", "sampled"], orders: int) -> None:
    """Count a scene and its orders for the report of `make prove`."""
    FIGURES[f"scenes_{kind}"] += 1
    FIGURES[f"orders_{kind}"] += orders


def _all_orders(limit: int) -> Iterator[tuple[Chooser, str]]:
    """Yield choosers that walk the tree of choices depth first."""
    prefix: list[int] = []
    for _ in range(limit):
        widths: list[int] = []

        def choose(
            actors: Sequence[int], path: list[int] = prefix, widths: list[int] = widths
        ) -> int:
            place = len(widths)
            widths.append(len(actors))
            return min(path[place], len(actors) - 1) if place < len(path) else 0

        yield choose, f"order {prefix}"
        path = [prefix[i] if i < len(prefix) else 0 for i in range(len(widths))]
        while path and path[-1] + 1 >= widths[len(path) - 1]:
            path.pop()
        if not path:
            return
        path[-1] += 1
        prefix = path


def _play(arena: Arena, scene: Scene, choose: Chooser, order: str) -> None:
    acts, check = scene()
    outcomes = arena.play(acts, choose)
    try:
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        check(outcomes)
    except BaseException as error:
        raise InterleavingFailed(order, arena.trace, error) from error
