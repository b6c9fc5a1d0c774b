"""Room in SQLite's write-ahead log: written ahead of the commits, so that they need not grow it.

A commit that makes a file longer has to make the file system's own journal durable as well, which
takes as long again as the commit. A log that has been through its first checkpoint is written over
and over and no longer grows; until then it is lengthened here, by zeros, a megabyte at a time. To
SQLite they are what any log may have behind its last frame: no frame, for its salt is wrong.

Only whoever holds SQLite's write lock may add to the log, and so it is here: `make` is called
inside a transaction that has begun. What is durable, and when, stays SQLite's business.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

HEADER: Final = 32
FRAME_HEADER: Final = 24
CHUNK: Final = 256
"""How many frames of room are made at a time."""
FIRST: Final = 64
"""A log of fewer frames is let alone: many processes never write more."""


class Room:
    """The log of one database, opened when it is first written to and closed with the store."""

    def __init__(self, database: Path, page_size: int, most: int) -> None:
        """`most`: how many frames the log has when it is checkpointed."""
        self._path = f"{database}-wal"
        self._frame = FRAME_HEADER + page_size
        self._most = most
        self._seen = -1
        self._file: int | None = None

    def make(self) -> None:
        """Lengthen the log if a commit reached its end; the caller holds the write lock."""
        if not self._most:
            return
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            # Not by stat: whoever asks for a file's times has its next write change them, durably.
            size = os.lseek(self._file, 0, os.SEEK_END)
            if size != self._seen:
                self._seen = self._lengthen(self._file, size) if self._seen >= 0 else size
        except OSError:
            self._most = 0  # no room on the disk, or no right to it: SQLite does without

    def close(self) -> None:
        """Let go of the log; idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lengthen(self, file: int, size: int) -> int:
        frames, rest = divmod(size - HEADER, self._frame)
        if not FIRST <= frames < self._most or rest or not self._is_used(file, size):
            return size
        count = min(CHUNK, self._most - frames)
        return size + os.pwrite(file, bytes(count * self._frame), size)

    def _is_used(self, file: int, size: int) -> bool:
        """Whether the last frame is one, not room that another process made."""
        return any(os.pread(file, FRAME_HEADER, size - self._frame))
