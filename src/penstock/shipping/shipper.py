"""Service that ships the journal and the logs to an audit sink."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open, alert_resolve
from penstock.core.clock import DAY, Micros
from penstock.db.store import Row, Transactions, Tx
from penstock.shipping.batches import (
    AuditSink,
    LogBatch,
    ManifestEntry,
    SinkConflict,
    SinkUnavailable,
)
from penstock.shipping.store import (
    Shipment,
    journal_read,
    log_first,
    log_read,
    safe_until,
    shipment_put,
    shipments,
)
from penstock.shipping.tables import TABLES, ShippedTable

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 100_000
AHEAD_ROWS: Final = 5_000
"""Number of rows above which the next batch is read while the current one is written."""
BATCHES_MAX: Final = 200
"""Maximum number of batches per log in one pass."""
FIRST: Final = 400 * DAY
"""How far back a new sink receives the logs."""
RULE: Final = "audit_sink_failing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipCounts:
    """Counts of one pass."""

    batches: int = 0
    rows: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows to ship, and the position after them."""

    rows: Sequence[Row]
    position: int
    problem: str | None = None


class Shipper:
    """Service that ships to one sink.

    The order is: read, write the batch and its manifest entry, store the position. After a crash
    between the last two steps, the newest manifest entry shows that the batch was stored. A sink
    that fails delays shipping and nothing else: the pass ends, and the next one tries again.
    """

    name = "shipper"

    def __init__(
        self,
        store: Transactions,
        sink: AuditSink,
        *,
        blocks: int | None = None,
        rows: int = BATCH_ROWS,
    ) -> None:
        self._store = store
        self._sink = sink
        self._blocks = sink.blocks_max if blocks is None else blocks
        self._rows = rows

    def run_once(self) -> ShipCounts:
        """Ship everything that can be shipped, a bounded number of batches of each log."""
        until = self._store.write(safe_until)
        batches = rows = 0
        failed: str | None = None
        for table in TABLES:
            try:
                for count in self._ship(table, until):
                    batches, rows = batches + 1, rows + count
            except (OSError, SinkUnavailable) as error:
                text = f"{type(error).__name__}: {error}"[:500]
                log.warning("the audit sink %s failed: %s", self._sink.name, text)
                self._store.write(lambda tx, name=table.name, text=text: self._fail(tx, name, text))  # type: ignore[misc]
                failed = failed or text
        if failed is None:
            self._store.write(self._heal)
        return ShipCounts(batches=batches, rows=rows, error=failed)

    def _ship(self, table: ShippedTable, until: Micros) -> Iterator[int]:
        """Ship batches of a log, a bounded number; yield the rows of each."""
        known, entry = self._position(table)
        part = self._read(table, known.position, until)
        with ThreadPoolExecutor(1, thread_name_prefix="penstock-ship") as reader:
            for _ in range(BATCHES_MAX):
                if not part.rows:
                    self._end(known, part)
                    return
                batch = LogBatch(
                    table=table,
                    number=known.batches + 1,
                    after=known.position,
                    position=part.position,
                    previous="" if entry is None else entry.head,
                    rows=part.rows,
                )
                # The next batch of a long backlog is read while this one is written.
                ahead: Future[_Part] | None = None
                if len(part.rows) >= AHEAD_ROWS:
                    ahead = reader.submit(self._read, table, part.position, until)
                try:
                    entry = self._sink.write(batch)
                except SinkConflict:
                    # Another replica stored it: continue from there.
                    known, entry = self._position(table)
                    yield 0
                    part = self._read(table, known.position, until)
                    continue
                made = known = Shipment(table.name, batch.number, batch.position, len(batch.rows))
                self._store.write(lambda tx, made=made: shipment_put(tx, self._sink.name, made))  # type: ignore[misc]
                yield len(batch.rows)
                part = self._read(table, part.position, until) if ahead is None else ahead.result()

    def _read(self, table: ShippedTable, after: int, until: Micros) -> _Part:
        return self._store.read(lambda tx: self._next(tx, table, after, until))

    def _end(self, known: Shipment, part: _Part) -> None:
        """Store the position of a log that had no rows."""
        if part.problem is not None:
            raise SinkUnavailable(f"the journal was changed and is not shipped: {part.problem}")
        if part.position > known.position:
            idle = known._replace(position=part.position, rows=0)
            self._store.write(lambda tx: shipment_put(tx, self._sink.name, idle))

    def _position(self, table: ShippedTable) -> tuple[Shipment, ManifestEntry | None]:
        """Return the position of a log according to the sink's manifest."""
        entry = self._sink.last(table.name)
        known = self._store.read(lambda tx: shipments(tx, self._sink.name)).get(
            table.name, Shipment(table.name)
        )
        number = 0 if entry is None else entry.number
        if known.batches > number:
            raise SinkUnavailable(
                f"{self._sink.name} has {number} batches of {table.name}, but {known.batches} were "
                "shipped. Restore it, or ship everything again: penstock sink reset"
            )
        if entry is not None and number > known.batches:
            if number > known.batches + 1:
                raise SinkUnavailable(
                    f"{self._sink.name} has {number} batches of {table.name}, but this database "
                    f"shipped {known.batches}. Another database uses it: choose another sink"
                )
            known = Shipment(table.name, number, entry.position, entry.rows)
            adopted = known
            self._store.write(lambda tx: shipment_put(tx, self._sink.name, adopted))
        return known, entry

    def _next(self, tx: Tx, table: ShippedTable, after: int, until: Micros) -> _Part:
        if table.is_sealed:
            part = journal_read(tx, after, self._blocks)
            return _Part(part.rows, part.block, part.problem)
        after = after or max(0, until - FIRST)
        if until <= after:
            return _Part((), after)
        rows, to = self._read_day(tx, table, after, until)
        if not rows and to < until:
            # Days without rows are skipped: a new sink starts a year before most logs do.
            first_at = log_first(tx, table, to, until)
            if first_at is None:
                return _Part((), until)
            rows, to = self._read_day(tx, table, first_at - 1, until)
        return _Part(rows, to)

    def _read_day(
        self, tx: Tx, table: ShippedTable, after: Micros, until: Micros
    ) -> tuple[Sequence[Row], Micros]:
        """Return rows of the day after a time, and the time up to which they are complete."""
        day_end = after // DAY * DAY + DAY
        return log_read(tx, table, after, min(until, day_end), self._rows)

    def _fail(self, tx: Tx, relation: str, error: str) -> None:
        tx.run("shipment_failed", {"sink": self._sink.name, "relation": relation, "error": error})
        alert_open(
            tx,
            NewAlert(
                rule=RULE,
                dedupe_key=f"{RULE}:{self._sink.name}",
                severity="HIGH",
                subject_kind="audit_sink",
                subject=0,
                message=f"The audit sink {self._sink.name} does not accept {relation}: {error}. "
                "Nothing is lost: shipping continues when it works again.",
                detail={"sink": self._sink.name, "relation": relation, "error": error,
                        "fix": "penstock sink ship"},
            ),
        )  # fmt: skip

    def _heal(self, tx: Tx) -> None:
        tx.run("shipment_healed", {"sink": self._sink.name})
        alert_resolve(tx, f"{RULE}:{self._sink.name}", "penstock")
