"""What a gate asks of probes, and the little a warehouse must be able to do.

A gate hands a `Look` to `probes.looking.Probes` and gets one `Sighting` per dependency. An adapter
is a `Warehouse`: it says how a table is named and how parameters are marked (`Dialect`), and reads
statements on one read-only connection. It never judges, never caches and never writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from penstock.flows.gates.probe_request import SECONDS_EACH, SECONDS_OVERALL, Budget, Look

__all__ = [
    "SECONDS_EACH", "SECONDS_OVERALL", "Answer", "Budget", "Dialect", "Look", "ProbeFailed", "Row",
    "Scalar", "Statement", "Warehouse",
]  # fmt: skip

Scalar: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Sequence[Any]


class ProbeFailed(Exception):
    """A look could not be made; the text is for people and holds no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One query with its values bound by name; hashable, so that equal questions are known."""

    text: str
    values: tuple[tuple[str, Scalar], ...] = ()
    rows_max: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The rows of each statement, and what reading them scanned where the warehouse says so."""

    results: Sequence[Sequence[Row]]
    scanned_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between warehouses in the text of a query.

    mark: a parameter's name as the driver marks it. text_type: the type that any value casts to.
    literal_percent: how a "%" that is no mark is written. days_by_scan: list the days by one scan
    (column stores) instead of one index look-up per day.
    """

    mark: Callable[[str], str]
    text_type: str = "TEXT"
    literal_percent: str = "%"
    name_max: int = 128
    parts_max: int = 3
    days_by_scan: bool = False


class Warehouse(Protocol):
    """A place with tables, opened from its address; usable from many threads at once."""

    dialect: Dialect

    def source(self, table: str, tag: str) -> Statement:
        """The table as it stands after FROM; values it binds have names that begin with the tag.

        ProbeFailed when the name is not plain or names nothing.
        """
        ...

    def read(self, statements: Sequence[Statement], budget: Budget) -> Answer:
        """Read the statements one after another, in one snapshot where there are snapshots.

        ProbeFailed with a redacted text when that fails or takes longer than `seconds_each`.
        """
        ...

    def close(self) -> None:
        """Let go of connections; the warehouse may still be used and opens new ones."""
        ...
