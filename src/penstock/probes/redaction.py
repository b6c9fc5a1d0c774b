"""Redaction of error texts and addresses for display: no password, one line, bounded length.

Database libraries often quote the address they were given, so every text that leaves this package
passes through here.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.db.postgres_url import parse_postgres_url

TEXT_MAX: Final = 500
HIDDEN: Final = "***"

READ_MAX: Final = 20 * TEXT_MAX
"""Maximum number of characters that are read; far more than are shown, so that no secret is split.
"""

# Every repetition is bounded: error texts contain names and addresses that users choose.
_IN_URL: Final = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^:/@\s]{0,256}):\S{0,512}@")
_IN_WORDS: Final = re.compile(
    r"((?<!\w)\w{0,40}?passw(?:or)?d\w{0,40}\s{0,8}[=:]\s{0,8})"
    r"('(?:[^'\\]|\\.){0,512}'|[^\s&]{1,512})",
    re.I,
)


def redacted(text: str, url: str = "") -> str:
    """Return a text without the password of `url` and without anything that looks like one."""
    text = text[:READ_MAX]
    for secret in _secrets(url):
        text = text.replace(secret, HIDDEN)
    text = _IN_URL.sub(rf"\1:{HIDDEN}@", text)
    text = " ".join(_IN_WORDS.sub(rf"\1{HIDDEN}", text).split())
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def _secrets(url: str) -> list[str]:
    """Return the password of an address as written and percent-decoded, longest first."""
    return list(parse_postgres_url(url).secrets) if "://" in url else []
