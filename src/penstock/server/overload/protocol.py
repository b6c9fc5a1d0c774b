"""The HTTP protocol: adds bounds on request headers that uvicorn's parser lacks.

The headers of a request are at most 64 KB and must arrive within 30 seconds; trailers of a chunked
body are not treated as headers. The load-shedding callback is called as soon as the headers are
complete: a request that it refuses is read to its end and answered without creating an ASGI
request. Used by `server`; independent of the API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

EarlyRefusal: TypeAlias = Callable[
    [bytes, bytes, Mapping[bytes, bytes]], tuple[bytes, bytes] | None
]
"""Maps (method, target, headers) to the header lines and body of a 503; None to serve it."""

HEAD_MAX: Final = 65_536
HEAD_SECONDS: Final = 30.0
REFUSAL_DELAY_SECONDS: Final = 0.03
"""Delay of a refusal, because clients that ignore Retry-After and repeat at once would take the
event loop's time from the requests that are served."""
VERSIONS: Final = ("1.0", "1.1")
TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 35\r\nconnection: close\r\n\r\n"
    b"The head of the request is too long"
)


def protocol_with(refuse_early: EarlyRefusal) -> type[BoundedProtocol]:
    """Return the protocol class with a load-shedding callback."""

    class Guarded(BoundedProtocol):
        _refuse_early = staticmethod(refuse_early)

    return Guarded


class UnsupportedHttpVersion(Exception):
    """The HTTP version of the request is not supported."""


class HeadersTooLong(Exception):
    """The headers of a request are too long."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection; closed if headers, or a refused request, are too long or too slow.

    A refused request is first read (`_refusal` is set), then its response is delayed (`_sending` is
    set too). No other request of the connection is started before the response is sent.
    """

    _refuse_early: EarlyRefusal | None = None
    _in_head = False
    _head_bytes = 0
    _late: asyncio.TimerHandle | None = None
    _refusal: bytes | None = None
    _is_last = False
    _sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; its first request must arrive in time."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a closed connection."""
        self._in_time()
        if self._sending is not None:
            self._sending.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Stop the connection; send a delayed refusal now."""
        if self._sending is not None:
            self._is_last = True
            self._send_refusal()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes and enforce the bounds on headers."""
        was_in_head = self._in_head
        super().data_received(data)
        if self._in_head:
            self._head_bytes = len(data) + (self._head_bytes if was_in_head else 0)
            if self._head_bytes > HEAD_MAX and not self.transport.is_closing():
                self._too_large()
        is_read = self._refusal is not None and self._sending is None
        if self._late is None and (self._in_head or is_read):
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request with 400, or with 431 if its headers are too long."""
        if self._head_bytes > HEAD_MAX:
            self._too_large()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """Begin a request; send the delayed refusal of an earlier one first."""
        if self._sending is not None:
            self._send_refusal()
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers arrive after the headers and are dropped."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the complete headers, and refuse the request under overload."""
        self._in_head = False
        self._in_time()
        if self.parser.get_http_version() not in VERSIONS:
            raise UnsupportedHttpVersion
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_MAX:
            self._head_bytes = size
            raise HeadersTooLong
        self._refusal = self._refused_early()
        if self._refusal is None:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body; drop it for a refused request."""
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Finish a request; schedule the response of a refused one."""
        if self._refusal is None:
            super().on_message_complete()
            return
        self._in_time()
        self._sending = self.loop.call_later(REFUSAL_DELAY_SECONDS, self._send_refusal)

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
            self.on_response_complete()

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_large(self) -> None:
        self.transport.write(TOO_LARGE)
        self.transport.close()
