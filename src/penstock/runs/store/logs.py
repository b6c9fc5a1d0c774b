"""Log entries of runs: written in batches by the holder of a run, read for one run.

The entries of a batch are JSON: a list of [time in microseconds, level, logger, message]. A batch
that is written again replaces its entries. The built-in worker numbers its batches from 0, with
TAIL_PART for the newest entries of a long log. A batch of an external worker has the number of its
first entry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey
from penstock.core.redact import redact_text
from penstock.db.store import Tx
from penstock.runs.rows import HeldRun

PARTS_MAX = 1_000
"""Maximum number of batches of entries that are read per run."""
TAIL_PART = 1_000_000
"""Number of the batch with the newest entries of a log whose middle is not kept."""
ENTRY_MAX = 2_000
"""Maximum length of an entry in characters; one with a traceback has up to four times as many."""


class LogEntryRow(NamedTuple):
    """One entry of a run's log."""

    at: Micros
    level: str
    logger: str
    message: str


def log_entry(
    at: Micros, level: str, logger: str, message: str, limit: int = ENTRY_MAX
) -> LogEntryRow:
    """Return an entry that every store accepts, with secrets masked, cut to its maximum length."""
    text, name = _clean(redact_text(message)), _clean(redact_text(logger))
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return LogEntryRow(at, level, name[:200], text)


def left_out(at: Micros, count: int) -> LogEntryRow:
    """Return the entry that stands for entries that were not kept."""
    return LogEntryRow(at, "INFO", "penstock", f"{count:,} entries were not kept")


def encoded(entries: Sequence[LogEntryRow]) -> str:
    """Encode entries for storage."""
    return msgspec.json.encode(entries).decode()


def _clean(text: str) -> str:
    # Lone surrogates cannot be encoded and NUL cannot be stored by PostgreSQL.
    return text.encode("utf-8", "replace").decode().replace("\0", "\\0")


class LogPart(NamedTuple):
    """A batch of entries of one execution, by its number."""

    run_id: int
    token: int
    part: int
    customer_key: CustomerKey
    entries: str


def run_log_put_held(tx: Tx, parts: Sequence[LogPart]) -> None:
    """Add entries of live runs; those of a stale token are ignored."""
    if parts:
        rows = [(one.run_id, one.token, one.part, one.entries) for one in parts]
        tx.run("run_log_put_held", batch=rows)


def run_log_put_ended(tx: Tx, parts: Sequence[LogPart]) -> None:
    """Add entries of runs that this transaction ended or released."""
    if parts:
        tx.run("run_log_put_ended", batch=list(parts))


class LogBounds(NamedTuple):
    """How much of a log is kept: the first half, and the newest of the rest."""

    entries: int
    characters: int
    parts: int


def run_log_append(
    tx: Tx, held: HeldRun, entries: Sequence[LogEntryRow], bounds: LogBounds
) -> None:
    """Add entries of a held run.

    The oldest entries behind the first half of the log are replaced by a note. The batch that is
    added is always kept. The caller holds the lock of the run.
    """
    key = {"run_id": held.run_id, "token": held.token}
    parts = [(int(part), int(size)) for part, size in tx.rows("run_log_parts", key)]
    start = 0
    if parts:
        ((text,),) = tx.rows("run_log_last", {**key, "part": parts[-1][0]})
        start = parts[-1][0] + len(json.loads(text))
    text = encoded(entries)
    parts.append((start, len(text)))
    run_log_put_held(tx, [LogPart(held.run_id, held.token, start, held.customer_key, text)])
    first, before = _middle(parts, start + len(entries), bounds)
    if before > first:
        tx.run("run_log_drop", {**key, "first": first, "before": before})
        note = encoded([left_out(entries[0].at, before - first)])
        run_log_put_held(tx, [LogPart(held.run_id, held.token, first, held.customer_key, note)])


def _middle(parts: Sequence[tuple[int, int]], end: int, bounds: LogBounds) -> tuple[int, int]:
    """Return the entries to drop, as the first one and the one behind the last.

    parts: the number of each batch's first entry, and its length. end: the number of entries.
    """
    sizes, head = 0, 0
    for index, (part, size) in enumerate(parts):
        if (
            sizes >= bounds.characters // 2
            or part >= bounds.entries // 2
            or index >= bounds.parts // 2
        ):
            break
        sizes, head = sizes + size, index + 1
    if head == len(parts):
        return 0, 0
    first, kept = parts[head][0], len(parts)
    for index in range(len(parts) - 1, head - 1, -1):
        sizes += parts[index][1]
        if index < len(parts) - 1 and (
            sizes > bounds.characters
            or first + end - parts[index][0] > bounds.entries
            or head + len(parts) - index + 1 > bounds.parts
        ):
            break
        kept = index
    # A note of earlier drops, at the first index, stands for all up to the next batch.
    return first, parts[kept][0]


def run_log_list(tx: Tx, run_id: int) -> list[LogEntryRow]:
    """Return the entries of a run, oldest first."""
    rows = tx.rows("run_log_list", {"run_id": run_id, "n": PARTS_MAX})
    return [LogEntryRow(*entry) for (text,) in rows for entry in json.loads(text)]
