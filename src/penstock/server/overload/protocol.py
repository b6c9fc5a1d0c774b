"""The HTTP protocol: adds bounds on connections and headers that uvicorn lacks.

A request may have at most 100 headers and 64 KB of them, which must arrive within 30 seconds;
trailers of a chunked body are not treated as headers. Every piece that a client sends is a call
on the event loop, so bodies in tiny chunks, long trailers and chunk extensions are rejected, and
little of a body is read after the response was sent. The load-shedding callback is called as soon
as the headers are complete: a request that it refuses is read to its end and gets a response
without an ASGI request. A request without a Host header or with two, or with a body and an Upgrade,
is refused, because a proxy may read it differently. Few requests of a connection may wait. A
connection of an unknown caller has a bounded request rate, and all unknown callers share another.
`connections` limits the number of connections. Used by `server`; independent of the API.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from penstock.server.overload.connections import ConnectionTable, Standing
from penstock.server.overload.message_cost import (
    HEAD_MAX,
    AmbiguousRequest,
    HeadersTooLong,
    MessageCost,
    check_unambiguous,
)

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

EarlyRefusal: TypeAlias = Callable[
    [bytes, bytes, Mapping[bytes, bytes]], tuple[bytes, bytes] | None
]
"""Maps (method, target, headers) to the header lines and body of a 503; None to serve it."""
Recognition: TypeAlias = Callable[[Mapping[bytes, bytes]], Standing]
"""Maps the headers of a request to the standing of its credentials, without a lookup."""

HEAD_SECONDS: Final = 30.0
REFUSAL_DELAY_SECONDS: Final = 0.03
"""Delay of a refusal, because clients that ignore Retry-After and repeat immediately would take the
event loop's time from the requests that are served."""
PIPELINED_MAX: Final = 16
"""Maximum number of requests of a connection that wait for the one in progress; with more it is
closed.
"""
STRANGER_BURST: Final = 10
STRANGER_SECONDS: Final = 1.0
"""Interval between requests of a connection without a known caller, after an initial burst."""
STRANGER_BYTES: Final = 262_144
"""Number of response bytes that count as one more request of an unknown caller."""
PROMPT_PATHS: Final = frozenset({"/healthz", "/readyz"})
VERSIONS: Final = ("1.0", "1.1")
TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 35\r\nconnection: close\r\n\r\n"
    b"The head of the request is too long"
)


def protocol_with(
    refuse_early: EarlyRefusal, connections: ConnectionTable, recognise: Recognition
) -> type[BoundedProtocol]:
    """Return the protocol class with its callbacks and a table of connections."""

    class Guarded(BoundedProtocol):
        _refuse_early = staticmethod(refuse_early)
        _recognise = staticmethod(recognise)
        _table = connections

    return Guarded


class UnsupportedHttpVersion(Exception):
    """The HTTP version of the request is not supported."""


class TooManyPipelined(Exception):
    """The client sent too many requests without waiting for responses."""


class _CountedProtocol(HttpToolsProtocol):
    """One connection of the table."""

    _table: ConnectionTable | None = None
    is_known = False
    unsent_since: float | None = None
    _sent_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that the client has not read."""
        return self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the connection immediately; unsent data is dropped."""
        self.transport.abort()

    def identify(self) -> None:
        """Record that the connection has had a request of a known caller."""
        self.is_known = True

    def count_sent(self, size: int) -> None:
        """Count bytes of a response."""
        self._sent_bytes += size
        if not self.is_known and self._table is not None:
            self._table.count_keyless(size)

    def begin_work(self) -> None:
        """Record that the server works on a request of the connection."""
        if self._table is not None:
            self._table.begin_work(self)

    def end_work(self) -> None:
        """Record that the connection waits for its client again."""
        if self._table is not None:
            self._table.end_work(self)


