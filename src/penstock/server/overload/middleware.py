"""The outermost middleware: request ids, bounds on request bodies, the worker fast path.

Pure ASGI, so that rejecting a request is cheap. It creates a `RequestAdmission` for every request,
which routes enter when the body has arrived and which ends before the response is sent. Requests of
the worker fast path, which are committed in groups, are refused when `fast_path_max` of them are
active. A body is bounded in size and in transfer time, and all bodies of a caller together in size.
Each request produces one access record.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.clock import Clock
from penstock.core.ids import new_correlation_id
from penstock.core.redact import redact_text
from penstock.core.tracing.trace_context import (
    CURRENT_TRACE,
    TraceContext,
    parse_traceparent,
)
from penstock.server.overload.admission import Admissions, RequestAdmission, overloaded
from penstock.server.overload.admission_queue import OVERLOAD_WAIT_SECONDS
from penstock.server.problems import Refused, refusal_response

BODY_SECONDS: Final = 10.0
BULK: Final = "/api/v1/pipeline-configs/bulk"
PUSHED: Final = "/pubsub/push/"
LARGE: Final = (BULK, PUSHED)
"""A pushed message may have 10 MB in base64; its token is verified before the body is read."""
BULK_FACTOR: Final = 16
"""Factor by which the body of a bulk request may be larger, and take longer, than others."""
FREE_BODY_BYTES: Final = 65_536
"""Size up to which a body does not count against the caller's share."""
CALLER_BODIES: Final = 2
"""Number of bodies of the maximum size that one caller may send at the same time."""
CLOSE: Final = {"Connection": "close"}
"""Header sent with a rejection if the rest of the body will not be read."""
REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
MAX_WAIT_SECONDS_BY_PATH: Final = {"/api/v1/scheduler/claim-runs": 2.0}
"""Seconds that a request may queue, by path. Claims may wait longer: workers send them on start."""
WORKER_PREFIX: Final = "/api/v1/pipeline-runs/"
"""Paths of worker calls, which the fast path may serve."""
UNBOUNDED_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Paths that are served even under overload, because an overloaded process is alive."""
COMMON_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


@dataclass(slots=True)
class AccessRecord:
    """A record of one request for the access log and the metrics; filled in while it is served."""

    request_id: str
    method: str
    path: str
    route: str = ""
    status: int = 0
    seconds: float = 0.0
    key: str | None = None
    customer: str | None = None
    trace: TraceContext | None = None
    """Trace context in the request."""
    is_poll: bool = False
    """Whether it is a long poll, whose duration does not measure the server's load."""


