"""The wire: what uvicorn's parser leaves open about the head of a request is bounded here.

A head is at most 64 KB and comes within 30 seconds; what follows a chunked body as trailers is no
header of the request. A door is asked as soon as a head is whole: what it refuses is read to its
end and answered without a request being made of it. Used by `server`; knows nothing of the API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

Door: TypeAlias = Callable[[bytes, bytes, Mapping[bytes, bytes]], tuple[bytes, bytes] | None]
"""(method, target, headers) → (header lines, body) of a 503; None for a request to serve."""

HEAD_MAX: Final = 65_536
HEAD_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.03
"""So long a refusal is held back: who comes again at once, whatever Retry-After says, would take
the loop's time from those that are served."""
VERSIONS: Final = ("1.0", "1.1")
TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 35\r\nconnection: close\r\n\r\n"
    b"The head of the request is too long"
)


def behind(door: Door) -> type[BoundedProtocol]:
    """The protocol with a door."""

    class Guarded(BoundedProtocol):
        _door = staticmethod(door)

    return Guarded


class OtherVersion(Exception):
    """The request is of a version of HTTP that is not served."""


class TooLong(Exception):
    """The head of a request is too long."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection; closed when a head, or a request that was refused, is too long or too slow.

    A refused request is first read (`_refusal` is set), then waits for its answer (`_telling` is
    set too). Until it has it nothing else of this connection is begun.
    """

    _door: Door | None = None
    _in_head = False
    _head_bytes = 0
    _late: asyncio.TimerHandle | None = None
    _refusal: bytes | None = None
    _is_last = False
    _telling: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller connects; it has to say what it wants before long."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._in_time()
        if self._telling is not None:
            self._telling.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops: who waits for its refusal gets it now."""
        if self._telling is not None:
            self._is_last = True
            self._tell()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, of a body, or of both."""
        was_in_head = self._in_head
        super().data_received(data)
        if self._in_head:
            self._head_bytes = len(data) + (self._head_bytes if was_in_head else 0)
            if self._head_bytes > HEAD_MAX and not self.transport.is_closing():
                self._too_large()
        is_read = self._refusal is not None and self._telling is None
        if self._late is None and (self._in_head or is_read):
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """The parser gave up, or we did."""
        if self._head_bytes > HEAD_MAX:
            self._too_large()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """A request begins; one that came before it is answered before."""
        if self._telling is not None:
            self._tell()
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; trailers come after the head and are none."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        self._in_time()
        if self.parser.get_http_version() not in VERSIONS:
            raise OtherVersion
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_MAX:
            self._head_bytes = size
            raise TooLong
        self._refusal = self._asked_at_door()
        if self._refusal is None:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body; nobody wants that of a refused request."""
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._refusal is None:
            super().on_message_complete()
            return
        self._in_time()
        self._telling = self.loop.call_later(PAUSE_SECONDS, self._tell)

    def _asked_at_door(self) -> bytes | None:
        """The answer to a request that is refused at the door."""
        is_busy = bool(self.cycle) and not self.cycle.response_complete
        if self._door is None or is_busy or self.parser.should_upgrade():
            return None
        told = self._door(self.parser.get_method(), self.url, dict(self.headers))
        if told is None:
            return None
        is_kept = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self._is_last = not is_kept
        lines, body = told
        ours = b"".join(b"%s: %s\r\n" % pair for pair in self.server_state.default_headers)
        last = b"connection: close\r\n" if self._is_last else b""
        return b"".join((STATUS_LINE[503], ours, lines, last, b"\r\n", body))

    def _tell(self) -> None:
        """Answer the request that was refused."""
        assert self._refusal is not None
        assert self._telling is not None
        self._telling.cancel()
        refusal, self._refusal, self._telling = self._refusal, None, None
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
