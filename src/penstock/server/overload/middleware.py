"""The outermost layer: request ids, bounds on what comes in, refusal when too much comes in.

Pure ASGI, so that a refused request costs little. `line` says who is worked on, who waits and who
is answered 503 (in the fast lane, whose calls are saved together, so is whoever comes when
`lane_inflight` are there). A body is bounded in size and in the time it may take. Each request
leaves one access record.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.clock import Clock
from penstock.core.ids import new_correlation_id
from penstock.core.redact import redact_text
from penstock.server.overload.admission_queue import PATIENCE_SECONDS, Line
from penstock.server.problems import Refused, refusal

BODY_SECONDS: Final = 10.0
BULK: Final = "/api/v1/pipeline-configs/bulk"
PUSHED: Final = "/pubsub/push/"
LARGE: Final = (BULK, PUSHED)
"""A pushed message may have 10 MB, and is in base64; its token is checked before it is read."""
BULK_TIMES: Final = 16
"""How much larger than others, and longer under way, the body of a bulk call may be."""
CLOSE: Final = {"Connection": "close"}
"""Whoever still sends a body that nobody wants is not read to the end."""
REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
PATIENT: Final = {"/api/v1/scheduler/claim-runs": 2.0}
"""A fleet of workers that starts claims all at once, and would rather wait than be refused."""
WORKER_PREFIX: Final = "/api/v1/pipeline-runs/"
"""Paths of worker calls, which the fast path may serve."""
ALWAYS: Final = frozenset({"/healthz", "/readyz"})
"""Answered even when overloaded: an overloaded process is alive."""
EVERY_ANSWER: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


@dataclass(slots=True)
class Access:
    """What one request was, for the access log and the meters; filled in on the way."""

    request_id: str
    method: str
    path: str
    route: str = ""
    status: int = 0
    seconds: float = 0.0
    key: str | None = None
    customer: str | None = None
    is_poll: bool = False
    """Waits for work on purpose: its duration says nothing about the server."""


class FastLane(Protocol):
    """Serves some requests past the app."""

    def entry(self, scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[str, str] | None:
        """What a request asks, when it is for the lane."""
        ...

    async def serve(
        self,
        entry: tuple[str, str],
        headers: Mapping[bytes, bytes],
        receive: Receive,
        access: Access,
    ) -> Response:
        """Answer it."""
        ...


class Guard:
    """Wraps the app."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        clock: Clock,
        line: Line,
        lane_inflight: int,
        body_max: int,
        record: Callable[[Access], None],
    ) -> None:
        self._app = app
        self._clock = clock
        self._line = line
        self._lane_inflight = lane_inflight
        self._body_max = body_max
        self._record = record
        self.in_lane = 0
        self.lane: FastLane | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request within the bounds."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        access = Access(request_id_of(headers), scope["method"], scope["path"])
        scope["penstock.request_id"] = access.request_id
        scope["penstock.access"] = access
        scope["penstock.guard"] = self
        started = self._clock.monotonic()
        answer = _Answer(send, access)
        is_large = access.method == "POST" and access.path.startswith(LARGE)
        times = BULK_TIMES if is_large else 1
        inbox = _Inbox(receive, self._body_max * times, BODY_SECONDS * times, self._clock)
        try:
            _check_headers(headers, self._body_max * times)
            entry = None if self.lane is None else self.lane.entry(scope, headers)
            if self.lane is not None and entry is not None:
                if self.in_lane >= self._lane_inflight:
                    raise overloaded()
                self.in_lane += 1
                try:
                    made = await self.lane.serve(entry, headers, inbox.receive, access)
                    await made(scope, receive, answer.send)
                finally:
                    self.in_lane -= 1
                return
            if access.path in ALWAYS:
                await self._app(scope, inbox.receive, answer.send)
                return
            if not await self._line.enter(PATIENT.get(access.path, PATIENCE_SECONDS)):
                raise overloaded()
            try:
                await self._app(scope, inbox.receive, answer.send)
            finally:
                self._line.leave()
        except Refused as error:
            if answer.has_begun:
                raise
            await refusal(error, access.request_id)(scope, receive, answer.send)
        finally:
            access.seconds = self._clock.monotonic() - started
            self._record(access)

    @property
    def active(self) -> int:
        """How many requests are worked on now; those that wait are not."""
        return self._line.active

    def step_aside(self) -> None:
        """A request begins to wait on purpose: it no longer counts as work."""
        self._line.leave()

    def step_back(self) -> None:
        """A request that waited goes on."""
        self._line.come_back()


class _Answer:
    """Adds the request id to the answer and notes its status."""

    def __init__(self, send: Send, access: Access) -> None:
        self._send = send
        self._access = access
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """Pass a message of the answer on."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            self._access.status = message["status"]
            message["headers"] = [
                *message.get("headers", []),
                (b"x-request-id", self._access.request_id.encode()),
                *EVERY_ANSWER,
            ]
        await self._send(message)


class _Inbox:
    """Reads a body within its bounds."""

    def __init__(self, receive: Receive, body_max: int, seconds: float, clock: Clock) -> None:
        self._receive = receive
        self._left = body_max
        self._seconds = seconds
        self._clock = clock
        self._deadline = clock.monotonic() + seconds
        self._is_whole = False

    async def receive(self) -> Message:
        """The next part of the body; once it is whole, only the end of the connection."""
        if self._is_whole:
            return await self._receive()
        try:
            left = max(0.001, self._deadline - self._clock.monotonic())
            async with asyncio.timeout(left):
                message = await self._receive()
        except TimeoutError:
            detail = f"The body did not come within {self._seconds:g} seconds."
            raise Refused(408, detail, headers=CLOSE) from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise _too_large()
            self._is_whole = not message.get("more_body", False)
        return message


def _check_headers(headers: Mapping[bytes, bytes], body_max: int) -> None:
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        raise Refused(400, "Content-Length: expected a number of bytes.")
    if len(length) > 18 or int(length) > body_max:
        # A little too much is read and dropped, so that its sender gets to see the answer.
        raise _too_large(is_read=len(length) <= 18 and int(length) <= BULK_TIMES * body_max)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refused(415, "Content-Encoding: send the body as it is, without compression.")
    if len(headers.get(b"authorization", b"")) > 8192:
        raise Refused(400, "Authorization: expected at most 8,192 bytes.")


def _too_large(*, is_read: bool = False) -> Refused:
    headers = {} if is_read else CLOSE
    return Refused(413, "The body is larger than this server takes.", headers=headers)


def overloaded() -> Refused:
    """There is no room: nothing was done."""
    detail = "Too many requests are being served: try again shortly."
    return Refused(503, detail, headers={"Retry-After": "1"})


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    """The id a caller gave its request, when it can be one; else a new one."""
    given = headers.get(b"x-request-id", b"")
    text = given.decode() if REQUEST_ID.fullmatch(given) else ""
    # It is logged and told back: a key that went into the wrong header is not.
    return text if text and redact_text(text) == text else new_correlation_id()
