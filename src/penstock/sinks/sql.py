"""Transaction of the SQL sinks, shared by both engines, which only run its statements.

Locks are taken in a fixed order (marks, then documents, then counters), so that two workers with
the same message contend for its mark: one continues, the other waits and then finds a duplicate.
Counters are summed up and written last, in sorted order: all transactions write them, so they must
be locked only briefly.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, TypeAlias

from penstock.core.clock import Micros
from penstock.core.errors import SchemaMismatch
from penstock.sinks import statements as sql
from penstock.sinks.documents import (
    check_fence,
    is_stale,
    json_text,
    newest_version_and_token,
    written_fields,
)
from penstock.sinks.protocol import (
    ARRIVED,
    DELIVERED,
    SETTLED,
    Arrival,
    AuditRecord,
    Document,
    Fate,
    Upsert,
    check_path,
    version_number,
)

SHARDS: Final = 8
PRUNE_BATCH: Final = 5_000
_TRIES: Final = 5

Rows: TypeAlias = list[tuple[Any, ...]]
Run: TypeAlias = Callable[[str, Mapping[str, Any]], Rows]
"""Function that runs a statement and returns its rows."""


class SqlTx:
    """One transaction; `run` executes the sink's templates, `run_own` the user's statements."""

    def __init__(self, run: Run, run_own: Run, connection: Any, now: Micros) -> None:
        self._run = run
        self._run_own = run_own
        self._now = now
        self._points = count(1)
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self.connection = connection

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> Rows:
        """Run one of the user's statements, with `:name` parameters."""
        return self._run_own(sql, params or {})

    def get(self, path: str) -> Document | None:
        """Return a document, locked until the transaction ends, or None."""
        return document_of(self._run(sql.DOCUMENT_LOCKED, {"path": check_path(path)}))

    def upsert(self, write: Upsert, message_id: str | None = None) -> bool:
        """Write a document; return False if the stored version is newer."""
        version = version_number(write.version)
        stored = self.get(write.path)
        for _ in range(_TRIES):
            check_fence(write, stored)
            if stored is not None and is_stale(version, stored.version):
                return False
            values = self._row(write, stored, message_id)
            if stored is not None:
                self._run(sql.DOCUMENT_CHANGE, values)
                return True
            if self._run(sql.DOCUMENT_MAKE, values):
                return True
            # Another transaction inserted the document: read and lock it.
            stored = self.get(write.path)
        raise AssertionError(f"document {write.path} is inserted and deleted repeatedly")

    def mark(self, subscription: str, message_id: str, fate: Fate) -> Fate | None:
        """Mark a message as handled; return its earlier mark, and keep that if it is settled."""
        key = {"subscription": subscription, "message_id": message_id}
        for _ in range(_TRIES):
            if self._run(sql.MARK_MAKE, {**key, "fate": fate.value, "now": self._now}):
                return None
            rows = self._run(sql.FATE_LOCKED, key)
            if rows:
                stored = Fate(rows[0][0])
                if stored not in SETTLED:
                    self.remark(subscription, message_id, fate)
                return stored
            # The other transaction removed its mark, or the mark was pruned: try again.
        raise AssertionError(f"the mark of message {message_id} is set and removed repeatedly")

    def remark(self, subscription: str, message_id: str, fate: Fate) -> None:
        """Change the mark that this transaction set."""
        values = {"fate": fate.value, "now": self._now}
        self._run(
            sql.MARK_CHANGE, {"subscription": subscription, "message_id": message_id, **values}
        )

    def unmark(self, subscription: str, message_id: str, before: Fate | None) -> None:
        """Undo the mark that this transaction set; `before` is the return value of `mark`."""
        if before is not None:
            self.remark(subscription, message_id, before)
            return
        self._run(sql.MARK_REMOVE, {"subscription": subscription, "message_id": message_id})

    def count(self, subscription: str, message_id: str, name: str, by: int = 1) -> None:
        """Add to a counter; `finish` writes it."""
        shard = zlib.crc32(message_id.encode("utf-8", "surrogatepass")) % SHARDS
        self._counts[subscription, name, shard] += by

    def finish(self) -> None:
        """Write the counters, as the last step before the commit."""
        for (subscription, name, shard), by in sorted(self._counts.items()):
            key = {"subscription": subscription, "name": name, "shard": shard}
            self._run(sql.COUNT, {**key, "by": by})

    def audit(self, record: AuditRecord) -> None:
        """Store an audit record of a dropped message, or increment its `times`."""
        self._run(
            sql.AUDIT,
            {
                "subscription": record.subscription,
                "message_id": record.message_id,
                "topic": record.topic,
                "error_type": record.error_type,
                "error": record.error.replace("\x00", "\ufffd"),
                "data": record.data,
                "data_size": record.data_size,
                "data_sha256": record.data_sha256,
                "attributes": json.dumps(dict(record.attributes)),
                "publish_time": record.publish_time,
                "attempt": record.attempt,
                "now": self._now,
            },
        )

    def arrive(self, arrival: Arrival) -> None:
        """Store the visibility record of a message, or increment its `deliveries`."""
        values = {
            "subscription": arrival.subscription,
            "message_id": arrival.message_id,
            "topic": arrival.topic,
            "attributes": json.dumps(dict(arrival.attributes)),
            "data_size": arrival.data_size,
            "publish_time": arrival.publish_time,
            "attempt": arrival.attempt,
            "now": self._now,
        }
        if self._run(sql.ARRIVE, values)[0][0] == 1:
            self.count(arrival.subscription, arrival.message_id, ARRIVED)
        self.count(arrival.subscription, arrival.message_id, DELIVERED)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll back only this block if it raises; the error propagates."""
        name = f"penstock_{next(self._points)}"
        self._run_own(f"SAVEPOINT {name}", {})
        counts = self._counts.copy()
        try:
            yield
        except BaseException:
            self._counts = counts
            self._run_own(f"ROLLBACK TO SAVEPOINT {name}", {})
            raise
        finally:
            self._run_own(f"RELEASE SAVEPOINT {name}", {})

    def _row(
        self, write: Upsert, stored: Document | None, message_id: str | None
    ) -> dict[str, Any]:
        version, token = newest_version_and_token(write, stored)
        return {
            "path": write.path,
            "fields": json_text(written_fields(write, stored)),
            "version": version,
            "token": token,
            "message_id": message_id,
            "now": self._now,
        }


def prepare(run: Run, now: Micros) -> None:
    """Migrate the tables to this version; the caller's transaction must exclude all others."""
    run(sql.SCHEMA_TABLE, {})
    applied = int(run(sql.APPLIED, {})[0][0])
    if applied > len(sql.SCHEMA):
        raise SchemaMismatch(
            f"the sink's tables are at version {applied}, but this version of Penstock supports "
            f"{len(sql.SCHEMA)}: upgrade Penstock or use another prefix"
        )
    for number, texts in enumerate(sql.SCHEMA[applied:], start=applied + 1):
        for text in texts:
            run(text, {})
        run(sql.RECORD, {"number": number, "now": now})


