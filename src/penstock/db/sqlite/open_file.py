"""Check that an open database file is still at its path.

SQLite keeps writing to a file that was removed or replaced: every commit succeeds, and all of them
are lost when the process ends.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.core.errors import StoreUnavailable


class OpenFile:
    """The identity of a database file, as it was when it was opened."""

    def __init__(self, path: Path, *, is_memory: bool) -> None:
        self._path = path
        self._opened = None if is_memory else _identity(path)

    def check(self) -> None:
        """Raise StoreUnavailable if the file was removed or replaced."""
        if self._opened is not None and _identity(self._path) != self._opened:
            raise StoreUnavailable(
                f"{self._path} was removed or replaced while it was open: put it back, or restart "
                f"process {os.getpid()} to use the new file"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if it does not exist."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
