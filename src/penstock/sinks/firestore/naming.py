"""Names in Firestore: addresses, document paths and ids of the sink's own documents. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from penstock.core.errors import InvalidInput, SettingsError
from penstock.sinks.protocol import check_path

EXPECTED: Final = "firestore:PROJECT or firestore:PROJECT/DATABASE"
DATABASE_DEFAULT: Final = "(default)"
ID_BYTES_MAX: Final = 1_400
"""Maximum length of an id in bytes; Firestore allows 1,500."""

_ADDRESS: Final = re.compile(
    r"firestore:(?P<project>(?:[a-z0-9][a-z0-9.-]{0,80}:)?[a-z][a-z0-9-]{1,61}[a-z0-9])"
    r"(?:/(?P<database>\(default\)|[a-z][a-z0-9-]{2,61}[a-z0-9]))?",
    re.ASCII,
)
_RESERVED: Final = re.compile(r"\.{1,2}|__.*__", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirestoreAddress:
    """A database of a project."""

    project: str
    database: str = DATABASE_DEFAULT


def parse_firestore(url: str) -> FirestoreAddress:
    """Parse the URL of a sink."""
    found = _ADDRESS.fullmatch(url)
    if found is None:
        raise SettingsError("sink", EXPECTED, url)
    return FirestoreAddress(
        project=found["project"], database=found["database"] or DATABASE_DEFAULT
    )


def check_document_path(path: str) -> str:
    """Return the path of a document; raise InvalidInput if Firestore does not allow it."""
    parts = check_path(path).split("/")
    if len(parts) % 2 or any(_RESERVED.fullmatch(part) for part in parts):
        expected = 'a path of collections and documents such as "collection/id"'
        raise InvalidInput("path", expected, path)
    return path


def own_id(*parts: str) -> str:
    """Return the id of one of the sink's own documents, derived from the given parts."""
    text = ":".join(quote(part, safe="", errors="surrogatepass") for part in parts)
    if len(text) <= ID_BYTES_MAX and not _RESERVED.fullmatch(text):
        return text
    return "sha256-" + hashlib.sha256(text.encode()).hexdigest()
