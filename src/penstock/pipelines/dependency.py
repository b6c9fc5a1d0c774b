"""Dependency records: which data a gate probes, and how many rows it expects there.

Plain data without rules: `pipelines.declare.needs` builds and validates the records, probes read
them, and `flows.gates.evidence` assesses what the probes found. Every record can be read back from
its own JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from penstock.core.clock import Micros
from penstock.core.stored_json import NOT_SERIALIZED, to_json

RowCounter: TypeAlias = Callable[[str], int]
"""A function from the partition to the number of rows expected."""


class DependencyKind(StrEnum):
    """The kind of a dependency."""

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
    units are the rows of `table` in the partition (by column `partition`, default the pipeline's),
    or the distinct values of column `of` among them.
    """

    kind: ExpectKind = ExpectKind.NUMBER
    number: int = 1
    sql: str | None = None
    reference: str | None = None
    each: float = 0.0
    table: str | None = None
    of: str | None = None
    partition: str | None = None
    body: RowCounter | None = field(
        default=None, compare=False, repr=False, metadata=NOT_SERIALIZED
    )

    def rows(self, units: int) -> int:
        """Return the number of rows expected for `units` units."""
        return math.ceil(self.each * max(0, units) - 1e-9)

    @property
    def words(self) -> str:
        """The expectation as text for messages, such as "12 rows per nba.games"."""
        if self.kind is ExpectKind.NUMBER:
            return f"{self.number} rows" if self.number != 1 else "at least one row"
        if self.kind is ExpectKind.PER:
            units = self.table if self.of is None else f"{self.of} of {self.table}"
            return f"{self.each:g} rows per {units}"
        return "as counted by a query" if self.kind is ExpectKind.QUERY else f"by {self.reference}"


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

    If `partition` or `warehouse` is None, the pipeline's value applies; if `modes` is None, the
    dependency applies in every mode. The fields ending in `_days` are set only for historical
    dependencies.
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

    @property
    def key(self) -> str:
        """The key of the dependency within a gate, such as `historical:nba_analytics.summary`."""
        return f"{self.kind}:{self.table}"

    def applies_in(self, mode: str) -> bool:
        """Return whether the dependency applies in this mode."""
        return self.modes is None or mode in self.modes

    def with_defaults(self, partition: str | None, warehouse: str | None) -> Dependency:
        """Return the dependency with the pipeline's partition column and warehouse filled in."""
        expect = self.expect
        if expect.kind is ExpectKind.PER and expect.partition is None:
            expect = replace(expect, partition=self.partition or partition)
        return replace(
            self,
            partition=self.partition or partition,
            warehouse=self.warehouse or warehouse,
            expect=expect,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the dependency as JSON without defaults; `stored_json.from_json` reads it."""
        return to_json(self)
