"""A spool on disk: events that could not be delivered, in order, until they are.

The folder has three files. `events` is a log of lines, each with a checksum; `delivered` is the
number of its bytes that were delivered; `rejected` keeps the events that the server rejected
permanently. An event is on disk (fsync) before `append` returns. A kill at any point leaves at most
an incomplete event at the end, whose `append` has not returned and which the next process removes,
or an event that was delivered but not yet marked: it is sent again under the same ids, so the
server stores it once. `lock` admits one process at a time.

A write that fails (a full disk) is cut off again. After a failed fsync it is unknown which bytes
are on disk, and a second fsync would not tell: the next `append` first writes the log to a new
file, and raises if it cannot.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.core.errors import Conflict, PenstockError

BYTES_MAX: Final = 256 * 1024 * 1024
MARK_EVERY: Final = 50
EVENTS, DELIVERED, REJECTED, LOCK = "events", "delivered", "rejected", "lock"
LOST_WRITE: Final = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT})
"""Errors of an fsync that mean a lost write; some file systems cannot sync a folder at all."""


class SpoolFull(PenstockError):
    """The spool has reached its maximum size; the event was not accepted."""

    code = "spool.full"
    exit_code = 5


class SpooledEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that waits for delivery."""

    event_id: str
    """Id chosen when it was spooled; the ids of its messages, run or report derive from it."""
    kind: str
    """publish, submit, report or complete."""
    spooled_at: int
    """When it was spooled, in microseconds."""
    arguments: dict[str, Any]
    """Arguments of the call, as JSON."""
    error: str | None = None
    """Why the server rejected it; only in the list of rejected events."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SpooledEvent).decode


class Spool:
    """The spool of one process; not thread-safe."""

    def __init__(self, folder: Path, *, bytes_max: int = BYTES_MAX) -> None:
        """Open or create a spool. Raise Conflict if another process has it open."""
        self.folder = folder
        self._bytes_max = bytes_max
        self._unmarked = 0
        self._is_sound = True
        """Whether the log on disk is known to have exactly the events accepted here."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise Conflict(
                f"another process uses the spool {folder}. Give each process its own folder."
            ) from None
        try:
            self._size = _whole_size(_content(folder / EVENTS), folder)
        except Conflict:
            os.close(self._lock)
            raise
        self._log = os.open(folder / EVENTS, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.ftruncate(self._log, self._size)
        self._done = min(_delivered(folder), self._size)
        if _delivered(folder) > self._size:  # killed while the empty log was truncated
            self._done = 0
            self._mark(0)
        _sync_folder(folder)

    def __len__(self) -> int:
        return sum(1 for _ in self.waiting())

    @property
    def is_empty(self) -> bool:
        """Whether every event was delivered."""
        return self._done >= self._size

    def append(self, event: SpooledEvent) -> None:
        """Store an event durably. Raise SpoolFull if it does not fit, OSError if the disk fails.

        An event whose `append` raised is not in the spool; those before it are, as are later ones.
        """
        if self._lock < 0:
            raise Conflict(f"the spool {self.folder} is closed.")
        line = _line(event)
        is_over = self._size + len(line) > self._bytes_max
        if not self._is_sound or (is_over and self._done):
            self._rewrite()
        if self._size + len(line) > self._bytes_max:
            raise SpoolFull(
                f"the spool {self.folder} holds {len(self):,} events in {self._size:,} bytes, and "
                f"its limit is {self._bytes_max:,}. Restore the server, or raise bytes_max."
            )
        self._is_sound = is_written = False
        try:
            _write(self._log, line)
            is_written = True
            os.fsync(self._log)
            self._size += len(line)
            self._is_sound = True
        finally:
            if not self._is_sound:
                self._is_sound = _cut(self._log, self._size) and not is_written

    def waiting(self) -> Iterator[SpooledEvent]:
        """Return the events that were not delivered, oldest first."""
        yield from _events(_content(self.folder / EVENTS)[self._done : self._size])

    def delivered(self, event: SpooledEvent) -> None:
        """Mark the oldest event as delivered. `checkpoint`, or every 50th call, stores the mark."""
        self._done += len(_line(event))
        self._unmarked += 1
        if self.is_empty or self._unmarked >= MARK_EVERY:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Store what was delivered; the log becomes empty if nothing is left.

        Try again at the next call if the disk fails: until then, a crash repeats deliveries.
        """
        if not self._unmarked:
            return
        with contextlib.suppress(OSError):
            if self.is_empty:
                was_sound, self._is_sound = self._is_sound, False
                os.ftruncate(self._log, 0)
                self._size = self._done = 0
                os.fsync(self._log)
                self._mark(0)
                self._is_sound = was_sound
            else:
                self._mark(self._done)

    def reject(self, event: SpooledEvent, error: Exception) -> None:
        """Move the oldest event to the rejected ones."""
        refused = msgspec.structs.replace(event, error=f"{type(error).__name__}: {error}")
        handle = os.open(self.folder / REJECTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.fstat(handle).st_size
        try:
            _write(handle, _line(refused))
            os.fsync(handle)
        except BaseException:
            _cut(handle, size)
            raise
        finally:
            os.close(handle)
        self.delivered(event)

    def close(self) -> None:
        """Close the files; idempotent."""
        if self._lock >= 0:
            os.close(self._log)
            os.close(self._lock)
            self._log = self._lock = -1

    def _mark(self, done: int) -> None:
        os.close(_replace(self.folder / DELIVERED, str(done).encode()))
        _sync_folder(self.folder)
        self._unmarked = 0

    def _rewrite(self) -> None:
        """Write the waiting events to a new log; delivered ones are sent again if it is
        interrupted.
        """
        rest = _content(self.folder / EVENTS)[self._done : self._size]
        if len(rest) < self._size - self._done:
            raise Conflict(f"the file {EVENTS} of the spool {self.folder} was changed or removed.")
        self._mark(0)
        was_sound, self._is_sound = self._is_sound, False
        try:
            log = _replace(self.folder / EVENTS, rest)
        except OSError:
            self._is_sound = was_sound
            raise
        os.close(self._log)
        self._log, self._size, self._done = log, len(rest), 0
        _sync_folder(self.folder)
        self._is_sound = True


def waiting_events(folder: Path) -> Iterator[SpooledEvent]:
    """Return the undelivered events that can be read, also those after damage; needs no lock."""
    yield from _events(_content(folder / EVENTS)[_delivered(folder) :])


def rejected_events(folder: Path) -> Iterator[SpooledEvent]:
    """Return the events that the server rejected, oldest first."""
    yield from _events(_content(folder / REJECTED))


def _events(text: bytes) -> Iterator[SpooledEvent]:
    for line in text.splitlines(keepends=True):
        found = _parsed(line)
        if found is not None:
            yield found


def _line(event: SpooledEvent) -> bytes:
    text = _encode(event)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> SpooledEvent | None:
    """Return the event of a line; None if the line is incomplete."""
    check, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or check != b"%08x" % zlib.crc32(text):
        return None
    return _decode(text)


def _whole_size(text: bytes, folder: Path) -> int:
    """Return the length of the log without an incomplete last line."""
    size = 0
    for line in text.splitlines(keepends=True):
        if _parsed(line) is None:
            if size + len(line) < len(text):
                raise Conflict(
                    f"the spool {folder} is damaged at byte {size} of its file {EVENTS}. Move the "
                    "folder away and keep it; `penstock spool list` shows what can be read."
                )
            break
        size += len(line)
    return size


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _delivered(folder: Path) -> int:
    text = _content(folder / DELIVERED)
    return int(text) if text.isdigit() else 0


def _write(handle: int, text: bytes) -> None:
    rest = text
    while rest:
        rest = rest[os.write(handle, rest) :]


def _cut(handle: int, size: int) -> bool:
    """Cut a file back to the size that it had; return whether that is on disk."""
    try:
        os.ftruncate(handle, size)
        os.fsync(handle)
    except OSError:
        return False
    return True


def _replace(path: Path, text: bytes) -> int:
    """Replace a file atomically and return it, open; on an error the old one remains."""
    new = path.with_suffix(".new")
    handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        _write(handle, text)
        os.fsync(handle)
        new.replace(path)
    except BaseException:
        os.close(handle)
        with contextlib.suppress(OSError):
            new.unlink()  # on a full disk it would take the space that the log needs
        raise
    return handle


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in LOST_WRITE:
            raise
    finally:
        os.close(handle)
