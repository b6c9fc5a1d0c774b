"""A persistent connection that tests use byte by byte."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from tests.server.kit import ServedApi

CHUNKED = b"Transfer-Encoding: chunked\r\n"


class Wire:
    """One persistent connection, used byte by byte."""

    def __init__(self, served: ServedApi) -> None:
        self.socket = socket.create_connection(("127.0.0.1", served.server.port), timeout=60)
        self.file = self.socket.makefile("rb")

    def send(self, head: str, body: bytes = b"", more: bytes = b"") -> None:
        """Send a request."""
        length = b"" if CHUNKED in more else b"Content-Length: %d\r\n" % len(body)
        self.socket.sendall(head.encode() + b"\r\nHost: x\r\n" + more + length + b"\r\n" + body)

    def read(self) -> tuple[int, dict[str, str], Any]:
        """Return the status, headers and JSON of a response."""
        status = int(self.file.readline().split(b" ")[1])
        headers = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers, json.loads(self.file.read(int(headers["content-length"])))

    def close(self) -> None:
        """Close the connection."""
        self.file.close()
        self.socket.close()

    @property
    def is_closed(self) -> bool:
        """Wait for the server to close the connection; return whether it did."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


Wires: TypeAlias = Callable[[ServedApi], Wire]


@pytest.fixture
def wires() -> Iterator[Wires]:
    """Return a factory of connections that are closed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda served: stack.enter_context(contextlib.closing(Wire(served)))
