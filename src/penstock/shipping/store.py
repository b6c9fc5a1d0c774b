"""Store of the shipper: rows of the logs, positions, the safe horizon."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.audit.store.journal import (
    journal_pruned_to,
    seal_entries,
    seal_list,
    seal_problem,
)
from penstock.core.clock import DAY, HOUR, MINUTE, Micros
from penstock.db.store import Row, Tx, one
from penstock.db.windows import WINDOW_MAX, window_read
from penstock.shipping.tables import JOURNAL, ShippedTable

MARGIN: Final = MINUTE
"""Maximum time between reading the clock and the first write of a transaction."""
BACKLOG_MAX: Final = 100_000
"""Maximum number of rows that are counted for a backlog."""


class Shipment(NamedTuple):
    """Progress of shipping a log to a sink."""

    relation: str
    batches: int = 0
    position: int = 0
    rows: int = 0
    shipped_at: Micros = 0
    error: str | None = None
    failed_at: Micros | None = None


class JournalPart(NamedTuple):
    """Rows of sealed blocks."""

    rows: list[Row]
    block: int
    """The last block."""
    problem: str | None
    """Why the next block cannot be shipped; None if it can."""


_READS: Final = {
    "config_audit": "ship_config_audit",
    "dependency_check_log": "ship_dependency_check_log",
    "execution_log": "ship_execution_log",
    "history": "ship_history",
    "phase_completion_log": "ship_phase_completion_log",
}
"""The statement that reads each log."""
_BACKLOGS: Final = {
    "config_audit": "ship_backlog_config_audit",
    "dependency_check_log": "ship_backlog_dependency_check_log",
    "execution_log": "ship_backlog_execution_log",
    "history": "ship_backlog_history",
    "phase_completion_log": "ship_backlog_phase_completion_log",
}
"""The statement that counts the rows of each log that a sink lacks."""
_FIRSTS: Final = {
    "config_audit": "ship_first_config_audit",
    "dependency_check_log": "ship_first_dependency_check_log",
    "execution_log": "ship_first_execution_log",
    "history": "ship_first_history",
    "phase_completion_log": "ship_first_phase_completion_log",
}
"""The statement that finds the first row of each log."""


def safe_until(tx: Tx) -> Micros:
    """Return the time up to which every row of the logs is committed.

    A pass marks its own transaction id and time. Once no transaction is open that began to write
    before the mark, everything dated before it is committed, however long a transaction took.
    """
    own, oldest, now = (int(value) for value in one(tx.rows("ship_snapshot")))
    known = {row[0]: int(row[1]) for row in tx.rows("ship_counters")}
    mark, marked_at = known.get("ship_mark_id", 0), known.get("ship_mark_at", 0)
    safe_at = known.get("ship_safe_at", 0)
    is_restored = mark > own  # a restored database counts transactions from the start again
    if mark and oldest <= mark and not is_restored:
        return safe_at
    if mark and not is_restored:
        safe_at = max(safe_at, marked_at - MARGIN)
    values = {"ship_mark_id": own, "ship_mark_at": now, "ship_safe_at": safe_at}
    for name, value in values.items():
        tx.run("ship_counter_put", {"name": name, "value": value})
    return safe_at


def shipments(tx: Tx, sink: str) -> dict[str, Shipment]:
    """Return the progress of each log in a sink."""
    return {row[0]: Shipment(*row) for row in tx.rows("shipments_read", {"sink": sink})}


def shipment_put(tx: Tx, sink: str, shipment: Shipment) -> None:
    """Record that a sink has a batch."""
    tx.run(
        "shipment_put",
        {
            "sink": sink,
            "relation": shipment.relation,
            "batches": shipment.batches,
            "position": shipment.position,
            "rows": shipment.rows,
        },
    )


def journal_read(tx: Tx, after: int, blocks: int) -> JournalPart:
    """Return the entries of the next sealed blocks, each compared with its seal.

    Blocks whose entries were pruned before they could be shipped are skipped.
    """
    found = seal_list(tx, max(0, after - 1), blocks + 1)
    before = next((seal for seal in found if seal.block == after), None)
    pruned_to = journal_pruned_to(tx)
    rows: list[Row] = []
    last = after
    for seal in found:
        if seal.block <= after:
            continue
        entries = seal_entries(tx, seal, before)
        problem = seal_problem(seal, before, entries)
        if problem is not None and seal.sealed_at >= pruned_to:
            return JournalPart(_with_customers(tx, rows), last, f"block {seal.block}: {problem}")
        if problem is None:
            rows += [(seal.block, *entry) for entry in entries]
        last, before = seal.block, seal
    return JournalPart(_with_customers(tx, rows), last, None)


def block_read(tx: Tx, after: int, to: int) -> list[Row]:
    """Return the entries of blocks that are still stored, as they are shipped."""
    found = [seal for seal in seal_list(tx, max(0, after - 1), to - after + 1) if seal.block <= to]
    before = next((seal for seal in found if seal.block == after), None)
    rows: list[Row] = []
    for seal in found:
        if seal.block > after:
            rows += [(seal.block, *entry) for entry in seal_entries(tx, seal, before)]
            before = seal
    return _with_customers(tx, rows)


def _with_customers(tx: Tx, rows: list[Row]) -> list[Row]:
    at = JOURNAL.index("customer")
    keys = sorted({row[at] for row in rows if row[at] is not None})
    found = tx.rows("ship_customers", {"customers": keys}) if keys else []
    ids = {row[0]: row[1] for row in found}
    return sorted(((*row, ids.get(row[at])) for row in rows), key=lambda row: (row[0], row[2]))


def log_first(tx: Tx, table: ShippedTable, after: Micros, until: Micros) -> Micros | None:
    """Return the time of the first row of a log within a time range; None if there is none."""
    window = DAY
    while after < until:
        to = min(until, after + window)
        first_at = one(tx.rows(_FIRSTS[table.name], {"after": after, "until": to}))[0]
        if first_at is not None:
            return int(first_at)
        after, window = to, min(WINDOW_MAX, 2 * window)
    return None


def log_read(
    tx: Tx, table: ShippedTable, after: Micros, until: Micros, n: int
) -> tuple[list[Row], Micros]:
    """Return about `n` rows of a log after a time, and the time up to which they are complete.

    Times without rows are skipped. Rows are in the order of their keys.
    """
    window = HOUR
    while True:
        found = window_read(
            lambda after, to, n: tx.rows(_READS[table.name], {"after": after, "until": to, "n": n}),
            after,
            until,
            window_us=window,
            page=n,
        )
        if found.rows or found.to >= until:
            return _normal(table, found.rows), found.to
        after, window = found.to, 2 * window  # years without rows take few statements


def _normal(table: ShippedTable, rows: list[Row]) -> list[Row]:
    """Return rows in the order of their keys, with the same types on every engine."""
    casts: dict[int, Any] = {
        n: {"boolean": bool, "float": float}[form]
        for n, (_, form) in enumerate(table.columns)
        if form in ("boolean", "float")
    }
    made = []
    for row in rows:
        values = list(row)
        for n, cast in casts.items():
            if values[n] is not None:
                values[n] = cast(values[n])
        made.append(tuple(values))
    at = table.key_at
    return sorted(made, key=lambda row: tuple(row[n] for n in at))


def backlog(tx: Tx, table: ShippedTable, position: int) -> tuple[int, Micros | None]:
    """Return how many rows a sink lacks, counted up to a bound, and the time of the oldest."""
    if table.is_sealed:
        _, entries, sealed_at = one(tx.rows("seals_after", {"block": position}))
        return int(entries), sealed_at
    params = {"after": position, "until": tx.now(), "n": BACKLOG_MAX}
    count, oldest_at = one(tx.rows(_BACKLOGS[table.name], params))
    return int(count), oldest_at


def prunable_until(tx: Tx, sink: str) -> dict[str, Micros]:
    """Return the time before which the sink has all rows of each log, so they may be deleted."""
    known = shipments(tx, sink)
    position = {name: shipment.position for name, shipment in known.items()}
    found = tx.rows("journal_unshipped_at", {"block": position.get("journal", 0)})
    first_at = found[0][0] if found else None
    has_journal = "journal" in known
    return {
        "journal": (tx.now() if first_at is None else first_at - 10 * MINUTE) if has_journal else 0,
        **{
            name: position.get(name, 0)
            for name in (
                "history", "execution_log", "dependency_check_log", "phase_completion_log"
            )
        },
    }  # fmt: skip