class BoundedProtocol(_CountedProtocol):
    """One connection; closed if headers, or a refused request, are too long or too slow.

    A refused request is first read (`_refusal` is set), then its response is delayed (`_sending` is
    set too). No other request of the connection is started before the response is sent.
    """

    _refuse_early: EarlyRefusal | None = None
    _recognise: Recognition | None = None
    _paced_until = -math.inf  # the loop's time may be less than the burst after a boot
    _pacing: asyncio.TimerHandle | None = None
    _is_pipelined = True
    _is_upgrade = False
    _running: RequestResponseCycle | None = None
    _in_head = False
    _head_bytes = 0
    _cost = MessageCost()
    _late: asyncio.TimerHandle | None = None
    _refusal: bytes | None = None
    _is_last = False
    _sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; its first request must arrive in time."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_SECONDS, transport.close)
        if self._table is not None:
            self._table.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a closed connection."""
        if self._table is not None:
            self._table.remove(self)
        self._in_time()
        for timer in (self._sending, self._pacing):
            if timer is not None:
                timer.cancel()
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            # With pipelined requests, uvicorn informs only the last one.
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Stop the connection; send a delayed refusal now."""
        if self._sending is not None:
            self._is_last = True
            self._send_refusal()
        elif self._pacing is not None:
            self.transport.close()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes and enforce the bounds on headers."""
        if self._is_upgrade or self.transport.is_closing():
            return
        was_in_head = self._in_head
        cost, before, was_in_body = self._cost, self._cost.body, self._cost.is_in_body
        super().data_received(data)
        if was_in_body and cost.is_in_body and not self.transport.is_closing():
            is_rest = self._is_response_sent and b"transfer-encoding" in dict(self.headers)
            if cost.is_wasteful(len(data), cost.body - before, is_rest=is_rest):
                self.transport.close()
        if self._in_head:
            self._head_bytes = len(data) + (self._head_bytes if was_in_head else 0)
            if self._head_bytes > HEAD_MAX and not self.transport.is_closing():
                self._too_large()
        is_response_sent = self._refusal is not None or self._is_response_sent
        is_read = self._cost.is_in_body and is_response_sent and self._sending is None
        if self._late is None and (self._in_head or is_read) and not self.transport.is_closing():
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Respond to an invalid request with 400, or with 431 if its headers are too long."""
        if bool(self.cycle) and not self.cycle.response_complete and not self._is_body_invalid():
            self.transport.close()  # the client could mistake it for another request's response
        elif self._cost.is_in_body and self._is_response_sent:
            self.transport.close()
        elif self._head_bytes > HEAD_MAX:
            self._too_large()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """Begin a request; send the delayed refusal of an earlier one first."""
        if self._sending is not None:
            self._send_refusal()
        super().on_message_begin()
        self.scope["penstock.connection"] = self  # type: ignore[typeddict-unknown-key]
        self._in_head = True
        self._head_bytes = 0
        self._cost = MessageCost()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header without surrounding whitespace; drop trailers, which arrive later."""
        try:
            self._cost.add_header()
        except HeadersTooLong:
            self._head_bytes = HEAD_MAX + 1
            raise
        if self._in_head:
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """Check the complete headers, and refuse the request under overload."""
        self._in_head = False
        self._cost.begin_body()
        self._in_time()
        if self.parser.get_http_version() not in VERSIONS:
            raise UnsupportedHttpVersion
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_MAX:
            self._head_bytes = size
            raise HeadersTooLong
        self._check_unambiguous()
        if len(self.pipeline) >= PIPELINED_MAX:
            raise TooManyPipelined
        self._refusal = self._refused_early()
        if self._refusal is None:
            self._is_pipelined = False
            super().on_headers_complete()
            self._is_pipelined = True
            if self._is_upgrade:
                self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Continue with the next request; later if the caller is unknown and sends too many."""
        if self.is_known or self.transport.is_closing():
            super().on_response_complete()
            return
        now = self.loop.time()
        start = max(self._paced_until, now - STRANGER_BURST * STRANGER_SECONDS)
        self._paced_until = start + STRANGER_SECONDS * (1 + self._sent_bytes / STRANGER_BYTES)
        self._sent_bytes = 0
        if self._paced_until <= now:
            super().on_response_complete()
            return
        self.flow.pause_reading()
        self._pacing = self.loop.call_at(self._paced_until, self._go_on)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body; drop it for a refused request."""
        self._cost.add_part(len(body))
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Finish a request; schedule the response of a refused one."""
        self._cost.is_in_body = False
        if self._refusal is None:
            self._in_time()
            super().on_message_complete()
            return
        self._in_time()
        self._sending = self.loop.call_later(REFUSAL_DELAY_SECONDS, self._send_refusal)

    def _go_on(self) -> None:
        self._pacing = None
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        start = partial(super()._start_asgi_task, cycle, app)
        standing = self._standing(cycle)
        if self._table is None or standing is Standing.KNOWN:
            start()
        else:
            self._table.pace(standing, self.client[0] if self.client else "", self, start)

    def _standing(self, cycle: RequestResponseCycle) -> Standing:
        """Return the standing of a request; a single health check is always served."""
        is_health = cycle.scope["path"] in PROMPT_PATHS and not self._is_pipelined
        if self.is_known or self._recognise is None or is_health:
            return Standing.KNOWN
        return self._recognise(dict(cycle.scope["headers"]))

    @property
    def _is_response_sent(self) -> bool:
        """Whether the response to the request that arrives was sent."""
        return bool(self.cycle) and self.cycle.scope is self.scope and self.cycle.response_complete

    def _is_body_invalid(self) -> bool:
        """Whether the invalid bytes belong to the body of the only request without a response."""
        cycle = self.cycle
        return cycle is self._running and cycle.more_body and not cycle.response_started

    def _check_unambiguous(self) -> None:
        """Refuse a request that a proxy in front of the server may read differently."""
        check_unambiguous(self.headers, self.parser.get_http_version())
        if self.parser.should_upgrade():
            # The parser ends here: a body would be read as the next request.
            headers = dict(self.headers)
            length = headers.get(b"content-length", b"0")
            if length.strip(b"0") or b"transfer-encoding" in headers:
                raise AmbiguousRequest
            self._is_upgrade = True

    def _refused_early(self) -> bytes | None:
        """Return the response to a request that is refused; None to serve it."""
        is_busy = bool(self.cycle) and not self.cycle.response_complete
        if self._refuse_early is None or is_busy or self.parser.should_upgrade():
            return None
        refusal = self._refuse_early(self.parser.get_method(), self.url, dict(self.headers))
        if refusal is None:
            return None
        is_kept = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self._is_last = not is_kept
        lines, body = refusal
        defaults = b"".join(b"%s: %s\r\n" % pair for pair in self.server_state.default_headers)
        last = b"connection: close\r\n" if self._is_last else b""
        return b"".join((STATUS_LINE[503], defaults, lines, last, b"\r\n", body))

    def _send_refusal(self) -> None:
        """Send the delayed refusal."""
        assert self._refusal is not None
        assert self._sending is not None
        self._sending.cancel()
        refusal, self._refusal, self._sending = self._refusal, None, None
        if self.transport.is_closing():
            return
        self.transport.write(refusal)
        if self._is_last:
            self.transport.close()
        else:
            super().on_response_complete()

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_large(self) -> None:
        self.transport.write(TOO_LARGE)
        self.transport.close()
