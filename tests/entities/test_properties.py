"""Random histories: what incremental processors received together is what changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.clock import HOUR
from penstock.db.store import Store
from penstock.runs.states import RunStatus
from penstock.testing.clock import VirtualClock
from tests.entities.scene import DOWN, UP, Held, Scene
from tests.kits.effort import effort

PARTITIONS = ("2025-11-16", "2025-11-17")
KINDS = {"everyone": ("players", "teams"), "players": ("players",), "by_day": ("players",)}
REQUIRED = {"everyone": UP, "players": ("rosters",), "by_day": ("rosters",)}

ids = st.lists(st.integers(0, 9), max_size=4)
reports = st.one_of(
    st.fixed_dictionaries({}, optional={"players": ids, "teams": ids}),
    st.none(),
    st.just("failed"),
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("report"), st.integers(0, 5), reports),
        st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from(["done", "partial", "dead"])),
        st.tuples(st.just("step"), st.just(None)),
        st.tuples(st.just("late"), st.just(None)),
    ),
    min_size=12,
    max_size=40,
)


@dataclass
class Report:
    """What one execution of the first phase changed; None if that is not known."""

    source: str
    partition: str
    ids: dict[str, list[int]] | None


@dataclass
class Model:
    """What should be received, from the reports in the order of their commits."""

    reports: list[Report] = field(default_factory=list)
    marks: dict[tuple[str, str], int] = field(default_factory=dict)
    received: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    """(flow, processor) → reports after the first number, up to the second; -1: everything."""
    covered: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in DOWN})
    """Reports that a success with complete data covered."""

    def relevant(self, name: str, partition: str, after: int, to: int) -> list[Report]:
        """Return the reports of an interval that a processor receives."""
        return [
            one for one in self.reports[after:to] if name != "by_day" or one.partition == partition
        ]

    def expected(
        self, name: str, partition: str, after: int, to: int
    ) -> dict[str, set[int]] | None:
        """Return the ids by kind that a processor receives; None for everything."""
        if after < 0:
            return None
        found: dict[str, set[int]] = {kind: set() for kind in KINDS[name]}
        for one in self.relevant(name, partition, after, to):
            if one.ids is None:
                if one.source in REQUIRED[name]:
                    return None
                continue
            for kind, listed in one.ids.items():
                if kind in found:
                    found[kind] |= set(listed)
        return found


class History:
    """One customer whose flows overlap, fail, are late and repeat."""

    def __init__(self, store: Store, clock: VirtualClock, customer: str) -> None:
        self.scene = Scene(store, clock, customer=customer)
        self.clock = clock
        self.model = Model()
        self.partitions: dict[int, str] = {}
        self.complete: dict[int, set[str]] = {}
        """Processors of the first phase that completed, by flow."""
        self.degraded: set[int] = set()
        self.seen: set[int] = set()

    def held(self, names: tuple[str, ...]) -> list[Held]:
        """Return the claimed runs of some processors."""
        return [one for one in self.scene.held if one.name in names]

    def open(self, partition: str) -> None:
        """Open the next flow of a partition."""
        flow_id = self.scene.open(partition)
        self.partitions[flow_id] = partition

    def report(self, index: int, what: dict[str, list[int]] | str | None) -> None:
        """End a run of the first phase."""
        runs = self.held(UP)
        if not runs:
            return
        run, name = runs[index % len(runs)]
        self.scene.held.remove(runs[index % len(runs)])
        flow = run.flow_id or 0
        ids = what if isinstance(what, dict) else None
        if what == "failed":
            self.scene.kill(run)
        else:
            self.scene.end(run, ids)
            self.complete.setdefault(flow, set()).add(name)
        if ids is not None or name in UP:
            self.model.reports.append(Report(name, self.partitions[flow], ids))

    def step(self) -> None:
        """Let the orchestrator act, and compare what the started processors receive."""
        self.scene.step()
        for run, name in self.held(DOWN):
            if run.run_id in self.seen:
                continue
            self.seen.add(run.run_id)
            flow = run.flow_id or 0
            if self.complete.get(flow) != set(UP):
                self.degraded.add(flow)
            partition = self.partitions[flow]
            key = (name, partition if name == "by_day" else "")
            interval = (self.model.marks.get(key, -1), len(self.model.reports))
            self.model.received[flow, name] = interval
            wanted = self.model.expected(name, partition, *interval)
            found = self.scene.changed(run)
            if wanted is None:
                assert found.everything, (name, interval)
            else:
                got = {kind: set(listed) for kind, listed in found.entities.items()}
                assert (found.reason, got) == (None, wanted), name

    def end(self, index: int, how: str) -> None:
        """End a run of the second phase."""
        runs = self.held(DOWN)
        if not runs:
            return
        one = runs[index % len(runs)]
        self.scene.held.remove(one)
        flow = one.run.flow_id or 0
        if how == "dead":
            self.scene.kill(one.run)
            return
        status = RunStatus.SUCCESS if how == "done" else RunStatus.PARTIAL_SUCCESS
        self.scene.end(one.run, status=status)
        if how != "done" or flow in self.degraded:
            return
        partition = self.partitions[flow]
        key = (one.name, partition if one.name == "by_day" else "")
        after, to = self.model.received[flow, one.name]
        self.model.marks[key] = max(self.model.marks.get(key, -1), to)
        reach = range(max(after, 0), to)
        self.model.covered[one.name] |= {
            n for n in reach if one.name != "by_day" or self.model.reports[n].partition == partition
        }

    def late(self) -> None:
        """Let gates give up waiting for what failed."""
        self.clock.advance(7 * HOUR)
        self.step()

    def settle(self) -> None:
        """End what is open, then run one clean flow of every partition."""
        for _ in range(3):
            while self.held(UP):
                self.report(0, {})
            self.late()
            while self.held(DOWN):
                self.end(0, "partial")
        for partition in PARTITIONS:
            self.open(partition)
            while self.held(UP):
                self.report(0, {})
            self.step()
            while not self.held(DOWN):  # its breaker may be open
                self.late()
            while self.held(DOWN):
                self.end(0, "done")
            self.step()


def test_received_together_is_what_changed(engine: str, store: Store, clock: VirtualClock) -> None:
    """Every start receives exactly the reports since its watermark; in the end all are covered.

    Customers are independent, so that each history has one of its own on the same database.
    """
    numbers = iter(range(1_000_000))

    @settings(
        max_examples=effort(10, 25) if engine == "postgres" else effort(25, 60),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(operations)
    def check(done: list[tuple[object, ...]]) -> None:
        history = History(store, clock, f"c{next(numbers)}")
        for name, *arguments in done:
            if name in ("step", "late"):
                getattr(history, str(name))()
            else:
                getattr(history, str(name))(*arguments)
        history.settle()
        every = set(range(len(history.model.reports)))
        for name in DOWN:
            assert every <= history.model.covered[name], name

    check()
