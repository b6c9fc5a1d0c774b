"""Probes are shared, cached, bounded in time and concurrent; tested on real files."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.clock import SECOND
from penstock.flows.gates.evidence import Observation
from penstock.pipelines.declare.needs import optional, same_day
from penstock.pipelines.dependency import Dependency
from penstock.probes.protocol import (
    ProbeBudget,
    ProbeRequest,
    ProbeStatement,
    QueryResults,
    Warehouse,
)
from penstock.probes.runner import ProbeRunner, _wait_for
from penstock.probes.single_flight import SingleFlight
from penstock.probes.sqlite import SqliteWarehouse
from penstock.testing.clock import VirtualClock
from tests.probes.kit import DAY, SqliteSite, fill

WAIT_MAX = 30.0


class ControlledWarehouse(SqliteWarehouse):
    """A SQLite file whose reads are counted and blocked until `go` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.reads: list[tuple[str, ...]] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Semaphore(0)
        self.closed = 0

    def read(self, statements: Sequence[ProbeStatement], budget: ProbeBudget) -> QueryResults:
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
def controlled(file: Path) -> ControlledWarehouse:
    return ControlledWarehouse(file)


@contextmanager
def probing(clock: VirtualClock, warehouse: Warehouse, threads: int = 8) -> Iterator[ProbeRunner]:
    probes = ProbeRunner(clock, opener=lambda _: warehouse, threads=threads)
    try:
        yield probes
    finally:
        probes.close()


def request(
    *needs: Dependency, since: int | None = None, seconds: float = WAIT_MAX
) -> ProbeRequest:
    return ProbeRequest(
        dependencies=[need.with_defaults("game_date", "here") for need in needs],
        partition=DAY,
        since=since,
        budget=ProbeBudget(timeout_s=seconds),
    )


BOX = same_day("boxscores")


class TestShared:
    """Concurrent requests share one query."""

    def test_a_hundred_flows_make_one_query(
        self, clock: VirtualClock, controlled: ControlledWarehouse
    ) -> None:
        """Requests during a probe join it, whatever kind of dependency they have."""
        controlled.go.clear()
        started = threading.Semaphore(0)
        needs = [BOX, optional("boxscores")]

        def flow(n: int) -> Observation:
            started.release()
            return probes.probe(request(needs[n % 2]))[0]

        with probing(clock, controlled) as probes, ThreadPoolExecutor(100) as flows:
            futures = [flows.submit(flow, n) for n in range(100)]
            for _ in range(100):
                assert started.acquire(timeout=WAIT_MAX)
            assert controlled.begun.acquire(timeout=WAIT_MAX)
            controlled.go.set()
            found = [future.result(WAIT_MAX) for future in futures]
        assert len(controlled.reads) == 1
        assert {(s.key, s.rows) for s in found} == {
            ("same_day:boxscores", 40),
            ("optional:boxscores", 40),
        }

    def test_different_queries_are_not_shared(
        self, clock: VirtualClock, controlled: ControlledWarehouse
    ) -> None:
        """Another partition, column, check or counting function needs a probe of its own."""
        with probing(clock, controlled) as probes:
            probes.probe(
                request(
                    BOX,
                    same_day("boxscores", not_null=["points"]),
                    same_day("boxscores", expect=lambda _: 1),
                    same_day("boxscores", expect=lambda _: 2),
                    same_day("boxscores", checks=["SELECT 1 WHERE 1 = 0"]),
                    same_day("schedule"),
                )
            )
            probes.probe(
                ProbeRequest(dependencies=request(BOX).dependencies, partition="2025-12-30")
            )
        assert len(controlled.reads) == 7

    def test_different_parameters_are_not_shared(
        self, clock: VirtualClock, controlled: ControlledWarehouse
    ) -> None:
        """A value that the query uses is part of its key; one that it does not use is not."""
        need = same_day("boxscores", where="points > :least", shared=True)
        with probing(clock, controlled) as probes:
            for given in ({"least": 1}, {"least": 2}, {"least": 2, "other": 3}):
                asked = replace(request(need), parameters=given)
                assert probes.probe(asked)[0].error is None
        assert len(controlled.reads) == 2

    def test_dependencies_are_probed_concurrently(
        self, clock: VirtualClock, controlled: ControlledWarehouse
    ) -> None:
        """As many probes run at once as there are threads, and no more."""
        controlled.go.clear()
        needs = [same_day("boxscores", expect=lambda _, n=n: n) for n in range(5)]
        with probing(clock, controlled, threads=3) as probes, ThreadPoolExecutor(1) as flow:
            found = flow.submit(probes.probe, request(*needs))
            for _ in range(3):
                assert controlled.begun.acquire(timeout=WAIT_MAX)
            assert len(controlled.reads) == 3
            controlled.go.set()
            assert [s.expected for s in found.result(WAIT_MAX)] == [0, 1, 2, 3, 4]


