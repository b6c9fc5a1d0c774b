"""Looks are shared, remembered, bounded and concurrent; proved on real files, by events."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.core.clock import SECOND
from penstock.flows.gates.evidence import Sighting
from penstock.pipelines.declare.needs import optional, same_day
from penstock.pipelines.dependency import Dependency
from penstock.probes.protocol import Answer, Budget, Look, Statement, Warehouse
from penstock.probes.runner import Probes, _wait_for
from penstock.probes.single_flight import Flights
from penstock.probes.sqlite import SqliteWarehouse
from penstock.testing.clock import VirtualClock
from tests.probes.kit import DAY, SqliteSite, fill

WAIT_MAX = 30.0


class Watched(SqliteWarehouse):
    """A SQLite file whose reads are counted, and held until `go` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.reads: list[tuple[str, ...]] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Semaphore(0)
        self.closed = 0

    def read(self, statements: Sequence[Statement], budget: Budget) -> Answer:
        self.reads.append(tuple(s.text for s in statements))
        self.begun.release()
        assert self.go.wait(WAIT_MAX)
        return super().read(statements, budget)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    site = SqliteSite(tmp_path / "season.db")
    fill(site)
    return site.path


@pytest.fixture
def watched(file: Path) -> Watched:
    return Watched(file)


@contextmanager
def probing(clock: VirtualClock, warehouse: Warehouse, threads: int = 8) -> Iterator[Probes]:
    probes = Probes(clock, opener=lambda _: warehouse, threads=threads)
    try:
        yield probes
    finally:
        probes.close()


def ask(*needs: Dependency, since: int | None = None, seconds: float = WAIT_MAX) -> Look:
    return Look(
        dependencies=[need.resolved("game_date", "here") for need in needs],
        partition=DAY,
        since=since,
        budget=Budget(seconds=seconds),
    )


BOX = same_day("boxscores")


class TestShared:
    """Many ask, one query is made."""

    def test_a_hundred_flows_make_one_query(self, clock: VirtualClock, watched: Watched) -> None:
        """Flows that ask while the look is under way join it, whatever the need is to them."""
        watched.go.clear()
        asked = threading.Semaphore(0)
        needs = [BOX, optional("boxscores")]

        def flow(n: int) -> Sighting:
            asked.release()
            return probes.look(ask(needs[n % 2]))[0]

        with probing(clock, watched) as probes, ThreadPoolExecutor(100) as flows:
            seen = [flows.submit(flow, n) for n in range(100)]
            for _ in range(100):
                assert asked.acquire(timeout=WAIT_MAX)
            assert watched.begun.acquire(timeout=WAIT_MAX)
            watched.go.set()
            found = [future.result(WAIT_MAX) for future in seen]
        assert len(watched.reads) == 1
        assert {(s.key, s.rows) for s in found} == {
            ("same_day:boxscores", 40),
            ("optional:boxscores", 40),
        }

    def test_other_shapes_are_other_questions(self, clock: VirtualClock, watched: Watched) -> None:
        """Another partition, column, check or counting function is looked at for itself."""
        with probing(clock, watched) as probes:
            probes.look(
                ask(
                    BOX,
                    same_day("boxscores", not_null=["points"]),
                    same_day("boxscores", expect=lambda _: 1),
                    same_day("boxscores", expect=lambda _: 2),
                    same_day("boxscores", checks=["SELECT 1 WHERE 1 = 0"]),
                    same_day("schedule"),
                )
            )
            probes.look(Look(dependencies=ask(BOX).dependencies, partition="2025-12-30"))
        assert len(watched.reads) == 7

    def test_dependencies_are_looked_at_at_once(
        self, clock: VirtualClock, watched: Watched
    ) -> None:
        """As many looks are under way as there are threads, and no more."""
        watched.go.clear()
        needs = [same_day("boxscores", expect=lambda _, n=n: n) for n in range(5)]  # type: ignore[misc]
        with probing(clock, watched, threads=3) as probes, ThreadPoolExecutor(1) as flow:
            seen = flow.submit(probes.look, ask(*needs))
            for _ in range(3):
                assert watched.begun.acquire(timeout=WAIT_MAX)
            assert len(watched.reads) == 3
            watched.go.set()
            assert [s.expected for s in seen.result(WAIT_MAX)] == [0, 1, 2, 3, 4]


