"""What a request costs the event loop besides its bytes, and headers that have two meanings.

The parser calls back for every header, chunk and trailer. A request in tiny pieces costs a hundred
times the time of its bytes, so the number of pieces is bounded. Used by `protocol`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

HEAD_MAX: Final = 65_536
HEADERS_MAX: Final = 100
"""Headers of a request, and trailers."""
PARTS_FREE: Final = 256
PART_BYTES: Final = 64
"""Bytes that the parts of a body must have on average, beyond the first ones."""
FRAMING_MAX: Final = 65_536
"""Bytes of trailers and chunk extensions beyond the size of the body."""
REST_MAX: Final = 65_536
"""Bytes of a chunked body that are read after the request was answered."""
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
"""Headers of which a proxy may read the first and the server the last, or the reverse."""


class HeadersTooLong(Exception):
    """The headers of a request are too long or too many."""


class WastefulBody(Exception):
    """The body of a request costs far more time than its size explains."""


class AmbiguousRequest(Exception):
    """A proxy may read the request differently, so it is not served."""


class MessageCost:
    """Counts what one request consists of."""

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
        """End the headers; what follows are trailers."""
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

        `is_rest` says that they belong to a chunked body whose request was answered.
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