def fate_of(rows: Rows) -> Fate | None:
    """Return the mark in a result, or None."""
    return Fate(rows[0][0]) if rows else None


def document_of(rows: Rows) -> Document | None:
    """Return the document in a result, or None."""
    if not rows:
        return None
    path, fields, version, token, message_id, updated_at = rows[0]
    return Document(
        path=path,
        fields=json.loads(fields),
        version=version,
        token=token,
        message_id=message_id,
        updated_at=updated_at,
    )


def audits_of(rows: Rows) -> list[AuditRecord]:
    """Return the audit records in a result."""
    return [
        AuditRecord(
            subscription=row[0],
            message_id=row[1],
            topic=row[2],
            error_type=row[3],
            error=row[4],
            data=bytes(row[5]),
            data_size=row[6],
            data_sha256=row[7],
            attributes=json.loads(row[8]),
            publish_time=row[9],
            attempt=row[10],
            times=row[11],
            first_at=row[12],
            last_at=row[13],
        )
        for row in rows
    ]


def arrivals_of(rows: Rows) -> list[Arrival]:
    """Return the visibility records in a result."""
    return [
        Arrival(
            subscription=row[0],
            message_id=row[1],
            topic=row[2],
            attributes=json.loads(row[3]),
            data_size=row[4],
            publish_time=row[5],
            attempt=row[6],
            deliveries=row[7],
            first_at=row[8],
            last_at=row[9],
        )
        for row in rows
    ]


def forget(run: Run, subscription: str, message_ids: Sequence[str]) -> int:
    """Delete marks and return their number; the counters do not change."""
    removed = 0
    for message_id in message_ids:
        key = {"subscription": subscription, "message_id": message_id}
        removed += len(run(sql.MARK_REMOVE, key))
    return removed


def prune(run: Run, before: Micros) -> int:
    """Delete one batch of rows older than a time; return their number."""
    return sum(len(run(text, {"before": before, "n": PRUNE_BATCH})) for text in sql.PRUNE)
