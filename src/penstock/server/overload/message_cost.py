"""The cost of parsing a request beyond its size, and checks for ambiguous headers.

The parser calls back for every header, chunk and trailer. A request in tiny pieces takes a hundred
times as long to parse, so the number of pieces is bounded. Used by `protocol`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

HEAD_MAX: Final = 65_536
HEADERS_MAX: Final = 100
"""Maximum number of headers and trailers of a request."""
PARTS_FREE: Final = 256
PART_BYTES: Final = 64
"""Minimum average size of the parts of a body, after the first ones."""
FRAMING_MAX: Final = 65_536
"""Maximum size of trailers and chunk extensions in addition to the body."""
REST_MAX: Final = 65_536
"""Maximum size of a chunked body that is read after the response was sent."""
SINGLE: Final = frozenset(
    {
        b"host",
        b"authorization",
        b"x-scheduler-token",
        b"content-type",
        b"content-encoding",
        b"transfer-encoding",
        b"idempotency-key",
    }
)
"""Headers that a proxy and the server may interpret differently if they are repeated."""


class HeadersTooLong(Exception):
    """The headers of a request are too long or too many."""


class WastefulBody(Exception):
    """The body of a request is split into too many small parts."""


class AmbiguousRequest(Exception):
    """A proxy may read the request differently, so it is not served."""


class MessageCost:
    """Counts the parts of one request."""

    __slots__ = ("_framing", "_headers", "_parts", "_rest", "body", "is_in_body")

    def __init__(self) -> None:
        self._headers = self._parts = self._framing = self._rest = 0
        self.body = 0
        """Bytes of the body."""
        self.is_in_body = False

    def add_header(self) -> None:
        """Count a header or trailer; raise HeadersTooLong if there are too many."""
        self._headers += 1
        if self._headers > HEADERS_MAX:
            raise HeadersTooLong

    def begin_body(self) -> None:
        """End the headers; further ones are trailers."""
        self.is_in_body = True
        self._headers = 0

    def add_part(self, size: int) -> None:
        """Count a part of the body; raise WastefulBody if the parts are too small."""
        self._parts += 1
        self.body += size
        if self.body < PART_BYTES * (self._parts - PARTS_FREE):
            raise WastefulBody

    def is_wasteful(self, size: int, of_body: int, *, is_rest: bool) -> bool:
        """Count received bytes, `of_body` of them its own; return whether to read no more.

        `is_rest` says that they belong to a chunked body whose response was sent.
        """
        self._framing += size - of_body
        self._rest += size if is_rest else 0
        return self._framing > FRAMING_MAX + self.body or self._rest > REST_MAX


def check_unambiguous(headers: Sequence[tuple[bytes, bytes]], version: str) -> None:
    """Raise AmbiguousRequest for headers that a proxy may read differently."""
    single = [name for name, _ in headers if name in SINGLE]
    if len(single) > len(set(single)) or (version == "1.1" and b"host" not in single):
        raise AmbiguousRequest
    if dict(headers).get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        raise AmbiguousRequest
