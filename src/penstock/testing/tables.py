"""Simulated data for tests: the contents of tables as gates observe them.

`Tables.probe` replaces the probes and returns observations: arrived rows, expected rows as
declared, days of history, freshness, null cells, failed checks, errors. It stores and assesses
nothing; `flows.gates.evidence` assesses it like real data. `FlowTest` and pipeline simulation use
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from penstock.core.clock import Clock, Micros
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.pipelines.dependency import (
    Dependency,
    DependencyKind,
    ExpectKind,
    expected_by_function,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContent:
    """The contents of a table, starting at `at`; rows None means as many as expected.

    not_null_share: share of non-null cells in required columns. failed_checks: checks that fail.
    newest_us: time of the newest row, by default its arrival. days: days of history. error: the
    probe fails with this text. customer: owner of the rows; None for every customer.
    """

    at: Micros
    rows: int | None = None
    not_null_share: float = 1.0
    failed_checks: tuple[str, ...] = ()
    newest_us: Micros | None = None
    days: int | None = None
    error: str | None = None
    customer: str | None = None


class ExpectationNotSet(AssertionError):
    """A need expects as many rows as a query returns, and the test has not set that number."""


class Tables:
    """Tables by name; a probe sees the latest delivery that has arrived.

    strict: raise ExpectationNotSet for an expected count by query that the test has not set.
    """

    def __init__(self, clock: Clock, *, strict: bool = False) -> None:
        self._clock = clock
        self._strict = strict
        self._deliveries: dict[str, list[TableContent]] = {}
        self._expected: dict[str, int] = {}

    def arrive(self, table: str, delivery: TableContent) -> None:
        """Make a table contain this delivery from its time on."""
        self._deliveries.setdefault(table, []).append(delivery)

    def expect(self, table: str, rows: int) -> None:
        """Set the expected number of rows of a table whose expectation is a query."""
        self._expected[table] = rows

    def has(self, table: str) -> bool:
        """Whether the test has defined rows for the current day of a table."""
        return any(delivery.days is None for delivery in self._deliveries.get(table, ()))

    def next_at(self) -> Micros | None:
        """Return when the next delivery arrives; None when there is none."""
        now = self._clock.now()
        later = [d.at for found in self._deliveries.values() for d in found if d.at > now]
        return min(later, default=None)

    def probe(self, request: ProbeRequest) -> list[Observation]:
        """Return one observation per dependency, as probes would."""
        return [
            self._observation(dependency, request.partition, request.customer)
            for dependency in request.dependencies
        ]

    def rows(self, table: str, customer: str | None = None) -> int:
        """Return how many rows of a table have arrived, of all customers or of one.

        An arrival without a number counts as one.
        """
        found = self._latest(table, days=False, customer=customer)
        return 0 if found is None else 1 if found.rows is None else found.rows

    def _observation(self, dependency: Dependency, partition: str, customer: str) -> Observation:
        now, historical = self._clock.now(), dependency.kind is DependencyKind.HISTORICAL
        owner = None if dependency.customer is None else customer
        found = self._latest(dependency.table, days=historical, customer=owner)
        if found is not None and found.error is not None:
            return Observation(key=dependency.key, looked_at=now, error=found.error)
        if historical:
            return _days(dependency, partition, 0 if found is None else found.days or 0, now)
        expected = self._expectation(dependency, partition, customer)
        rows = 0 if found is None else max(expected, 1) if found.rows is None else found.rows
        return Observation(
            key=dependency.key,
            looked_at=now,
            rows=rows,
            expected=expected,
            units=self._units(dependency, customer),
            newest_us=None
            if found is None
            else found.at
            if found.newest_us is None
            else found.newest_us,
            not_null_share=None
            if found is None or not dependency.not_null
            else found.not_null_share,
            checks_total=len(dependency.checks),
            checks_failed=() if found is None else found.failed_checks,
        )

    def _latest(
        self, table: str, *, days: bool, customer: str | None = None
    ) -> TableContent | None:
        """Return the newest delivery that has arrived; history and current rows are separate.

        customer: only deliveries that belong to this customer, or to all.
        """
        now = self._clock.now()
        found = [
            d
            for d in self._deliveries.get(table, ())
            if d.at <= now
            and (d.error is not None or (d.days is not None) == days)
            and (customer is None or d.customer in (None, customer))
        ]
        # max() returns the first of several equal items; the last delivery must win a tie.
        return max(reversed(found), key=lambda d: d.at, default=None)

    def _units(self, dependency: Dependency, customer: str) -> int | None:
        """Return the rows of the table that a per-unit expectation counts."""
        expect = dependency.expect
        if expect.kind is not ExpectKind.PER or dependency.table in self._expected:
            return None
        return self.rows(expect.table or "", None if expect.customer is None else customer)

    def _expectation(self, dependency: Dependency, partition: str, customer: str) -> int:
        expect = dependency.expect
        if dependency.table in self._expected:
            return self._expected[dependency.table]
        if expect.kind is ExpectKind.PER:
            return expect.rows(self._units(dependency, customer) or 0)
        if expect.kind is ExpectKind.CALLABLE and expect.body is not None:
            return int(expected_by_function(expect.body, partition, customer))
        if expect.kind is ExpectKind.QUERY and self._strict:
            raise ExpectationNotSet(
                f"the need {dependency.table} expects as many rows as a query returns, which a "
                f"test table cannot evaluate: call t.expect({dependency.table!r}, rows) before "
                "t.run(), or pass warehouses= to probe real data"
            )
        return expect.number


def _days(dependency: Dependency, partition: str, present: int, now: Micros) -> Observation:
    lookback = dependency.lookback_days or 0
    present = min(present, lookback)
    return Observation(
        key=dependency.key,
        looked_at=now,
        days_present=present,
        days_missing=tuple(_oldest(partition, lookback, lookback - present)),
    )


def _oldest(partition: str, lookback: int, count: int) -> Iterable[str]:
    """Return the oldest days of a look-back, which are the missing ones."""
    try:
        last = date.fromisoformat(partition[:10])
    except ValueError:  # a partition that is not a date has no days before it
        return []
    return [(last - timedelta(days=lookback - n)).isoformat() for n in range(count)]
