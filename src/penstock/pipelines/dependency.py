"""Dependency records: which data a gate probes, and how many rows it expects there.

Plain data without rules: `pipelines.declare.needs` builds and validates the records, probes read
them, and `flows.gates.evidence` assesses the observations. Every record can be read back from
its own JSON.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from penstock.core.clock import Micros
from penstock.core.stored_json import NOT_SERIALIZED, to_json

RowCounter: TypeAlias = Callable[..., int]
"""A function that takes the partition, or partition and customer, and returns the expected rows."""


class DependencyKind(StrEnum):
    """When the rows of a dependency are expected, and whether they are required."""

    SAME_DAY = "same_day"
    """Rows of the partition itself, which are expected to arrive without intervention."""
    HISTORICAL = "historical"
    """Rows of the days before the partition; missing days need a backfill."""
    OPTIONAL = "optional"
    """Data that improves the result but is not required."""


class ExpectKind(StrEnum):
    """The source of the expected number of rows."""

    NUMBER = "number"
    QUERY = "query"
    CALLABLE = "callable"
    PER = "per"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """The expected number of rows of a partition; only the fields of its kind are set.

    NUMBER: `number`. QUERY: `sql`, which returns one number; `:partition` is bound. CALLABLE:
    `body`, called with the partition, and `reference`, its name. PER: `each` rows per unit; the
    units are the rows of `table` in the partition (by column `partition`, default the pipeline's)
    that belong to the customer (by column `customer`, default the need's) and meet `where`, or the
    distinct values of column `of` among them. zero: "missing" (without units the data counts as
    missing) or "off_day" (without units no rows are expected).
    """

    kind: ExpectKind = ExpectKind.NUMBER
    number: int = 1
    sql: str | None = None
    reference: str | None = None
    each: float = 0.0
    table: str | None = None
    of: str | None = None
    partition: str | None = None
    customer: str | None = None
    where: str | None = None
    shared: bool = False
    zero: str = "missing"
    body: RowCounter | None = field(
        default=None, compare=False, repr=False, metadata=NOT_SERIALIZED
    )

    def rows(self, units: int) -> int:
        """Return the number of rows expected for `units` units."""
        return math.ceil(self.each * max(0, units) - 1e-9)

    @property
    def zero_is_off_day(self) -> bool:
        """Whether zero units mean that zero rows are expected."""
        return self.zero == "off_day"

    @property
    def words(self) -> str:
        """The expectation as text for messages, such as "12 rows per nba.games"."""
        if self.kind is ExpectKind.NUMBER:
            return f"{self.number} rows" if self.number != 1 else "at least one row"
        if self.kind is ExpectKind.PER:
            units = self.table if self.of is None else f"{self.of} of {self.table}"
            return f"{self.each:g} rows per {units}"
        return "as counted by a query" if self.kind is ExpectKind.QUERY else f"by {self.reference}"


def expected_by_function(body: RowCounter, partition: str, customer: str) -> Any:
    """Call a counting function; one with two parameters also receives the customer.

    Parameters with a default are ignored: they are for the function's own use.
    """
    call: Callable[..., Any] = body
    try:
        parameters = inspect.signature(call).parameters.values()
    except ValueError:  # a builtin without a signature
        return call(partition)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    return call(partition, customer) if len(required) >= 2 else call(partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistencyCheck:
    """A consistency check: SQL that must return no rows; `:partition` is bound."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityWeights:
    """The weights of the quality components; components that do not apply are ignored."""

    freshness: float = 0.4
    validity: float = 0.4
    consistency: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A declared dependency of a gate; built by `same_day`, `historical` and `optional`.

    If `partition`, `customer` or `warehouse` is None, the pipeline's value applies; if `modes` is
    None, the dependency applies in every mode. customer: the column that holds the customer.
    shared: the rows are common to all customers. where: a condition on the rows. number: the
    position among the needs of a gate with the same kind and table. The fields ending in `_days`
    are set only for historical dependencies.
    """

    table: str
    kind: DependencyKind
    critical: bool = True
    partition: str | None = None
    expect: Expect = field(default_factory=Expect)
    max_age_us: Micros | None = None
    age_column: str = "updated_at"
    not_null: tuple[str, ...] = ()
    checks: tuple[ConsistencyCheck, ...] = ()
    weight: float = 1.0
    fail_if_missing: bool = False
    quality: QualityWeights = field(default_factory=QualityWeights)
    lookback_days: int | None = None
    min_days: int | None = None
    degraded_days: int | None = None
    modes: frozenset[str] | None = None
    warehouse: str | None = None
    customer: str | None = None
    where: str | None = None
    shared: bool = False
    floor: float | None = None
    number: int = 0

    @property
    def key(self) -> str:
        """The key of the dependency within a gate, such as `historical:nba_analytics.summary`.

        The second need of the same kind and table ends with `#2`.
        """
        base = f"{self.kind}:{self.table}"
        return f"{base}#{self.number + 1}" if self.number else base

    def applies_in(self, mode: str) -> bool:
        """Return whether the dependency applies in this mode."""
        return self.modes is None or mode in self.modes

    @property
    def knows_customers(self) -> bool:
        """Whether it distinguishes customers' rows: it has a customer column or is `shared`."""
        return self.shared or self.customer is not None

    def with_defaults(
        self, partition: str | None, warehouse: str | None, customer: str | None = None
    ) -> Dependency:
        """Return the dependency with the pipeline's columns and warehouse filled in."""
        own = None if self.shared else self.customer or customer
        expect = self.expect
        if expect.kind is ExpectKind.PER:
            expect = replace(
                expect,
                partition=expect.partition or self.partition or partition,
                customer=None if expect.shared else expect.customer or own,
            )
        return replace(
            self,
            partition=self.partition or partition,
            warehouse=self.warehouse or warehouse,
            customer=own,
            expect=expect,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the dependency as JSON without defaults; `stored_json.from_json` reads it."""
        return to_json(self)
