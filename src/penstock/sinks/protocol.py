"""The protocol of sinks, and the plain records that cross it.

One transaction of a sink holds everything a message does: the mark that it was handled, the writes
with their versions and fencing tokens, and the counters. A body given to `transact` may be run
again (a deadlock, a busy file), so it must have no effects outside the transaction.
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
"""A number, or a time: ISO 8601 text or an aware datetime, kept as microseconds."""


class Fate(StrEnum):
    """What became of a message, as its mark remembers it. Poison may still be handled later."""

    APPLIED = "applied"
    STALE_IGNORED = "stale_ignored"
    POISON = "poison"


SETTLED: Final = frozenset({Fate.APPLIED, Fate.STALE_IGNORED})
"""A message with such a mark is a duplicate when it comes again."""


class StaleFence(Conflict):
    """A newer fencing token has written this document; the write was refused."""

    code = "sink.stale_fence"

    def __init__(self, path: str, token: int, newest: int) -> None:
        self.path = path
        self.token = token
        self.newest = newest
        super().__init__(
            f"document {path} was written under fencing token {newest}; token {token} is older "
            "and changed nothing. Take the lease again.",
            detail={"path": path, "token": token, "newest": newest},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """Write a document: its fields merged into what is there, or in its place.

    version: older than the document's is not written (`stale_ignored`). token: a fencing token;
    older than the newest seen is refused with StaleFence. add: numbers added to fields, exact
    under redelivery because they commit with the mark.
    """

    path: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    version: Version | None = None
    token: int | None = None
    add: Mapping[str, int | float] = field(default_factory=dict)
    replace: bool = False

    @property
    def kind(self) -> str:
        """What it does to a document that is there."""
        return "replace" if self.replace else "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document as it is stored."""

    path: str
    fields: Mapping[str, Any]
    version: int | None
    token: int | None
    message_id: str | None
    updated_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """A message that was given up: all that is left of it when there is no dead-letter topic."""

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


class SinkTx(Protocol):
    """One transaction of a sink. Handlers that ask for `tx` get this."""

    @property
    def connection(self) -> Any:
        """The database connection inside the transaction; neither commit nor roll back on it."""
        ...

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement of your own, with `:name` parameters on either engine."""
        ...

    def get(self, path: str) -> Document | None:
        """A document, locked until the transaction ends."""
        ...

    def upsert(self, write: Upsert, message_id: str | None = None) -> bool:
        """Write a document; False when it has a newer version. StaleFence for an older token."""
        ...

    def mark(self, subscription: str, message_id: str, fate: Fate) -> Fate | None:
        """Mark a message as handled; answers the mark that was there, and leaves a settled one."""
        ...

    def remark(self, subscription: str, message_id: str, fate: Fate) -> None:
        """Change the mark that this transaction made."""
        ...

    def unmark(self, subscription: str, message_id: str, before: Fate | None) -> None:
        """Take back the mark that this transaction made, to what `mark` answered."""
        ...

    def count(self, subscription: str, message_id: str, name: str, by: int = 1) -> None:
        """Add to a counter. The message chooses the shard, so that few wait for each other."""
        ...

    def audit(self, record: AuditRecord) -> None:
        """Keep a record of a message that is given up, or count it once more."""
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """What fails inside is undone alone; the error goes on."""
        ...


class Sink(Protocol):
    """Documents, marks, counters and audit records in somebody's database."""

    @property
    def mark_place(self) -> str:
        """Where marks are kept, as the log names it."""
        ...

    def transact(self, body: Callable[[SinkTx], T]) -> T:
        """Run a body in one durable transaction."""
        ...

    def fate(self, subscription: str, message_id: str) -> Fate | None:
        """The mark of a message, if there is one; a look, not a lock."""
        ...

    def document(self, path: str) -> Document | None:
        """A document as it is now."""
        ...

    def counters(self, subscription: str) -> dict[str, int]:
        """The exact counters of a subscription."""
        ...

    def audits(self, subscription: str, *, limit: int = 100) -> Sequence[AuditRecord]:
        """Messages that were given up, the latest first."""
        ...

    def forget(self, subscription: str, message_ids: Sequence[str]) -> int:
        """Remove marks, so that these messages are handled again; answers how many there were."""
        ...

    def prune(self, kept: Micros) -> int:
        """Remove marks and audit records older than so many microseconds; answers how many."""
        ...

    def check(self) -> None:
        """Raise when the sink cannot be used now."""
        ...

    def close(self) -> None:
        """Release what the sink holds; idempotent."""
        ...


def is_conflict(error: BaseException) -> bool:
    """Whether a transaction lost against others (a deadlock) and is to be repeated as a whole."""
    state = getattr(error, "sqlstate", None)
    return isinstance(state, str) and state.startswith("40")


def doc_path(*parts: object) -> str:
    """A document's path of parts; a part with a slash, or an empty one, is refused."""
    texts = [str(part) for part in parts]
    for text in texts:
        if "/" in text or text in ("", ".", ".."):
            raise InvalidInput("path", "parts that are neither empty nor contain a slash", text)
    return check_path("/".join(texts))


def check_path(path: object) -> str:
    """The path, or InvalidInput."""
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
    """The number that a version is compared by."""
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
