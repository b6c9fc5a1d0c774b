"""Firestore sink: one transaction for each message, repeated after a conflict.

    ops_services/api-1              documents, where users read them
    penstock_marks/SUB:MESSAGE      the dedupe document of a message
    penstock_counters/SUB:SHARD     counters of a subscription
    penstock_audit/SUB:MESSAGE      poison messages that were dropped
    penstock_arrivals/SUB:MESSAGE   visibility records

If the response to a commit is lost, the caller gets the error. The message is then redelivered, and
its mark shows whether the transaction was committed. The library comes with the extra `firestore`;
with `FIRESTORE_EMULATOR_HOST` set it talks to that server, without credentials.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, TypeVar

from penstock.core.clock import Clock, Micros, SystemClock, from_datetime, to_datetime
from penstock.core.errors import SettingsError, TransientError
from penstock.sinks.firestore.naming import FirestoreAddress, check_document_path, own_id
from penstock.sinks.firestore.transaction import (
    SHARDS,
    FirestoreTx,
    Stored,
    document_of,
    own_path,
    stored_of,
)
from penstock.sinks.protocol import (
    Arrival,
    AuditRecord,
    Document,
    Fate,
    SinkTx,
    is_conflict,
)
from penstock.sinks.statements import PREFIX_DEFAULT, check_prefix

T = TypeVar("T")

LIBRARY: Final = "google.cloud.firestore"
ATTEMPTS: Final = 5
TRIES: Final = 4
PRUNE_BATCH: Final = 400
_AGES: Final = {"marks": "at", "audit": "last_at", "arrivals": "last_at"}
"""The sink's collections that are pruned, and the field with the age of a document."""


class SinkContention(TransientError):
    """Other transactions changed the same documents repeatedly; a redelivery may succeed."""


class FirestoreSink:
    """A sink in a Firestore database, which may contain other documents too."""

    def __init__(
        self,
        address: FirestoreAddress,
        *,
        prefix: str = PREFIX_DEFAULT,
        clock: Clock | None = None,
    ) -> None:
        """Create the sink; it connects on first use."""
        self._address = address
        self._prefix = check_prefix(prefix)
        self._clock = clock or SystemClock()
        self._library = _require_firestore()
        self._lock = threading.Lock()
        self._client: Any = None

    @property
    def marks_table(self) -> str:
        """Name of the collection that stores the marks."""
        return f"{self._prefix}marks"

    def transact(self, body: Callable[[SinkTx], T]) -> T:
        """Run a body in one transaction; repeat it after a conflict."""
        client = self._opened()

        def attempt(transaction: Any) -> T:
            tx = FirestoreTx(client, transaction, self._prefix, self._clock.now())
            value = body(tx)
            tx.finish(self._library.Increment)
            return value

        return self._run(attempt)

    def fate(self, subscription: str, message_id: str) -> Fate | None:
        """Return the mark of a message, or None."""
        found = self._get(own_path(self._prefix, "marks", subscription, message_id))
        return None if found is None else Fate(found.fields["fate"])

    def document(self, path: str) -> Document | None:
        """Return a document as currently stored, or None."""
        found = self._get(check_document_path(path))
        return None if found is None else document_of(path, found)

    def counters(self, subscription: str) -> dict[str, int]:
        """Return the exact counters of a subscription by name."""
        totals: dict[str, int] = {}
        with _settings_errors():
            shards = self._opened().get_all(
                [
                    self._opened().document(
                        own_path(self._prefix, "counters", subscription, str(shard))
                    )
                    for shard in range(SHARDS)
                ]
            )
            for shard in shards:
                counts = (shard.to_dict() or {}).get("counts", {})
                for name, value in counts.items():
                    totals[name] = totals.get(name, 0) + value
        return dict(sorted(totals.items()))

    def audits(self, subscription: str, *, limit: int = 100) -> Sequence[AuditRecord]:
        """Return audit records of dropped messages, newest first."""
        return [_audit(fields) for fields in self._newest("audit", subscription, limit)]

    def arrivals(self, subscription: str, *, limit: int = 100) -> Sequence[Arrival]:
        """Return visibility records, newest first."""
        return [_arrival(fields) for fields in self._newest("arrivals", subscription, limit)]

    def forget(self, subscription: str, message_ids: Sequence[str]) -> int:
        """Delete marks, so that these messages are handled again; return the number deleted."""
        client = self._opened()

        def attempt(transaction: Any) -> int:
            tx = FirestoreTx(client, transaction, self._prefix, self._clock.now())
            count = sum([tx.forget(subscription, message_id) for message_id in message_ids])
            tx.finish(self._library.Increment)
            return count

        return self._run(attempt)

    def prune(self, kept: Micros) -> int:
        """Delete marks, audit and visibility records older than `kept`, in batches."""
        before = to_datetime(self._clock.now() - kept)
        return sum(
            self._prune(f"{self._prefix}{name}", field, before) for name, field in _AGES.items()
        )

    def check(self) -> None:
        """Raise if the sink is not available."""
        self._get(f"{self._prefix}marks/check")

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _run(self, attempt: Callable[[Any], T]) -> T:
        """Run a function in a transaction; repeat it after a conflict.

        Google's library repeats a commit that was aborted, and keeps the priority of the
        transaction. This function repeats an aborted read, or the write of a document that another
        writer created in the meantime.
        """
        client = self._opened()
        tries = 0
        while True:
            tries += 1
            transaction = client.transaction(max_attempts=ATTEMPTS)
            with _settings_errors():
                try:
                    value: T = self._library.transactional(attempt)(transaction)
                    return value
                except Exception as error:
                    origin = _origin(error)
                    if not _is_contention(origin):
                        if origin is error:
                            raise
                        raise origin from None
                    if tries == TRIES:
                        raise SinkContention(
                            "other transactions changed the same documents in every attempt"
                        ) from origin

    def _get(self, path: str) -> Stored | None:
        with _settings_errors():
            return stored_of(self._opened().document(path).get())

    def _newest(
        self, collection: str, subscription: str, limit: int
    ) -> Iterator[Mapping[str, Any]]:
        """Yield records of a subscription, newest first, using a single-field index."""
        start = own_id(subscription) + " "
        field = self._library.FieldFilter
        with _settings_errors():
            query = (
                self._opened()
                .collection(f"{self._prefix}{collection}")
                .where(filter=field("newest", ">=", start))
                .where(filter=field("newest", "<", start + "~"))
                .order_by("newest", direction="DESCENDING")
                .limit(limit)
            )
            yield from [one.to_dict() for one in query.stream()]

    def _prune(self, collection: str, field: str, before: Any) -> int:
        total = 0
        with _settings_errors():
            while True:
                client = self._opened()
                old = list(
                    client.collection(collection)
                    .where(filter=self._library.FieldFilter(field, "<", before))
                    .order_by(field)
                    .limit(PRUNE_BATCH)
                    .stream()
                )
                if not old:
                    return total
                batch = client.batch()
                for one in old:
                    batch.delete(one.reference)
                batch.commit()
                total += len(old)

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                address = self._address
                with _settings_errors():
                    self._client = self._library.Client(
                        project=address.project, database=address.database
                    )
            return self._client


