"""The wire: what uvicorn's parser leaves open about the head of a request is bounded here.

A head is at most 64 KB and comes within 30 seconds; what follows a chunked body as trailers is no
header of the request. Used by `server`; knows nothing of the API.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_MAX: Final = 65_536
HEAD_SECONDS: Final = 30.0
VERSIONS: Final = ("1.0", "1.1")
TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 35\r\nconnection: close\r\n\r\n"
    b"The head of the request is too long"
)


class OtherVersion(Exception):
    """The request is of a version of HTTP that is not served."""


class TooLong(Exception):
    """The head of a request is too long."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection; closed when a head is too long or too slow."""

    _in_head = False
    _head_bytes = 0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller connects; it has to say what it wants before long."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, of a body, or of both."""
        was_in_head = self._in_head
        super().data_received(data)
        if self._in_head:
            self._head_bytes = len(data) + (self._head_bytes if was_in_head else 0)
            if self._head_bytes > HEAD_MAX and not self.transport.is_closing():
                self._refuse()

    def send_400_response(self, msg: str) -> None:
        """The parser gave up, or we did."""
        if self._head_bytes > HEAD_MAX:
            self._refuse()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

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
        super().on_headers_complete()

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self) -> None:
        self.transport.write(TOO_LARGE)
        self.transport.close()
