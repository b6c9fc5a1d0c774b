"""Use cases of audit sinks: shipping progress, reset and verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Final

from penstock.access.store.names import NameResolver
from penstock.audit.rows import Seal
from penstock.audit.store.journal import block_root, history_pruned_to, journal_pruned_to, seal_list
from penstock.core.clock import iso
from penstock.core.records.record import Meta, time, time_or_none
from penstock.db.store import Transactions, Tx
from penstock.shipping.batches import AuditSink, ManifestEntry, content_hash
from penstock.shipping.records import (
    ShippedLog,
    SinkProblem,
    SinkStatus,
    SinkVerification,
    VerifiedLog,
)
from penstock.shipping.store import Shipment, backlog, block_read, log_read, shipments
from penstock.shipping.tables import SEALED_AT, TABLES, ShippedTable

__all__ = ["AuditSinks", "SinkVerifier"]

PROBLEMS_MAX: Final = 100
EVERYTHING: Final = 10**9
MUTABLE: Final = frozenset({"phase_completion_log"})
"""Logs whose rows in the database may still change after they were shipped."""

_SINK = Meta(description="The sink, as in the setting `audit_sink`.", max_length=1_000)


class AuditSinks:
    """Use cases of audit sinks."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def status(self, sink: Annotated[str, _SINK]) -> SinkStatus:
        """Return how far the logs have been shipped to a sink, and the backlog."""
        self._names.require_unscoped("the audit sink")

        def body(tx: Tx) -> SinkStatus:
            known = shipments(tx, sink)
            logs = [_log(tx, table, known.get(table.name)) for table in TABLES]
            return SinkStatus(
                as_of=time(tx.now()),
                sink=sink,
                backlog=sum(one.backlog for one in logs),
                logs=logs,
            )

        return self._store.read(body)

    def reset(self, sink: Annotated[str, _SINK]) -> int:
        """Reset the progress of a sink, so that everything is shipped again. Return the number of
        logs reset.
        """
        self._names.require_unscoped("the audit sink")
        return self._store.write(lambda tx: tx.run("shipments_forget", {"sink": sink}))


def _log(tx: Tx, table: ShippedTable, known: Shipment | None) -> ShippedLog:
    found = known or Shipment(table.name)
    waiting, oldest_at = backlog(tx, table, found.position)
    shown = str(found.position) if table.is_sealed else iso(found.position)
    return ShippedLog(
        relation=table.name,
        batches=found.batches,
        rows=found.rows,
        position=shown if found.position else "",
        backlog=waiting,
        oldest_at=time_or_none(oldest_at),
        shipped_at=time_or_none(found.shipped_at or None),
        error=found.error,
        failed_at=time_or_none(found.failed_at),
    )