class FastPath(Protocol):
    """Serves some requests without the app."""

    def match(self, scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[str, str] | None:
        """Return (verb, run id) of a request that the fast path serves, else None."""
        ...

    async def serve(
        self,
        entry: tuple[str, str],
        headers: Mapping[bytes, bytes],
        body: bytes,
        access: AccessRecord,
    ) -> Response:
        """Serve the request, whose body has arrived."""
        ...


class RequestMiddleware:
    """ASGI middleware around the app."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        clock: Clock,
        admissions: Admissions,
        fast_path_max: int,
        body_max: int,
        record: Callable[[AccessRecord], None],
    ) -> None:
        self._app = app
        self._clock = clock
        self._admissions = admissions
        self._fast_path_max = fast_path_max
        self._body_max = body_max
        self._bodies = _BodyShares(CALLER_BODIES * BULK_FACTOR * body_max)
        self._record = record
        self.in_fast_path = 0
        self.fast_path: FastPath | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request within the bounds, or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        access = AccessRecord(request_id_of(headers), scope["method"], scope["path"])
        given = headers.get(b"traceparent")
        if given is not None:
            access.trace = parse_traceparent(given.decode("latin-1"))
            CURRENT_TRACE.set(access.trace)  # in the task of this request
        patience = MAX_WAIT_SECONDS_BY_PATH.get(access.path, OVERLOAD_WAIT_SECONDS)
        admission = RequestAdmission(self._admissions, patience, scope.get("penstock.connection"))
        scope["penstock.request_id"] = access.request_id
        scope["penstock.access"] = access
        scope["penstock.admission"] = admission
        started = self._clock.monotonic()

        def respond(size: int) -> None:
            admission.respond(size)
            access.seconds = self._clock.monotonic() - started

        response = _ResponseSender(send, access, respond)
        is_large = access.method == "POST" and access.path.startswith(LARGE)
        times = BULK_FACTOR if is_large else 1
        body = _BodyReader(
            receive,
            self._body_max * times,
            BODY_SECONDS * times,
            self._clock,
            lambda size: self._bodies.take(access, size),
        )
        try:
            _check_path(scope)
            _check_headers(headers, self._body_max * times)
            entry = None if self.fast_path is None else self.fast_path.match(scope, headers)
            if entry is None:
                await self._app(scope, body.receive, response.send)
            else:
                prepared = await self._serve_fast(entry, headers, body, access)
                admission.identify(access.key or "")
                await prepared(scope, receive, response.send)
        except Refused as error:
            if response.has_begun:
                raise
            await refusal_response(error, access.request_id)(scope, receive, response.send)
        finally:
            admission.respond()
            self._bodies.release(access, body.counted)
            self._record(access)

    @property
    def active(self) -> int:
        """Number of requests in progress; queued and waiting requests do not count."""
        return self._admissions.queue.active

    async def _serve_fast(
        self,
        entry: tuple[str, str],
        headers: Mapping[bytes, bytes],
        body: _BodyReader,
        access: AccessRecord,
    ) -> Response:
        """Serve a request of the fast path; it counts as active after its body has arrived."""
        assert self.fast_path is not None
        whole = await body.read()
        if self.in_fast_path >= self._fast_path_max:
            raise overloaded()
        self.in_fast_path += 1
        try:
            return await self.fast_path.serve(entry, headers, whole, access)
        finally:
            self.in_fast_path -= 1


class _ResponseSender:
    """Adds the request id to the response, records its status and calls `respond` before it."""

    def __init__(self, send: Send, access: AccessRecord, respond: Callable[[int], None]) -> None:
        self._send = send
        self._access = access
        self._respond = respond
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """Send one message of the response."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            self._access.status = message["status"]
            own = message.get("headers", [])
            names = {name for name, _ in own}
            message["headers"] = [
                *own,
                (b"x-request-id", self._access.request_id.encode()),
                *(header for header in COMMON_HEADERS if header[0] not in names),
            ]
        # Hold no capacity while sending: the client may read slowly, or not at all.
        self._respond(len(message.get("body", b"")))
        await self._send(message)


class _BodyShares:
    """Bytes of the large bodies that each caller is sending, so that no caller fills the memory."""

    def __init__(self, caller_max: int) -> None:
        self._caller_max = caller_max
        self._taken: Counter[str] = Counter()

    def take(self, access: AccessRecord, size: int) -> None:
        """Count received bytes; raise Refused if the caller has too many in transfer."""
        caller = access.key or ""
        if self._taken[caller] + size > self._caller_max:
            detail = "The caller is sending too many large bodies: send fewer at the same time."
            raise Refused(429, detail, headers={"Retry-After": "1", **CLOSE})
        self._taken[caller] += size

    def release(self, access: AccessRecord, size: int) -> None:
        """Stop counting the bytes of a request that has ended."""
        caller = access.key or ""
        self._taken[caller] -= size
        if self._taken[caller] <= 0:
            del self._taken[caller]


class _BodyReader:
    """Reads a request body within bounds of size and time."""

    def __init__(
        self,
        receive: Receive,
        body_max: int,
        seconds: float,
        clock: Clock,
        count: Callable[[int], None],
    ) -> None:
        self._receive = receive
        self._left = body_max
        self._free = FREE_BODY_BYTES
        self._seconds = seconds
        self._clock = clock
        self._count = count
        self._deadline = clock.monotonic() + seconds
        self._is_whole = False
        self.counted = 0

    async def read(self) -> bytes:
        """Return the whole body."""
        parts = []
        while not self._is_whole:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Refused(408, "The client disconnected before the request body was complete.")
            parts.append(message.get("body", b""))
        return b"".join(parts)

    async def receive(self) -> Message:
        """Return the next part of the body; after the last part, only the disconnect message."""
        if self._is_whole:
            return await self._receive()
        try:
            left = max(0.001, self._deadline - self._clock.monotonic())
            async with asyncio.timeout(left):
                message = await self._receive()
        except TimeoutError:
            detail = f"The request body did not arrive within {self._seconds:g} seconds."
            raise Refused(408, detail, headers=CLOSE) from None
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self._left -= size
            if self._left < 0:
                raise _too_large()
            if size > self._free:
                self._count(size - self._free)
                self.counted += size - self._free
            self._free = max(0, self._free - size)
            self._is_whole = not message.get("more_body", False)
        return message


def _check_path(scope: Scope) -> None:
    # No resource has a name with a NUL, and PostgreSQL stores no such text. An encoded slash would
    # be read as a separator here, but not by a proxy that decides by the path who may call.
    if "\0" in scope["path"] or b"%2f" in scope.get("raw_path", b"").lower():
        raise Refused(404, "No route matches this path.")


def _check_headers(headers: Mapping[bytes, bytes], body_max: int) -> None:
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        raise Refused(400, "Content-Length: expected a number of bytes.")
    if len(length) > 18 or int(length) > body_max:
        # A moderately large body is read and dropped, so that its sender receives the response.
        raise _too_large(is_read=len(length) <= 18 and int(length) <= BULK_FACTOR * body_max)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refused(415, "Content-Encoding: expected an uncompressed body.")
    if len(headers.get(b"authorization", b"")) > 8192:
        raise Refused(400, "Authorization: expected at most 8,192 bytes.")


def _too_large(*, is_read: bool = False) -> Refused:
    headers = {} if is_read else CLOSE
    return Refused(413, "The request body exceeds the server's limit.", headers=headers)


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the request id from the header if it is valid, else a new one."""
    given = headers.get(b"x-request-id", b"")
    text = given.decode() if REQUEST_ID.fullmatch(given) else ""
    # The id is logged and returned, so an API key sent in the wrong header must not become one.
    return text if text and redact_text(text) == text else new_correlation_id()