def _origin(error: Exception) -> Exception:
    """Return the error of the service that caused an error of the library.

    The library wraps the last conflict in a ValueError, and reports a transaction that could not
    begin as an error of its rollback.
    """
    if isinstance(error, ValueError):
        for one in (error.__cause__, error.__context__):
            if isinstance(one, Exception) and type(one).__module__.startswith("google."):
                return one
    return error


def _is_contention(error: Exception) -> bool:
    """Return whether a transaction failed because of others, or lasted too long."""
    # Optional, like the library itself.
    from google.api_core.exceptions import AlreadyExists, InvalidArgument

    is_expired = isinstance(error, InvalidArgument) and "transaction" in str(error).lower()
    return is_expired or is_conflict(error) or isinstance(error, AlreadyExists)


def _require_firestore() -> Any:
    try:
        return import_module(LIBRARY)
    except ImportError:
        raise SettingsError(
            "sink",
            "google-cloud-firestore to be installed",
            "none",
            "pip install 'penstock-engine[firestore]'",
        ) from None


@contextmanager
def _settings_errors() -> Iterator[None]:
    """Translate the errors of a missing database or missing credentials to SettingsError."""
    from google.api_core.exceptions import NotFound  # optional, like the library itself
    from google.auth.exceptions import DefaultCredentialsError  # the same

    try:
        yield
    except NotFound as error:
        raise SettingsError("sink", "a database that exists", str(error.message)[:300]) from error
    except DefaultCredentialsError as error:
        raise SettingsError("sink", "credentials for Firestore", str(error)[:300]) from error


def _audit(fields: Mapping[str, Any]) -> AuditRecord:
    return AuditRecord(
        subscription=fields["subscription"],
        message_id=fields["message_id"],
        topic=fields["topic"],
        error_type=fields["error_type"],
        error=fields["error"],
        data=fields["data"],
        data_size=fields["data_size"],
        data_sha256=fields["data_sha256"],
        attributes=fields["attributes"],
        publish_time=fields["publish_time"],
        attempt=fields["attempt"],
        times=fields["times"],
        first_at=from_datetime(fields["first_at"]),
        last_at=from_datetime(fields["last_at"]),
    )


def _arrival(fields: Mapping[str, Any]) -> Arrival:
    return Arrival(
        subscription=fields["subscription"],
        message_id=fields["message_id"],
        topic=fields["topic"],
        attributes=fields["attributes"],
        data_size=fields["data_size"],
        publish_time=fields["publish_time"],
        attempt=fields["attempt"],
        deliveries=fields["deliveries"],
        first_at=from_datetime(fields["first_at"]),
        last_at=from_datetime(fields["last_at"]),
    )