class SinkVerifier:
    """Compares a sink with its manifest, with the seals of the journal and with the database."""

    def __init__(self, store: Transactions, sink: AuditSink) -> None:
        self._store = store
        self._sink = sink
        self._problems: list[SinkProblem] = []
        self._count = 0

    def run(self, unlisted: int = 0) -> SinkVerification:
        """Read the whole sink and return every difference."""
        logs = [self._verify(table) for table in TABLES]
        return SinkVerification(
            sink=self._sink.name,
            is_intact=not self._count,
            logs=logs,
            problems=self._problems,
            problem_count=self._count,
            unlisted_files=unlisted,
        )

    def _add(self, kind: str, subject: str, text: str) -> None:
        self._count += 1
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(SinkProblem(kind=kind, subject=subject, text=text))

    def _verify(self, table: ShippedTable) -> VerifiedLog:
        known = self._store.read(lambda tx: shipments(tx, self._sink.name)).get(table.name)
        number = rows = compared = blocks = 0
        before: ManifestEntry | None = None
        for entry in self._sink.entries(table.name):
            number += 1
            subject = f"{table.name} batch {entry.number}"
            self._check_entry(entry, number, before, subject)
            number = entry.number
            try:
                found = self._sink.rows(table, entry)
            except ValueError as error:
                self._add("file_damaged", subject, str(error))
            else:
                rows += len(found)
                self._check_rows(table, entry, found, subject)
                position = entry.after if before is None else before.position
                if table.is_sealed:
                    blocks += self._check_seals(position, entry, found)
                    compared += self._store.read(
                        lambda tx, a=position, e=entry: len(block_read(tx, a, e.position))  # type: ignore[misc]
                    )
                else:
                    compared += self._check_hot(table, position, entry.position, found)
            before = entry
        self._check_position(table, known, before)
        return VerifiedLog(
            relation=table.name, batches=number, rows=rows, compared=compared, sealed_blocks=blocks
        )

    def _check_entry(
        self, entry: ManifestEntry, number: int, before: ManifestEntry | None, subject: str
    ) -> None:
        """Check that the manifest is complete: numbers, chain and positions are consecutive."""
        if entry.number != number:
            self._add("batch_missing", subject, f"batch {number} has no manifest entry")
        elif entry.previous != ("" if before is None else before.head):
            self._add("manifest_changed", subject, "the previous entry was changed or replaced")
        if before is not None and entry.after < before.position:
            self._add("batch_overlaps", subject, "it begins before the end of the previous batch")

    def _check_rows(
        self, table: ShippedTable, entry: ManifestEntry, rows: list[tuple[Any, ...]], subject: str
    ) -> None:
        """Check the rows of a batch against its manifest entry; rows outside its dates are in the
        wrong batch.
        """
        if len(rows) != entry.rows or content_hash(rows) != entry.content:
            self._add("rows_changed", subject, f"its {len(rows)} rows do not match the manifest")
        at = table.key_at
        keys = Counter(tuple(row[n] for n in at) for row in rows)
        for key, count in keys.items():
            if count > 1:
                self._add("row_doubled", subject, f"row {_key(key)} is stored {count} times")
        dated = 0 if table.is_sealed else table.index(table.dated_by)
        outside = sum(not entry.after < row[dated] <= entry.position for row in rows)
        if outside:
            self._add("rows_misplaced", subject, f"{outside} rows belong to another batch")

    def _check_seals(self, after: int, entry: ManifestEntry, rows: list[tuple[Any, ...]]) -> int:
        """Recompute the seals of a batch's blocks from the sink; return how many."""
        by_block: dict[int, list[tuple[Any, ...]]] = {}
        for row in rows:
            by_block.setdefault(row[0], []).append(row)
        pruned_to = self._store.read(journal_pruned_to)
        seals = self._store.read(lambda tx: list(_seals(tx, after, entry.position)))
        for seal in seals:
            found = by_block.pop(seal.block, [])
            subject = f"journal block {seal.block}"
            if not found and seal.sealed_at < pruned_to:
                continue  # it was pruned before this sink existed
            if len(found) != seal.entries:
                self._add("row_missing", subject, f"{len(found)} of {seal.entries} entries")
            elif block_root(_sealed(found)) != seal.root:
                self._add("rows_changed", subject, "its entries do not match the seal")
        for block in by_block:
            self._add("row_unknown", f"journal block {block}", "the database has no such seal")
        return len(seals)

    def _check_hot(
        self, table: ShippedTable, after: int, to: int, rows: list[tuple[Any, ...]]
    ) -> int:
        """Compare a batch with the rows that the database still has; return how many it has."""
        at = table.key_at
        shipped = {tuple(row[n] for n in at): row for row in rows}

        def body(tx: Tx) -> tuple[list[Any], int]:
            found: list[Any] = []
            position = after
            while position < to:
                part, position = log_read(tx, table, position, to, EVERYTHING)
                found += part
            return found, history_pruned_to(tx)

        hot, pruned_to = self._store.read(body)
        for row in hot:
            key = tuple(row[n] for n in at)
            there = shipped.pop(key, None)
            if there is None:
                self._add("row_missing", f"{table.name} {_key(key)}", "the sink lacks it")
            elif there != row and table.name not in MUTABLE:
                self._add("row_changed", f"{table.name} {_key(key)}", "it differs in the database")
        if table.name == "history":
            ended = table.index("finished_at")
            for key, row in shipped.items():
                if row[ended] >= pruned_to:
                    self._add("row_lost", f"history {_key(key)}", "the database lost it")
        return len(hot)

    def _check_position(
        self, table: ShippedTable, known: Shipment | None, last: ManifestEntry | None
    ) -> None:
        """Check that the recorded position matches the sink, and that nothing was skipped."""
        shipped = 0 if known is None else known.batches
        number = 0 if last is None else last.number
        if shipped != number:
            text = f"the sink has {number} batches, the database has recorded {shipped}"
            kind = "batch_missing" if shipped > number else "batch_unknown"
            self._add(kind, table.name, text)
        if known is not None and not table.is_sealed:
            position = known.position if last is None else last.position
            if 0 < position < known.position:
                self._check_hot(table, position, known.position, [])


def _seals(tx: Tx, after: int, to: int) -> Iterator[Seal]:
    while page := [seal for seal in seal_list(tx, after) if seal.block <= to]:
        yield from page
        after = page[-1].block


def _sealed(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the sealed columns of entries, in the order of their seal."""
    return sorted((row[SEALED_AT] for row in rows), key=lambda row: (int(row[0]), row[1]))


def _key(key: tuple[Any, ...]) -> str:
    return ", ".join(map(str, key))
