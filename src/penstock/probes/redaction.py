"""Redaction of error texts and addresses for display: no password, one line, bounded length.

Database libraries often quote the address they were given, so every text that leaves this package
passes through here.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

TEXT_MAX: Final = 500
HIDDEN: Final = "***"

_IN_URL: Final = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://[^:/@\s]*):\S*@")
_IN_WORDS: Final = re.compile(r"(\b\w*passw(?:or)?d\w*\s*[=:]\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", re.I)


def redacted(text: str, url: str = "") -> str:
    """Return a text without the password of `url` and without anything that looks like one."""
    for secret in _secrets(url):
        text = text.replace(secret, HIDDEN)
    text = _IN_URL.sub(rf"\1:{HIDDEN}@", text)
    text = " ".join(_IN_WORDS.sub(rf"\1{HIDDEN}", text).split())
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def _secrets(url: str) -> list[str]:
    """Return the password of an address as written and percent-decoded, longest first."""
    try:
        password = urlsplit(url).password
    except ValueError:  # an address that does not parse is still redacted by pattern
        return []
    if not password:
        return []
    return sorted({password, unquote(password)}, key=len, reverse=True)
