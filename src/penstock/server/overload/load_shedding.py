"""Load shedding: under overload, requests are rejected before an ASGI request is created.

The protocol calls this as soon as the headers of a request are complete. The response is the 503
that `middleware` would send, built from prepared bytes, and it is counted and logged like any
other. It takes a fraction of the event loop's time, which leaves more for the requests that are
served. Unusual requests, and those that the worker fast path serves, are passed on to `middleware`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from penstock.server.overload.admission import overloaded
from penstock.server.overload.admission_queue import AdmissionQueue
from penstock.server.overload.middleware import (
    COMMON_HEADERS,
    UNBOUNDED_PATHS,
    WORKER_PREFIX,
    AccessRecord,
    request_id_of,
)
from penstock.server.problems import refusal_response

METHODS: Final = frozenset({b"GET", b"POST", b"PATCH", b"DELETE"})
TARGET: Final = re.compile(rb"(/[A-Za-z0-9/._:@~-]*)(?:\?[!-~]*)?")
BODY_MAX: Final = 65_536
"""Maximum size of a request that is rejected here, because it is read completely; `middleware`
handles larger ones.
"""
MARK: Final = b"-" * 64
"""Placeholder of the request id in the prepared response."""


class LoadShedder:
    """Decides whether a request is refused immediately, and builds the response."""

    def __init__(
        self,
        queue: AdmissionQueue,
        record: Callable[[AccessRecord], None],
        caller_of: Callable[[Mapping[bytes, bytes]], str],
        is_worker: Callable[[Mapping[bytes, bytes]], bool],
    ) -> None:
        """Recognize callers by headers: their id, empty if unknown, and fast-path workers."""
        self._queue = queue
        self._is_worker = is_worker
        self._caller_of = caller_of
        self._record = record
        response = refusal_response(overloaded(), MARK.decode())
        before, after = bytes(response.body).split(MARK)
        self._body = (before, after)
        self._length = len(before) + len(after)
        named = [(name, value) for name, value in response.raw_headers if name != b"content-length"]
        self._head = b"".join(b"%s: %s\r\n" % pair for pair in (*named, *COMMON_HEADERS))

    def __call__(
        self, method: bytes, target: bytes, headers: Mapping[bytes, bytes]
    ) -> tuple[bytes, bytes] | None:
        """Return the header lines and body of a refusal; None for a request to serve."""
        if self._queue.has_capacity or method not in METHODS:
            return None
        plain = TARGET.fullmatch(target)
        if plain is None or b"transfer-encoding" in headers or b"expect" in headers:
            return None
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 6 or int(length) > BODY_MAX:
            return None
        path = plain[1].decode()
        if path in UNBOUNDED_PATHS:
            return None
        if method == b"POST" and path.startswith(WORKER_PREFIX) and self._is_worker(headers):
            return None
        if not self._queue.refuses(self._caller_of(headers)):
            return None
        access = AccessRecord(request_id_of(headers), method.decode(), path, status=503)
        self._record(access)
        mark = access.request_id.encode()
        lines = b"%sx-request-id: %s\r\ncontent-length: %d\r\n"
        before, after = self._body
        return lines % (self._head, mark, self._length + len(mark)), before + mark + after