class TestCached:
    """Results are cached for 300 seconds of the injected clock."""

    def test_for_300_seconds(self, clock: VirtualClock, controlled: ControlledWarehouse) -> None:
        """Until then the result is the old one, with the time of its probe."""
        with probing(clock, controlled) as probes:
            began = clock.now()
            probes.probe(request(BOX))
            SqliteSite(controlled._path).run("DELETE FROM boxscores")
            clock.advance(seconds=299.999999)
            (old,) = probes.probe(request(BOX))
            assert (old.rows, old.looked_at) == (40, began)
            clock.advance(1)
            (new,) = probes.probe(request(BOX))
            assert (new.rows, new.looked_at) == (0, began + 300 * SECOND)
        assert len(controlled.reads) == 2

    def test_since(self, clock: VirtualClock, controlled: ControlledWarehouse) -> None:
        """A result from before the upstream phase completed is not used after it."""
        with probing(clock, controlled) as probes:
            probes.probe(request(BOX))
            completed = clock.advance(seconds=5)
            clock.advance(seconds=1)
            assert probes.probe(request(BOX, since=completed))[0].looked_at == clock.now()
            clock.advance(seconds=1)
            assert probes.probe(request(BOX, since=completed))[0].looked_at < clock.now()
        assert len(controlled.reads) == 2

    def test_since_does_not_join_an_earlier_probe(
        self, clock: VirtualClock, controlled: ControlledWarehouse
    ) -> None:
        """A probe that began earlier may have missed the relevant rows."""
        controlled.go.clear()
        with probing(clock, controlled) as probes, ThreadPoolExecutor(2) as flows:
            first = flows.submit(probes.probe, request(BOX))
            assert controlled.begun.acquire(timeout=WAIT_MAX)
            later = clock.advance(seconds=1)
            second = flows.submit(probes.probe, request(BOX, since=later))
            assert controlled.begun.acquire(timeout=WAIT_MAX)
            controlled.go.set()
            assert second.result(WAIT_MAX)[0].looked_at == later
            assert first.result(WAIT_MAX)[0].rows == 40
        assert len(controlled.reads) == 2

    def test_failures_are_not_cached(
        self, clock: VirtualClock, controlled: ControlledWarehouse
    ) -> None:
        """The next probe tries again: a temporary failure must not last 300 seconds."""
        missing = same_day("latecomers")
        with probing(clock, controlled) as probes:
            assert probes.probe(request(missing))[0].error
            SqliteSite(controlled._path).run("CREATE TABLE latecomers (game_date TEXT)")
            assert probes.probe(request(missing))[0].rows == 0

    def test_the_cache_is_bounded(self, clock: VirtualClock) -> None:
        """The oldest results are evicted; the others are still used."""
        made: list[int] = []

        def make(key: int) -> int:
            made.append(key)
            return key

        with ThreadPoolExecutor(1) as executor:
            calls: SingleFlight[int] = SingleFlight(executor, clock, entries_max=10)
            for key in range(100):
                assert calls.join(key, lambda _, key=key: make(key)).result() == key  # type: ignore[misc]
            assert len(calls._calls) <= 10
            calls.join(99, lambda _: make(99)).result()
            calls.join(0, lambda _: make(0)).result()
        assert made == [*range(100), 0]


