"""Fingerprints of error texts: equal for errors that differ only in numbers and ids. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_TEXT: Final = re.compile(r'"(?:message|error|reason|text)"\s*:\s*"((?:[^"\\]|\\.)*)')
_VARIABLE: Final = re.compile(
    r"""'[^']*'|"[^"]*"|`[^`]*`        # what is quoted
    |\b[a-z]{1,8}_[0-9a-z]{6,}\b       # public ids
    |\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b
    |\b0[xX][0-9a-fA-F]+\b
    |\b(?=[a-zA-Z]*\d)[0-9a-fA-F]{12,}\b
    |\d+(?:[.,:]\d+)*""",
    re.VERBOSE,
)
TEXT_CHARS: Final = 300
"""Maximum number of characters of an error that are read."""


def error_text(details: str | None) -> str:
    """Return the text of stored error details (JSON, possibly truncated), or their beginning."""
    if not details:
        return ""
    found = _TEXT.search(details)
    text = details if found is None else found[1].replace('\\"', '"').replace("\\n", " ")
    return " ".join(text.split())[:TEXT_CHARS]


def fingerprint(error_type: str, text: str) -> str:
    """Return 12 characters that identify an error type and its text without the variable parts."""
    masked = _VARIABLE.sub("#", text)
    return hashlib.sha256(f"{error_type}\n{masked}".encode()).hexdigest()[:12]
