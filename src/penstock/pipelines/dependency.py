"""Dependencies as records: what a gate looks at, and how many rows it expects there.

Plain data without rules of its own: `core.needs` makes and checks them, probes read them, and
`core.evidence` judges what was found. Every record reads back from its own JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from penstock.core.clock import Micros
from penstock.core.record import KEEP_OUT, plain

Counter: TypeAlias = Callable[[str], int]
"""A function from the partition to the number of rows expected."""


class Kind(StrEnum):
    """What a dependency is to its processor."""

    SAME_DAY = "same_day"
    """Rows of the partition itself; they arrive by themselves."""
    HISTORICAL = "historical"
    """Days before the partition; what is missing needs a backfill."""
    OPTIONAL = "optional"
    """Without it the work is done, with less."""


class ExpectKind(StrEnum):
    """Where the number of expected rows comes from."""

    NUMBER = "number"
    QUERY = "query"
    CALLABLE = "callable"
    PER = "per"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """How many rows a partition should have; only the fields of its kind are set.

    NUMBER: `number`. QUERY: `sql`, one number, `:partition` is bound. CALLABLE: `body`, called with
    the partition, and `reference`, its name. PER: `each` rows per unit; units are the rows of
    `table` in the partition (column `partition`, or the pipeline's), or the distinct `of` there.
    """

    kind: ExpectKind = ExpectKind.NUMBER
    number: int = 1
    sql: str | None = None
    reference: str | None = None
    each: float = 0.0
    table: str | None = None
    of: str | None = None
    partition: str | None = None
    body: Counter | None = field(default=None, compare=False, repr=False, metadata=KEEP_OUT)

    def rows(self, units: int) -> int:
        """Return the rows expected of that many units."""
        return math.ceil(self.each * max(0, units) - 1e-9)

    @property
    def words(self) -> str:
        """The expectation as people say it."""
        if self.kind is ExpectKind.NUMBER:
            return f"{self.number} rows" if self.number != 1 else "at least one row"
        if self.kind is ExpectKind.PER:
            units = self.table if self.of is None else f"{self.of} of {self.table}"
            return f"{self.each:g} rows per {units}"
        return "as a query counts" if self.kind is ExpectKind.QUERY else f"by {self.reference}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A consistency check: SQL that must return no rows; `:partition` is bound."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityWeights:
    """How much each part of quality counts; parts that do not apply are left out."""

    freshness: float = 0.4
    validity: float = 0.4
    consistency: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """Something a gate looks at, as declared; made by `same_day`, `historical` and `optional`.

    `partition` and `warehouse` are the pipeline's when None; `modes` None means every mode. The
    days are set for historical dependencies only.
    """

    table: str
    kind: Kind
    critical: bool = True
    partition: str | None = None
    expect: Expect = field(default_factory=Expect)
    max_age_us: Micros | None = None
    age_column: str = "updated_at"
    not_null: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
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
        """Tells dependencies of one gate apart, such as `historical:nba_analytics.summary`."""
        return f"{self.kind}:{self.table}"

    def in_mode(self, mode: str) -> bool:
        """Whether the dependency is looked at in this mode."""
        return self.modes is None or mode in self.modes

    def resolved(self, partition: str | None, warehouse: str | None) -> Dependency:
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

    def definition(self) -> dict[str, Any]:
        """The dependency as JSON, defaults left out; `core.record.read` reads it back."""
        return plain(self)
