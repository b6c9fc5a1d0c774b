"""Preallocate SQLite's write-ahead log ahead of the commits, so that commits need not grow it.

A commit that extends a file also has to flush the file system's own journal, which doubles its
duration. After its first checkpoint the log is overwritten in place and no longer grows. Until then
this module extends it with zeros, one megabyte at a time. SQLite ignores them like any bytes after
the last frame: their salt does not match, and a frame of page 0 is never valid. The setting
`sqlite_preallocation` turns it on; decision 0016 says why it is off by default.

Only the holder of SQLite's write lock may extend the log, so `extend` is called inside a
transaction that has begun. SQLite alone decides what is durable, and when.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

HEADER: Final = 32
FRAME_HEADER: Final = 24
CHUNK_FRAMES: Final = 256
"""Number of frames to preallocate at a time."""
FRAMES_MIN: Final = 64
"""Logs with fewer frames are not extended; many processes never write more."""


class WalPreallocation:
    """The log of one database, opened on the first write and closed with the store."""

    def __init__(self, database: Path, page_size: int, most: int) -> None:
        """`most`: the log's number of frames at which SQLite checkpoints it."""
        self._path = f"{database}-wal"
        self._frame = FRAME_HEADER + page_size
        self._most = most
        self._seen = -1
        self._file: int | None = None

    def extend(self) -> None:
        """Extend the log if a commit reached its end. The caller holds the write lock."""
        if not self._most:
            return
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            # Not stat(): reading a file's times makes its next write update them, durably.
            size = os.lseek(self._file, 0, os.SEEK_END)
            if size != self._seen:
                self._seen = self._lengthen(self._file, size) if self._seen >= 0 else size
        except OSError:
            self._most = 0  # disk full or no permission: preallocation is optional

    def close(self) -> None:
        """Close the log file; idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lengthen(self, file: int, size: int) -> int:
        frames, rest = divmod(size - HEADER, self._frame)
        if not FRAMES_MIN <= frames < self._most or rest or not self._is_used(file, size):
            return size
        count = min(CHUNK_FRAMES, self._most - frames)
        return size + os.pwrite(file, bytes(count * self._frame), size)

    def _is_used(self, file: int, size: int) -> bool:
        """Whether the last frame was written by SQLite, not preallocated by another process."""
        return any(os.pread(file, FRAME_HEADER, size - self._frame))
