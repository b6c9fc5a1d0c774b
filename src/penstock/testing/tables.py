"""Data that a test makes up: what has arrived in which table, as a gate would see it.

`Tables.look` answers in place of probes: rows that arrived, expectations as declared, days of
history, freshness, empty cells, failed checks, errors. Nothing is stored and nothing is judged
here; `core.evidence` does that as for real data. `FlowTest` and the simulation of pipelines use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from penstock.core.clock import Clock, Micros
from penstock.flows.gates.evidence import Sighting
from penstock.flows.gates.probe_request import Look
from penstock.pipelines.dependency import Dependency, ExpectKind, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a table holds from `at` on; rows None: as many as are expected.

    filled: the share of filled cells in required columns. failed: the checks that fail. newest: the
    time of the newest row, when it arrived unless said. days: of history. error: nobody can look.
    """

    at: Micros
    rows: int | None = None
    filled: float = 1.0
    failed: tuple[str, ...] = ()
    newest: Micros | None = None
    days: int | None = None
    error: str | None = None


class Tables:
    """Tables by name; the latest delivery that has arrived is what a look sees."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deliveries: dict[str, list[Delivery]] = {}
        self._expected: dict[str, int] = {}

    def arrive(self, table: str, delivery: Delivery) -> None:
        """Let a table hold this from its time on."""
        self._deliveries.setdefault(table, []).append(delivery)

    def expect(self, table: str, rows: int) -> None:
        """Say how many rows a table should have, where a query would count them."""
        self._expected[table] = rows

    def has(self, table: str) -> bool:
        """Whether anything was ever said about the day's rows of a table."""
        return any(delivery.days is None for delivery in self._deliveries.get(table, ()))

    def next_at(self) -> Micros | None:
        """When the next delivery arrives."""
        now = self._clock.now()
        later = [d.at for found in self._deliveries.values() for d in found if d.at > now]
        return min(later, default=None)

    def look(self, look: Look) -> list[Sighting]:
        """Answer as probes would; a `Looker`."""
        return [self._sighting(dependency, look.partition) for dependency in look.dependencies]

    def rows(self, table: str) -> int:
        """How many rows of a table have arrived; a table that is just there counts one."""
        found = self._latest(table, days=False)
        return 0 if found is None else 1 if found.rows is None else found.rows

    def _sighting(self, dependency: Dependency, partition: str) -> Sighting:
        now, historical = self._clock.now(), dependency.kind is Kind.HISTORICAL
        found = self._latest(dependency.table, days=historical)
        if found is not None and found.error is not None:
            return Sighting(key=dependency.key, looked_at=now, error=found.error)
        if historical:
            return _days(dependency, partition, 0 if found is None else found.days or 0, now)
        expected = self._expectation(dependency, partition)
        rows = 0 if found is None else max(expected, 1) if found.rows is None else found.rows
        return Sighting(
            key=dependency.key,
            looked_at=now,
            rows=rows,
            expected=expected,
            newest_us=None if found is None else found.at if found.newest is None else found.newest,
            not_null_share=None if found is None or not dependency.not_null else found.filled,
            checks_total=len(dependency.checks),
            checks_failed=() if found is None else found.failed,
        )

    def _latest(self, table: str, *, days: bool) -> Delivery | None:
        """The newest delivery that has arrived; history and the day's rows are kept apart."""
        now = self._clock.now()
        found = [
            d
            for d in self._deliveries.get(table, ())
            if d.at <= now and (d.error is not None or (d.days is not None) == days)
        ]
        # max() keeps the first of equals; the last that was said counts.
        return max(reversed(found), key=lambda d: d.at, default=None)

    def _expectation(self, dependency: Dependency, partition: str) -> int:
        expect = dependency.expect
        if dependency.table in self._expected:
            return self._expected[dependency.table]
        if expect.kind is ExpectKind.PER:
            return expect.rows(self.rows(expect.table or ""))
        if expect.kind is ExpectKind.CALLABLE and expect.body is not None:
            return int(expect.body(partition))
        return expect.number


def _days(dependency: Dependency, partition: str, present: int, now: Micros) -> Sighting:
    lookback = dependency.lookback_days or 0
    present = min(present, lookback)
    return Sighting(
        key=dependency.key,
        looked_at=now,
        days_present=present,
        days_missing=tuple(_oldest(partition, lookback, lookback - present)),
    )


def _oldest(partition: str, lookback: int, count: int) -> Iterable[str]:
    """The first days of a look-back, which are the ones that lack."""
    try:
        last = date.fromisoformat(partition[:10])
    except ValueError:  # a partition that is no date has no days before it
        return []
    return [(last - timedelta(days=lookback - n)).isoformat() for n in range(count)]
