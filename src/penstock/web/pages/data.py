"""Foreign data as text: JSON indented, bytes decoded, anything else as it is."""

from __future__ import annotations

import json
from typing import Any


def as_text(value: Any) -> str:
    """Return data as a text that a person can read."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return bytes_text(value)
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def bytes_text(value: bytes) -> str:
    """Return the content of a message: JSON indented, else text, else a note."""
    try:
        decoded = value.decode("utf-8")
    except UnicodeDecodeError:
        return f"{len(value):,} bytes that are not text"
    try:
        return json.dumps(json.loads(decoded), indent=2, ensure_ascii=False)
    except ValueError:
        return decoded
