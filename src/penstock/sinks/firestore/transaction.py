"""Transaction of the Firestore sink.

Firestore requires all reads before the first write, so writes are buffered here, where later reads
of the same transaction find them, and are sent when the body has ended. Savepoints are copies of
the buffer. Counters are increments that Firestore applies: they need no read, and so no two
transactions conflict because of them.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, NamedTuple

from penstock.core.clock import Micros, from_datetime, to_datetime
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.sinks.documents import (
    check_fence,
    is_stale,
    json_text,
    newest_version_and_token,
    written_fields,
)
from penstock.sinks.firestore.naming import check_document_path, own_id
from penstock.sinks.protocol import (
    ARRIVED,
    DELIVERED,
    SETTLED,
    Arrival,
    AuditRecord,
    Document,
    Fate,
    Upsert,
    version_number,
)

SHARDS: Final = 8
OWN: Final = "_penstock"
"""Field of a document that holds the sink's own data about it."""
INT64: Final = range(-(2**63), 2**63)


class Stored(NamedTuple):
    """A document as stored in Firestore."""

    fields: Mapping[str, Any]
    updated_at: Micros


class FirestoreTx:
    """One transaction; `prefix` begins the names of the sink's own collections."""

    def __init__(self, client: Any, transaction: Any, prefix: str, now: Micros) -> None:
        self.connection = transaction
        self._client = client
        self._prefix = prefix
        self._now = now
        self._read: dict[str, Stored | None] = {}
        self._changes: dict[str, Mapping[str, Any] | None] = {}
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Raise: Firestore has no SQL."""
        del params
        raise DeclarationError(
            f"a Firestore sink cannot execute {sql[:40]!r}; use tx.get and tx.upsert, or return "
            "Upserts from the handler"
        )

    def get(self, path: str) -> Document | None:
        """Return a document; if it changes before the commit, the transaction is repeated."""
        fields = self._fields(check_document_path(path))
        if fields is None:
            return None
        read = self._read.get(path)
        return document_of(path, Stored(fields, self._now if read is None else read.updated_at))

    def upsert(self, write: Upsert, message_id: str | None = None) -> bool:
        """Write a document; return False if the stored version is newer."""
        version = version_number(write.version)
        check_fields(write.fields)
        stored = self.get(write.path)
        check_fence(write, stored)
        if stored is not None and is_stale(version, stored.version):
            return False
        newest, token = newest_version_and_token(write, stored)
        own = {"version": newest, "token": token, "message_id": message_id}
        fields = written_fields(write, stored)
        self._changes[write.path] = {**fields, OWN: {**own, "updated_at": to_datetime(self._now)}}
        return True

    def mark(self, subscription: str, message_id: str, fate: Fate) -> Fate | None:
        """Mark a message as handled; return its earlier mark, and keep that if it is settled."""
        found = self._fields(self._own_path("marks", subscription, message_id))
        stored = None if found is None else Fate(found["fate"])
        if stored not in SETTLED:
            self.remark(subscription, message_id, fate)
        return stored

    def remark(self, subscription: str, message_id: str, fate: Fate) -> None:
        """Change the mark that this transaction set."""
        self._changes[self._own_path("marks", subscription, message_id)] = {
            "subscription": readable(subscription),
            "message_id": readable(message_id),
            "fate": fate.value,
            "at": to_datetime(self._now),
        }

    def unmark(self, subscription: str, message_id: str, before: Fate | None) -> None:
        """Undo the mark that this transaction set; `before` is the return value of `mark`."""
        if before is not None:
            self.remark(subscription, message_id, before)
            return
        self._changes[self._own_path("marks", subscription, message_id)] = None

    def forget(self, subscription: str, message_id: str) -> bool:
        """Delete a mark; return whether there was one."""
        path = self._own_path("marks", subscription, message_id)
        is_there = self._fields(path) is not None
        if is_there:
            self._changes[path] = None
        return is_there

    def count(self, subscription: str, message_id: str, name: str, by: int = 1) -> None:
        """Add to a counter; `finish` sends it."""
        shard = zlib.crc32(message_id.encode("utf-8", "surrogatepass")) % SHARDS
        self._counts[subscription, name, shard] += by

    def arrive(self, arrival: Arrival) -> None:
        """Record a delivery of a message, and count it; a message is counted once."""
        subscription, message_id = arrival.subscription, arrival.message_id
        path = self._own_path("arrivals", subscription, message_id)
        before = self._fields(path)
        now = to_datetime(self._now)
        self._changes[path] = {
            "subscription": readable(subscription),
            "message_id": readable(message_id),
            "topic": arrival.topic,
            "attributes": dict(arrival.attributes),
            "data_size": arrival.data_size,
            "publish_time": arrival.publish_time,
            "attempt": arrival.attempt,
            "deliveries": 1 if before is None else before["deliveries"] + 1,
            "first_at": now if before is None else before["first_at"],
            "last_at": now,
            "newest": newest_key(subscription, self._now),
        }
        if before is None:
            self.count(subscription, message_id, ARRIVED)
        self.count(subscription, message_id, DELIVERED)

    def audit(self, record: AuditRecord) -> None:
        """Store an audit record of a dropped message, or increment its `times`."""
        path = self._own_path("audit", record.subscription, record.message_id)
        before = self._fields(path)
        now = to_datetime(self._now)
        self._changes[path] = {
            "subscription": readable(record.subscription),
            "message_id": readable(record.message_id),
            "topic": record.topic,
            "error_type": record.error_type,
            "error": readable(record.error),
            "data": record.data,
            "data_size": record.data_size,
            "data_sha256": record.data_sha256,
            "attributes": dict(record.attributes),
            "publish_time": record.publish_time,
            "attempt": record.attempt,
            "times": 1 if before is None else before["times"] + 1,
            "first_at": now if before is None else before["first_at"],
            "last_at": now,
            "newest": newest_key(record.subscription, self._now),
        }

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo only this block if it raises; the error propagates."""
        changes, counts = self._changes.copy(), self._counts.copy()
        try:
            yield
        except BaseException:
            self._changes, self._counts = changes, counts
            raise

    def finish(self, increment: Any) -> None:
        """Send the buffered writes to the transaction, as the last step before the commit."""
        for path, fields in sorted(self._changes.items()):
            reference = self._client.document(path)
            if fields is None:
                self.connection.delete(reference)
            elif path in self._read and self._read[path] is None:
                # Fails if another writer created the document, under any isolation of the server.
                self.connection.create(reference, fields)
            else:
                self.connection.set(reference, fields)
        totals: dict[tuple[str, int], dict[str, Any]] = {}
        for (subscription, name, shard), by in sorted(self._counts.items()):
            totals.setdefault((subscription, shard), {})[name] = increment(by)
        for (subscription, shard), counts in totals.items():
            reference = self._client.document(self._own_path("counters", subscription, str(shard)))
            fields = {"subscription": readable(subscription), "counts": counts}
            self.connection.set(reference, fields, merge=True)

    def _fields(self, path: str) -> Mapping[str, Any] | None:
        """Return the fields of a document as this transaction sees it."""
        if path in self._changes:
            return self._changes[path]
        if path not in self._read:
            found = self._client.document(path).get(transaction=self.connection)
            self._read[path] = stored_of(found)
        read = self._read[path]
        return None if read is None else read.fields

    def _own_path(self, collection: str, *parts: str) -> str:
        return own_path(self._prefix, collection, *parts)


