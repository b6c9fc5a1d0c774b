"""The protocol of sinks, and the plain records that it uses.

One transaction of a sink contains all effects of a message: the mark that it was handled, the
writes with their versions and fencing tokens, and the counters. A body passed to `transact` may run
more than once (after a deadlock or on a busy file), so it must have no effects outside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from penstock.core.clock import Micros, from_datetime, parse_iso
from penstock.core.errors import Conflict, InvalidInput
from penstock.core.json_profile import INT_MAX, INT_MIN

T = TypeVar("T")

PATH_BYTES_MAX: Final = 1_000

Version: TypeAlias = int | str | datetime
"""A number, or a time (ISO 8601 text or an aware datetime), stored as microseconds."""


class Fate(StrEnum):
    """Outcome recorded for a message. POISON is not final: a replayed message is handled again."""

    APPLIED = "applied"
    STALE_IGNORED = "stale_ignored"
    POISON = "poison"


ARRIVED: Final = "arrived"
DELIVERED: Final = "delivered"
"""Counters of visibility records: of messages, and of their deliveries."""
SETTLED: Final = frozenset({Fate.APPLIED, Fate.STALE_IGNORED})
"""A redelivered message with one of these marks is a duplicate."""


class StaleFence(Conflict):
    """The write was rejected: the document was written under a newer fencing token."""

    code = "sink.stale_fence"

    def __init__(self, path: str, token: int, newest: int) -> None:
        self.path = path
        self.token = token
        self.newest = newest
        super().__init__(
            f"document {path} was written under fencing token {newest}; token {token} is older "
            "and changed nothing. Acquire the lease again.",
            detail={"path": path, "token": token, "newest": newest},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """A write to a document: its fields are merged into the stored ones, or replace them.

    version: the write is skipped (`stale_ignored`) if it is older than the document's version.
    token: fencing token; StaleFence is raised if the document has a newer one. add: numbers to add
    to fields; exact under redelivery, because they commit with the mark. replace: replace the
    fields instead of merging.
    """

    path: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    version: Version | None = None
    token: int | None = None
    add: Mapping[str, int | float] = field(default_factory=dict)
    replace: bool = False

    @property
    def kind(self) -> str:
        """Effect on an existing document: "replace" or "merge"."""
        return "replace" if self.replace else "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A stored document; `version` and `token` are None if no write set them."""

    path: str
    fields: Mapping[str, Any]
    version: int | None
    token: int | None
    message_id: str | None
    updated_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """A dropped poison message; without a dead-letter topic, this is all that is kept of it.

    `data` may be truncated; `data_size` and `data_sha256` describe the original. `times` counts
    its deliveries.
    """

    subscription: str
    message_id: str
    topic: str | None
    error_type: str
    error: str
    data: bytes
    data_size: int
    data_sha256: str
    attributes: Mapping[str, str]
    publish_time: Micros | None
    attempt: int | None
    times: int = 1
    first_at: Micros = 0
    last_at: Micros = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The visibility record of a message: that it arrived, regardless of the outcome.

    `deliveries` counts its deliveries.
    """

    subscription: str
    message_id: str
    topic: str | None
    attributes: Mapping[str, str]
    data_size: int
    publish_time: Micros | None
    attempt: int | None
    deliveries: int = 1
    first_at: Micros = 0
    last_at: Micros = 0


class SinkTx(Protocol):
    """One transaction of a sink; handlers that take `tx` receive it."""

    @property
    def connection(self) -> Any:
        """The transaction's database connection; do not commit or roll back on it."""
        ...

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a custom statement, with `:name` parameters on both engines."""
        ...

    def get(self, path: str) -> Document | None:
        """Return a document, locked until the transaction ends, or None."""
        ...

    def upsert(self, write: Upsert, message_id: str | None = None) -> bool:
        """Write a document; return False if the stored version is newer.

        Raise StaleFence if the document has a newer token.
        """
        ...

    def mark(self, subscription: str, message_id: str, fate: Fate) -> Fate | None:
        """Mark a message as handled; return its earlier mark, and keep that if it is settled."""
        ...

    def remark(self, subscription: str, message_id: str, fate: Fate) -> None:
        """Change the mark that this transaction set."""
        ...

    def unmark(self, subscription: str, message_id: str, before: Fate | None) -> None:
        """Undo the mark that this transaction set; `before` is the return value of `mark`."""
        ...

    def count(self, subscription: str, message_id: str, name: str, by: int = 1) -> None:
        """Add to a counter; the message id selects the shard, which reduces lock contention."""
        ...

    def audit(self, record: AuditRecord) -> None:
        """Store an audit record of a dropped message, or increment its `times`."""
        ...

    def arrive(self, arrival: Arrival) -> None:
        """Store the visibility record of a message, or increment its `deliveries`.

        The counter `arrived` counts each message once, `delivered` each delivery.
        """
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """Return a context that rolls back only its block if it raises; the error propagates."""
        ...


class Sink(Protocol):
    """Documents, marks, counters and audit records in the user's database."""

    @property
    def marks_table(self) -> str:
        """Name of the table that stores the marks, as shown in the log."""
        ...

    def transact(self, body: Callable[[SinkTx], T]) -> T:
        """Run a body in one durable transaction."""
        ...

    def fate(self, subscription: str, message_id: str) -> Fate | None:
        """Return the mark of a message, or None; does not lock it."""
        ...

    def document(self, path: str) -> Document | None:
        """Return a document as currently stored, or None."""
        ...

    def counters(self, subscription: str) -> dict[str, int]:
        """Return the exact counters of a subscription by name."""
        ...

    def audits(self, subscription: str, *, limit: int = 100) -> Sequence[AuditRecord]:
        """Return audit records of dropped messages, newest first."""
        ...

    def arrivals(self, subscription: str, *, limit: int = 100) -> Sequence[Arrival]:
        """Return visibility records, newest first."""
        ...

    def forget(self, subscription: str, message_ids: Sequence[str]) -> int:
        """Delete marks, so that these messages are handled again; return the number deleted."""
        ...

    def prune(self, kept: Micros) -> int:
        """Delete marks, audit and visibility records older than `kept`; return their number."""
        ...

    def check(self) -> None:
        """Raise if the sink is not available."""
        ...

    def close(self) -> None:
        """Close the sink's connections; idempotent."""
        ...


