"""A minimal HTTP client on asyncio streams: one connection, one request at a time.

Load generator and server share the machine's cores, so the client's cost would count as the
server's. It uses none of Penstock's code.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any


class Caller:
    """One persistent connection; measures its requests."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self._host, self._port = host, port
        self._head = f"Host: {host}\r\nAuthorization: Bearer {key}\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.retry_after: str | None = None

    async def call(
        self, method: str, path: str, body: Any = None, extra: str = ""
    ) -> tuple[int, bytes, float]:
        """Send a request; return (status, body, milliseconds)."""
        raw = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        kind = "Content-Type: application/json\r\n" if raw else ""
        head = (
            f"{method} {path} HTTP/1.1\r\n{self._head}{kind}{extra}"
            f"Content-Length: {len(raw)}\r\n\r\n"
        )
        began = time.perf_counter()
        try:
            if self._writer is None:
                await self._connect()
            assert self._writer is not None
            self._writer.write(head.encode() + raw)
            status, response = await self._read()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.close()
            return 0, b"", (time.perf_counter() - began) * 1_000
        return status, response, (time.perf_counter() - began) * 1_000

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def _read(self) -> tuple[int, bytes]:
        assert self._reader is not None
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        status = int(lines[0].split(b" ")[1])
        length, self.retry_after = 0, None
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"retry-after":
                self.retry_after = value.strip().decode()
        return status, await self._reader.readexactly(length) if length else b""
