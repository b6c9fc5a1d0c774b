"""Explanation of why a SQLite file cannot be opened or written, with a fix.

SQLite reports "unable to open database file" for most causes, so this module inspects the file and
its folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_ELSEWHERE: Final = "or use another file with --database-url sqlite:PATH."
FULL: Final = "Free up space on the disk that holds the database; nothing was lost."
READ_ONLY: Final = "Make the database file and its folder writable for this user."


def explain_open_failure(path: Path, text: str) -> str:
    """Return a sentence for SQLite's error `text` when it opened `path`."""
    folder = path.resolve().parent
    if path.is_dir():
        return f"{path} is a folder. Specify a file in it with --database-url sqlite:PATH."
    if "not a database" in text or "malformed" in text:
        return f"{path} is not a SQLite database ({text}). Restore it from a backup, {_ELSEWHERE}"
    if "full" in text:
        return f"{path}: the disk is full. Free up space, {_ELSEWHERE}"
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return f"{path}: this user cannot read and write the file. Change its mode, {_ELSEWHERE}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder}: this user cannot write to the folder. Change its mode, {_ELSEWHERE}"
    return f"cannot open {path}: {text}. Check that this user can write to its folder, {_ELSEWHERE}"