def is_conflict(error: BaseException) -> bool:
    """Return whether a transaction failed by conflict (e.g. a deadlock) and must be repeated."""
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return state.startswith("40")
    # Recognised by name, because Google's library is optional.
    return type(error).__module__.startswith("google.") and type(error).__name__ == "Aborted"


def doc_path(*parts: object) -> str:
    """Join parts to a document path; raise InvalidInput for an empty part or one with a slash."""
    texts = [str(part) for part in parts]
    for text in texts:
        if "/" in text or text in ("", ".", ".."):
            raise InvalidInput("path", "parts that are neither empty nor contain a slash", text)
    return check_path("/".join(texts))


def check_path(path: object) -> str:
    """Return the path; raise InvalidInput if it is not valid."""
    expected = f'a path such as "collection/id", at most {PATH_BYTES_MAX} bytes'
    if not isinstance(path, str) or "\x00" in path or any(not part for part in path.split("/")):
        raise InvalidInput("path", expected, path)
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise InvalidInput("path", expected, "a lone surrogate") from None
    if size > PATH_BYTES_MAX:
        raise InvalidInput("path", expected, path)
    return path


def version_number(version: Version | None, name: str = "version") -> int | None:
    """Return the number by which a version is compared; times become microseconds."""
    if isinstance(version, datetime):
        return from_datetime(version)
    if isinstance(version, str):
        return parse_iso(version, name)
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidInput(name, "a whole number or a time", version)
    if not INT_MIN <= version <= INT_MAX:
        raise InvalidInput(name, "a number of at most 64 bits", version)
    return version