def own_path(prefix: str, collection: str, *parts: str) -> str:
    """Return the path of one of the sink's own documents."""
    return f"{prefix}{collection}/{own_id(*parts)}"


def stored_of(snapshot: Any) -> Stored | None:
    """Return the fields of a snapshot; None if there is no document."""
    if not snapshot.exists:
        return None
    return Stored(snapshot.to_dict(), from_datetime(snapshot.update_time))


def document_of(path: str, stored: Stored) -> Document:
    """Return a stored document; one that other code wrote has neither version nor token."""
    fields = dict(stored.fields)
    own = fields.pop(OWN, None)
    own = own if isinstance(own, Mapping) else {}
    at = own.get("updated_at")
    return Document(
        path=path,
        fields=fields,
        version=own.get("version"),
        token=own.get("token"),
        message_id=own.get("message_id"),
        updated_at=from_datetime(at) if isinstance(at, datetime) else stored.updated_at,
    )


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise InvalidInput for fields that Firestore cannot store, or that the sink uses."""
    if OWN in fields:
        raise InvalidInput("fields", f"names other than {OWN}", OWN)
    json_text(fields, _native)
    _check_values(fields)


def readable(text: str) -> str:
    """Return a text that Firestore can store."""
    return text.encode("utf-8", "replace").decode()


def newest_key(subscription: str, at: Micros) -> str:
    """Return a key that sorts by subscription and time, so that no composite index is needed."""
    return f"{own_id(subscription)} {at:020d}"


def _native(value: Any) -> Any:
    """Return a JSON value for a value of a type that Firestore supports and JSON does not."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return ""
    if isinstance(value, bytes):
        return ""
    raise TypeError(type(value).__name__)


def _check_values(value: Any) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if not name:
                raise InvalidInput("fields", "names that are not empty", "an empty name")
            _check_text(str(name))
            _check_values(part)
    elif isinstance(value, list | tuple):
        for part in value:
            if isinstance(part, list | tuple):
                raise InvalidInput("fields", "lists without nested lists", "a nested list")
            _check_values(part)
    elif isinstance(value, int) and value not in INT64:
        raise InvalidInput("fields", "numbers of at most 64 bits", value)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("fields", "text without lone surrogates", "one") from None