class TestRemembered:
    """Results serve for 300 seconds of the injected clock."""

    def test_for_300_seconds(self, clock: VirtualClock, watched: Watched) -> None:
        """Up to then the sighting is the old one, with the time it was made."""
        with probing(clock, watched) as probes:
            began = clock.now()
            probes.look(ask(BOX))
            SqliteSite(watched._path).run("DELETE FROM boxscores")
            clock.advance(seconds=299.999999)
            (old,) = probes.look(ask(BOX))
            assert (old.rows, old.looked_at) == (40, began)
            clock.advance(1)
            (new,) = probes.look(ask(BOX))
            assert (new.rows, new.looked_at) == (0, began + 300 * SECOND)
        assert len(watched.reads) == 2

    def test_since(self, clock: VirtualClock, watched: Watched) -> None:
        """What was seen before the upstream phase completed does not count after it."""
        with probing(clock, watched) as probes:
            probes.look(ask(BOX))
            completed = clock.advance(seconds=5)
            clock.advance(seconds=1)
            assert probes.look(ask(BOX, since=completed))[0].looked_at == clock.now()
            clock.advance(seconds=1)
            assert probes.look(ask(BOX, since=completed))[0].looked_at < clock.now()
        assert len(watched.reads) == 2

    def test_since_does_not_join_a_look_under_way(
        self, clock: VirtualClock, watched: Watched
    ) -> None:
        """A look that began before may have missed the rows that matter."""
        watched.go.clear()
        with probing(clock, watched) as probes, ThreadPoolExecutor(2) as flows:
            first = flows.submit(probes.look, ask(BOX))
            assert watched.begun.acquire(timeout=WAIT_MAX)
            later = clock.advance(seconds=1)
            second = flows.submit(probes.look, ask(BOX, since=later))
            assert watched.begun.acquire(timeout=WAIT_MAX)
            watched.go.set()
            assert second.result(WAIT_MAX)[0].looked_at == later
            assert first.result(WAIT_MAX)[0].rows == 40
        assert len(watched.reads) == 2

    def test_failures_are_not_remembered(self, clock: VirtualClock, watched: Watched) -> None:
        """The next look tries again: a passing trouble must not last 300 seconds."""
        missing = same_day("latecomers")
        with probing(clock, watched) as probes:
            assert probes.look(ask(missing))[0].error
            SqliteSite(watched._path).run("CREATE TABLE latecomers (game_date TEXT)")
            assert probes.look(ask(missing))[0].rows == 0

    def test_memory_is_bounded(self, clock: VirtualClock) -> None:
        """The oldest results make room; what is kept still serves."""
        made: list[int] = []

        def make(key: int) -> int:
            made.append(key)
            return key

        with ThreadPoolExecutor(1) as executor:
            flights: Flights[int] = Flights(executor, clock, entries_max=10)
            for key in range(100):
                assert flights.join(key, lambda _, key=key: make(key)).result() == key  # type: ignore[misc]
            assert len(flights._flights) <= 10
            flights.join(99, lambda _: make(99)).result()
            flights.join(0, lambda _: make(0)).result()
        assert made == [*range(100), 0]


