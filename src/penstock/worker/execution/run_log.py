"""The log entries of one execution, until they are stored.

Every record of standard logging that the processor's thread or task creates is kept, and all
entries of `run.log` at INFO and above, regardless of logger levels. A record factory finds the
current run, as tracing libraries do: a handler on the root logger would change where other entries
go. The first ENTRIES_HEAD entries are stored as they arrive. Of the others, the last ENTRIES_TAIL
are stored with each heartbeat, in place of those before; the entries in between are counted.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Protocol

from penstock.core.clock import Clock
from penstock.core.current_run import CURRENT_RUN
from penstock.runs.store.logs import ENTRY_MAX, LogEntryRow, left_out, log_entry

ENTRIES_HEAD: Final = 500
ENTRIES_TAIL: Final = 500


class RunLog:
    """Entries of one execution. `add` from any thread; `take` from one at a time."""

    __slots__ = ("_clock", "_count", "_head", "_lock", "_seen", "_tail", "part")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._head: list[LogEntryRow] = []
        self._tail: deque[LogEntryRow] = deque(maxlen=ENTRIES_TAIL)
        self._count = 0
        self._seen = 0
        self.part = 0
        """Number of batches of first entries taken so far."""

    def add(self, level: int, logger: str, message: str, limit: int = ENTRY_MAX) -> None:
        """Add an entry; secrets are masked here, where their values are known."""
        name = logging.getLevelName(level)
        self.extend([log_entry(self._clock.now(), name, logger, message, limit)])

    def extend(self, entries: list[LogEntryRow]) -> None:
        """Add entries that were prepared before, in this process or in a child process."""
        with self._lock:
            for entry in entries:
                (self._head if self._count < ENTRIES_HEAD else self._tail).append(entry)
                self._count += 1

    def take(self) -> list[LogEntryRow]:
        """Return the first entries that have not been taken yet."""
        with self._lock:
            entries, self._head = self._head, []
        return entries

    def tail(self) -> list[LogEntryRow]:
        """Return the last entries, after a note about those between; empty if none is new."""
        with self._lock:
            if not self._tail or self._seen == self._count:
                return []
            self._seen = self._count
            missing = self._count - ENTRIES_HEAD - len(self._tail)
            note = [left_out(self._tail[0].at, missing)] if missing else []
            return [*note, *self._tail]

    def drain(self) -> list[LogEntryRow]:
        """Return all entries that are not taken yet and forget them, as a child process does."""
        entries = [*self.take(), *self.tail()]
        with self._lock:
            self._tail.clear()
            self._count = 0
        return entries


class KeepsLog(Protocol):
    """The part of a run's context that entries are added to."""

    @property
    def kept_log(self) -> RunLog:
        """Entries of the execution."""
        ...


class RunLogger(logging.LoggerAdapter[logging.Logger]):
    """Logger of one run: adds the run's ids to every record and keeps the entries with the run."""

    def __init__(self, run: KeepsLog, ids: Mapping[str, object]) -> None:
        super().__init__(logging.getLogger("penstock.run"), ids)
        self._run = run

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log an entry, from the processor's thread or another one."""
        if not self.isEnabledFor(level):
            if level >= logging.INFO:
                record = logging.LogRecord(self.logger.name, level, "", 0, msg, args, None)
                _add(self._run.kept_log, record)
            return
        before = CURRENT_RUN.set(self._run)  # type: ignore[arg-type]
        try:
            level_up = {"stacklevel": kwargs.get("stacklevel", 1) + 1}
            super().log(level, msg, *args, **{**kwargs, **level_up})
        finally:
            CURRENT_RUN.reset(before)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the run's ids; fields that the caller passes as `extra` are kept."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


def capture_records() -> None:
    """Keep the records that processors create in this process; calling it again changes nothing."""
    earlier = logging.getLogRecordFactory()
    if getattr(earlier, "keeps_entries_of_runs", False):
        return

    def create(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = earlier(*args, **kwargs)
        entries = getattr(CURRENT_RUN.get(), "kept_log", None)
        if isinstance(entries, RunLog):
            _add(entries, record)
        return record

    create.keeps_entries_of_runs = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(create)


def _add(entries: RunLog, record: logging.LogRecord) -> None:
    """Add a record to a run's entries; a record that cannot be formatted must not fail the run."""
    try:
        text, limit = record.getMessage(), ENTRY_MAX
        if record.exc_info and record.exc_info[1] is not None:
            text = "\n".join([text, "".join(traceback.format_exception(record.exc_info[1]))])
            limit = 4 * ENTRY_MAX
    except Exception:
        text, limit = f"(an entry that cannot be formatted: {record.msg!r:.200})", ENTRY_MAX
    entries.add(record.levelno, record.name, text, limit)
