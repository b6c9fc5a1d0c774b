"""Batches of rows, the manifest of a sink, and the protocol of sinks. Pure.

A sink stores batches of each log under consecutive numbers. It accepts a batch once: the manifest
entry is written last, and fails if another writer stored that number. Readers read only what
manifests list, so rows of an interrupted batch are not read, and no row is read twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from penstock.core.clock import Micros
from penstock.shipping.tables import ShippedTable

ShippedRow = Sequence[Any]


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, or part of a table, that holds rows of a batch."""

    path: str
    """Path relative to the sink."""
    rows: int
    bytes: int
    sha256: str
    """Hash of its bytes; empty where the sink has none."""


class ManifestEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one batch in a sink."""

    relation: str
    number: int
    """Number of the batch within its log, from 1."""
    after: int
    """Position before the batch: a block of the journal, or a time."""
    position: int
    """Position up to which the sink is complete, including this batch."""
    rows: int
    first_key: list[Any] | None
    """Smallest key of its rows; null if there are no rows."""
    last_key: list[Any] | None
    content: str
    """Hash of all rows, in the order of their keys."""
    previous: str
    """Hash of the previous entry; empty for the first."""
    files: list[StoredFile]

    @property
    def head(self) -> str:
        """Hash of this entry; the next entry includes it, so removing one breaks the chain."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """Rows of a log to store; the same batch has the same number and rows whenever it is sent."""

    table: ShippedTable
    number: int
    after: int
    position: int
    previous: str
    rows: Sequence[ShippedRow]
    """Rows in the order of their keys."""

    def entry(self, files: Sequence[StoredFile]) -> ManifestEntry:
        """Return the manifest entry of the batch, stored in these files."""
        at = self.table.key_at
        return ManifestEntry(
            relation=self.table.name,
            number=self.number,
            after=self.after,
            position=self.position,
            rows=len(self.rows),
            first_key=[self.rows[0][n] for n in at] if self.rows else None,
            last_key=[self.rows[-1][n] for n in at] if self.rows else None,
            content=content_hash(self.rows),
            previous=self.previous,
            files=list(files),
        )


class SinkConflict(Exception):
    """Another writer stored a batch of this number: read the manifest again."""


class SinkUnavailable(Exception):
    """The sink cannot be reached or written; shipping is tried again later."""


class AuditSink(Protocol):
    """Storage for batches of logs."""

    name: str
    """Name of the sink, under which positions are stored."""
    interval_us: Micros
    """Minimum time between two passes of the shipper."""
    blocks_max: int
    """Maximum number of journal blocks in one batch."""

    def last(self, relation: str) -> ManifestEntry | None:
        """Return the newest entry of a log; None if it has none."""
        ...

    def write(self, batch: LogBatch) -> ManifestEntry:
        """Store a batch durably, then its entry. Raise SinkConflict if its number is taken."""
        ...

    def entries(self, relation: str) -> Iterator[ManifestEntry]:
        """Yield all entries of a log in order."""
        ...

    def rows(self, table: ShippedTable, entry: ManifestEntry) -> list[tuple[Any, ...]]:
        """Return the rows of a batch in the order of their keys; raise ValueError if damaged."""
        ...

    def unlisted(self) -> list[str]:
        """Return stored data that no manifest entry lists."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


def content_hash(rows: Sequence[ShippedRow]) -> str:
    """Return the hash over all columns of rows, in order."""
    return hashlib.sha256(b"".join(map(msgspec.json.Encoder().encode, rows))).hexdigest()
