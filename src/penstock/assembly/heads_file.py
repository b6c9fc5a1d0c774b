"""Heads of sealed blocks in a file outside the database, so that a rewritten journal is detected.

One JSON record per line, appended and flushed to disk. The location of the file determines what it
proves: on the database's own machine it detects mistakes; on storage that the database's
administrators cannot change, it also detects tampering by them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from penstock.core.json_profile import parse_json
from penstock.core.records.record import encode_record
from penstock.monitoring.verify.records import SealedBlock

_TAIL = 4_096
"""Bytes at the end of the file that contain its last line."""


class HeadsFile:
    """A file to which heads are appended, block by block."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def last_block(self) -> int:
        """Return the number of the last block in the file; 0 if there is none."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return 0
        whole = [line for line in lines if line.endswith(b"\n") and line.strip()]
        return int(parse_json(whole[-1])["block"]) if whole else 0

    def append(self, blocks: Iterable[SealedBlock]) -> int:
        """Append the heads of blocks, and wait until they are on disk. Return their number."""
        lines = [encode_record(block) + b"\n" for block in blocks]
        if not lines:
            return 0
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with os.fdopen(handle, "r+b", closefd=False) as file:
                file.seek(_after_last_line(file))
                file.truncate()
                file.write(b"".join(lines))
            os.fsync(handle)
        finally:
            os.close(handle)
        return len(lines)


def _after_last_line(file: BinaryIO) -> int:
    """Return where the next line begins; an incomplete line that a crash left behind is
    overwritten.
    """
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _TAIL)
    file.seek(start)
    return start + file.read().rfind(b"\n") + 1
