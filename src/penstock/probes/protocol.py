"""The interface of probes: requests of gates, and the protocol of warehouse adapters.

A gate passes a `ProbeRequest` to `probes.runner.ProbeRunner` and receives one `Observation` per
dependency. An adapter is a `Warehouse`: it defines how a table is named and how parameters are
marked (`Dialect`), and reads statements on one read-only connection. It never evaluates, caches or
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from penstock.flows.gates.probe_request import (
    DEPENDENCY_TIMEOUT_S,
    TIMEOUT_S,
    ProbeBudget,
    ProbeRequest,
)

__all__ = [
    "DEPENDENCY_TIMEOUT_S",
    "TIMEOUT_S",
    "Dialect",
    "ProbeBudget",
    "ProbeFailed",
    "ProbeRequest",
    "ProbeStatement",
    "QueryResults",
    "Row",
    "Scalar",
    "Warehouse",
]

Scalar: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Sequence[Any]


class ProbeFailed(Exception):
    """A probe failed; the text is meant for users and contains no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeStatement:
    """One query with its values bound by name; hashable, so that equal queries share a result."""

    text: str
    values: tuple[tuple[str, Scalar], ...] = ()
    rows_max: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResults:
    """The rows of each statement, and the bytes scanned if the warehouse reports them."""

    results: Sequence[Sequence[Row]]
    scanned_bytes: int | None = None
    columns: Sequence[tuple[str, ...]] = ()
    """Names of the columns of each statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Differences between warehouses in the text of a query.

    mark: returns a parameter's placeholder. text_type: the type that any value casts to.
    literal_percent: how a "%" outside a placeholder is written. quote: the character around names.
    days_by_scan: list the days by one scan (column stores) instead of one index lookup per day.
    """

    mark: Callable[[str], str]
    text_type: str = "TEXT"
    literal_percent: str = "%"
    quote: str = '"'
    name_max: int = 128
    parts_max: int = 3
    days_by_scan: bool = False


class Warehouse(Protocol):
    """A database or folder with tables, identified by its address; thread-safe."""

    dialect: Dialect

    def from_clause(self, table: str, tag: str) -> ProbeStatement:
        """Return the table as it appears after FROM; names of bound values start with the tag.

        Raises ProbeFailed when the name is invalid or does not exist.
        """
        ...

    def read(self, statements: Sequence[ProbeStatement], budget: ProbeBudget) -> QueryResults:
        """Read the statements in order, in one snapshot if the warehouse has snapshots.

        Raises ProbeFailed with a redacted text if that fails or exceeds `dependency_timeout_s`.
        """
        ...

    def close(self) -> None:
        """Close idle connections; the warehouse stays usable and opens new ones."""
        ...