class TestBounded:
    """Nothing is waited for for ever, and nothing is raised."""

    def test_overall(self, clock: VirtualClock, watched: Watched) -> None:
        """What is not seen within the overall bound is an error; the rest is there."""
        watched.go.clear()
        with probing(clock, watched) as probes:
            (seen,) = probes.look(ask(BOX, seconds=0.01))
            assert seen.error == "no answer within 0.01 s"
            watched.go.set()
            assert probes.look(ask(BOX))[0].rows == 40
        assert len(watched.reads) == 1

    def test_no_warehouse(self, clock: VirtualClock, watched: Watched) -> None:
        """A dependency without a place to look is an error in words."""
        with probing(clock, watched) as probes:
            (seen,) = probes.look(Look(dependencies=[BOX], partition=DAY))
        assert "no warehouse" in (seen.error or "")

    def test_bad_addresses(self, clock: VirtualClock) -> None:
        """An address that cannot be used is a sighting, and shows no password."""
        probes = Probes(clock)
        for address in ("oracle://scott:tiger@db/x", "duckdb", "postgresql:nothing", "sqlite:"):
            need = BOX.resolved("game_date", address)
            (seen,) = probes.look(Look(dependencies=[need], partition=DAY))
            assert "warehouse: expected duckdb:FILE" in (seen.error or "")
            assert "tiger" not in (seen.error or "")
        probes.close()

    def test_named_warehouses(self, clock: VirtualClock, file: Path) -> None:
        """A pipeline may name a warehouse whose address the deployment knows."""
        probes = Probes(clock, names={"season": f"sqlite:{file}"})
        need = BOX.resolved("game_date", "season")
        (seen,) = probes.look(Look(dependencies=[need], partition=DAY))
        assert seen.rows == 40
        probes.close()

    def test_the_store_is_no_warehouse(
        self, clock: VirtualClock, file: Path, tmp_path: Path
    ) -> None:
        """Whatever way leads to the store's own file, nobody looks into it."""
        link = tmp_path / "link.db"
        link.symlink_to(file)
        probes = Probes(clock, names={"season": f"sqlite:{link}"}, own=file)
        for address in ("season", f"sqlite:{file}", f"sqlite:{file.parent}/./{file.name}"):
            need = BOX.resolved("game_date", address)
            (seen,) = probes.look(Look(dependencies=[need], partition=DAY))
            assert seen.rows is None
            assert "own database; keep the data in a file of its own" in (seen.error or "")
        probes.close()

    def test_closed(self, clock: VirtualClock, watched: Watched) -> None:
        """After close there are errors, no looks; closing again is nothing."""
        with probing(clock, watched) as probes:
            probes.look(ask(BOX))
        probes.close()
        assert watched.closed == 1
        assert probes.look(ask(same_day("schedule")))[0].error

    def test_a_look_that_waits_for_a_thread_is_given_up_at_close(
        self, clock: VirtualClock, watched: Watched
    ) -> None:
        """Whoever waits for it is told so."""
        watched.go.clear()
        look = ask(same_day("schedule"))
        with probing(clock, watched, threads=1) as probes, ThreadPoolExecutor(3) as flows:
            under_way = flows.submit(probes.look, ask(BOX))
            assert watched.begun.acquire(timeout=WAIT_MAX)
            queued = probes._begin(look.dependencies[0], look)
            assert isinstance(queued, Future)
            waiting = flows.submit(_wait_for, [queued], 3 * WAIT_MAX)
            closing = flows.submit(probes.close)
            waiting.result(WAIT_MAX)  # long before its own bound
            watched.go.set()
            closing.result(WAIT_MAX)
            assert under_way.result(WAIT_MAX)[0].rows == 40
            seen = probes._end(look.dependencies[0], queued, look)
        assert "closed before" in (seen.error or "")

    def test_errors_of_any_kind(self, clock: VirtualClock, watched: Watched) -> None:
        """Not only a ProbeFailed: whatever an adapter raises is an error in words."""

        class Broken(Watched):
            def read(self, *_: object) -> Answer:
                raise MemoryError("password=hunter2")

        with probing(clock, Broken(watched._path)) as probes:
            (seen,) = probes.look(ask(BOX))
        assert seen.error == "MemoryError: password=***"
