"""The log lines of one execution, until they are stored.

Every record of standard logging that the processor's thread or task creates is kept, and all lines
of `run.log` from INFO on, whatever the levels of loggers are. A record factory finds the current
run, as tracing libraries do: a handler on the root logger would change where other lines go. The
first LINES_HEAD lines are stored as they come, then only the last LINES_TAIL ones with the end;
the lines between them are counted.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Protocol

import msgspec

from penstock.core.clock import Clock
from penstock.core.current_run import CURRENT_RUN
from penstock.core.redact import redact_text
from penstock.runs.store.logs import LogLineRow

LINES_HEAD: Final = 500
LINES_TAIL: Final = 500
LINE_MAX: Final = 2_000
"""Maximum length of a line in characters; a traceback is one line of up to four times as much."""


class RunLog:
    """Lines of one execution. `add` from any thread; `take` from one at a time."""

    __slots__ = ("_clock", "_count", "_head", "_lock", "_tail", "_taken", "part")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._head: list[LogLineRow] = []
        self._tail: deque[LogLineRow] = deque(maxlen=LINES_TAIL)
        self._count = 0
        self._taken = 0
        self.part = 0
        """Number of batches taken so far."""

    def add(self, level: int, logger: str, message: str, limit: int = LINE_MAX) -> None:
        """Add a line; secrets are masked here, where their values are known."""
        text = _clean(redact_text(message))
        text = text if len(text) <= limit else text[: limit - 1] + "…"
        line = LogLineRow(self._clock.now(), logging.getLevelName(level), logger[:200], text)
        self.extend([line])

    def extend(self, lines: list[LogLineRow]) -> None:
        """Add lines that were prepared before, in this process or in a child process."""
        with self._lock:
            for line in lines:
                (self._head if self._count < LINES_HEAD else self._tail).append(line)
                self._count += 1

    def take(self, *, is_end: bool = False) -> list[LogLineRow]:
        """Return the lines to store now; the last ones only at the end."""
        with self._lock:
            lines, self._head = self._head, []
            self._taken += len(lines)
            if is_end and self._tail:
                left_out = self._count - self._taken - len(self._tail)
                if left_out:
                    note = f"{left_out:,} lines are not kept"
                    lines.append(LogLineRow(self._tail[0].at, "INFO", "penstock", note))
                lines.extend(self._tail)
                self._tail.clear()
                self._taken = self._count
        return lines


class LoggedRun(Protocol):
    """The part of a run's context that lines are added to."""

    @property
    def lines(self) -> RunLog:
        """Lines of the execution."""
        ...


class RunLogger(logging.LoggerAdapter[logging.Logger]):
    """Logger of one run: adds the run's ids to every record and keeps the lines with the run."""

    def __init__(self, run: LoggedRun, ids: Mapping[str, object]) -> None:
        super().__init__(logging.getLogger("penstock.run"), ids)
        self._run = run

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line, from the processor's thread or another one."""
        if not self.isEnabledFor(level):
            if level >= logging.INFO:
                record = logging.LogRecord(self.logger.name, level, "", 0, msg, args, None)
                _add(self._run.lines, record)
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
    if getattr(earlier, "keeps_lines_of_runs", False):
        return

    def create(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = earlier(*args, **kwargs)
        lines = getattr(CURRENT_RUN.get(), "lines", None)
        if isinstance(lines, RunLog):
            _add(lines, record)
        return record

    create.keeps_lines_of_runs = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(create)


def encoded(lines: list[LogLineRow]) -> str:
    """Return lines as they are stored."""
    return msgspec.json.encode(lines).decode()


def _add(lines: RunLog, record: logging.LogRecord) -> None:
    """Add a record to a run's lines; a record that cannot be formatted must not fail the run."""
    try:
        text, limit = record.getMessage(), LINE_MAX
        if record.exc_info and record.exc_info[1] is not None:
            text = "\n".join([text, "".join(traceback.format_exception(record.exc_info[1]))])
            limit = 4 * LINE_MAX
    except Exception:
        text, limit = f"(a line that cannot be formatted: {record.msg!r:.200})", LINE_MAX
    lines.add(record.levelno, record.name, text, limit)


def _clean(text: str) -> str:
    # Lone surrogates cannot be encoded and NUL cannot be stored by PostgreSQL.
    return text.encode("utf-8", "replace").decode().replace("\0", "\\0")