class TestBounded:
    """Every wait is bounded, and no exception is raised."""

    def test_overall(self, clock: VirtualClock, controlled: ControlledWarehouse) -> None:
        """A probe that exceeds the overall limit is an error; other results are returned."""
        controlled.go.clear()
        with probing(clock, controlled) as probes:
            (found,) = probes.probe(request(BOX, seconds=0.01))
            assert found.error == "no response within 0.01 s"
            controlled.go.set()
            assert probes.probe(request(BOX))[0].rows == 40
        assert len(controlled.reads) == 1

    def test_no_warehouse(self, clock: VirtualClock, controlled: ControlledWarehouse) -> None:
        """A dependency without a warehouse is reported as an error."""
        with probing(clock, controlled) as probes:
            (found,) = probes.probe(ProbeRequest(dependencies=[BOX], partition=DAY))
        assert "no warehouse" in (found.error or "")

    def test_bad_addresses(self, clock: VirtualClock) -> None:
        """An unusable address is reported as an error, without its password."""
        probes = ProbeRunner(clock)
        for address in ("oracle://scott:tiger@db/x", "duckdb", "postgresql:nothing", "sqlite:"):
            need = BOX.with_defaults("game_date", address)
            (found,) = probes.probe(ProbeRequest(dependencies=[need], partition=DAY))
            assert "warehouse: expected duckdb:FILE" in (found.error or "")
            assert "tiger" not in (found.error or "")
        named = BOX.with_defaults("game_date", "shop")
        (found,) = probes.probe(ProbeRequest(dependencies=[named], partition=DAY))
        assert "PENSTOCK_WAREHOUSES=shop=ADDRESS" in (found.error or ""), "a name has no address"
        probes.close()

    def test_named_warehouses(self, clock: VirtualClock, file: Path) -> None:
        """A pipeline may name a warehouse whose address comes from the settings."""
        probes = ProbeRunner(clock, names={"season": f"sqlite:{file}"})
        need = BOX.with_defaults("game_date", "season")
        (found,) = probes.probe(ProbeRequest(dependencies=[need], partition=DAY))
        assert found.rows == 40
        probes.close()

    def test_the_store_cannot_be_probed(
        self, clock: VirtualClock, file: Path, tmp_path: Path
    ) -> None:
        """The store's own file is refused under every path that leads to it."""
        link = tmp_path / "link.db"
        link.symlink_to(file)
        probes = ProbeRunner(clock, names={"season": f"sqlite:{link}"}, own=file)
        for address in ("season", f"sqlite:{file}", f"sqlite:{file.parent}/./{file.name}"):
            need = BOX.with_defaults("game_date", address)
            (found,) = probes.probe(ProbeRequest(dependencies=[need], partition=DAY))
            assert found.rows is None
            assert "own database; keep the data in a separate file" in (found.error or "")
        probes.close()

    def test_closed(self, clock: VirtualClock, controlled: ControlledWarehouse) -> None:
        """After close there are errors and no probes; closing again does nothing."""
        with probing(clock, controlled) as probes:
            probes.probe(request(BOX))
        probes.close()
        assert controlled.closed == 1
        assert probes.probe(request(same_day("schedule")))[0].error

    def test_a_queued_probe_is_cancelled_by_close(
        self, clock: VirtualClock, controlled: ControlledWarehouse
    ) -> None:
        """The waiting caller receives an error."""
        controlled.go.clear()
        asked = request(same_day("schedule"))
        with probing(clock, controlled, threads=1) as probes, ThreadPoolExecutor(3) as flows:
            in_progress = flows.submit(probes.probe, request(BOX))
            assert controlled.begun.acquire(timeout=WAIT_MAX)
            queued = probes._begin(asked.dependencies[0], asked)
            assert isinstance(queued, Future)
            waiting = flows.submit(_wait_for, [queued], 3 * WAIT_MAX)
            closing = flows.submit(probes.close)
            waiting.result(WAIT_MAX)  # long before its own time limit
            controlled.go.set()
            closing.result(WAIT_MAX)
            assert in_progress.result(WAIT_MAX)[0].rows == 40
            found = probes._end(asked.dependencies[0], queued, asked)
        assert "closed before" in (found.error or "")

    def test_errors_of_any_kind(self, clock: VirtualClock, controlled: ControlledWarehouse) -> None:
        """Any exception of an adapter, not only ProbeFailed, becomes an error message."""

        class Broken(ControlledWarehouse):
            def read(self, *_: object) -> QueryResults:
                raise MemoryError("password=hunter2")

        with probing(clock, Broken(controlled._path)) as probes:
            (found,) = probes.probe(request(BOX))
        assert found.error == "MemoryError: password=***"
