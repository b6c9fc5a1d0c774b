"""A table behind a quota server: it rejects writers above its quota and counts concurrent ones.

A separate process, so that its counts are independent of Penstock. It exchanges lines of JSON over
a Unix socket: {"row": text, "seconds": duration of the job, "token": fencing token} returns {"ok":
true} or {"quota": true}; {"report": true} returns the counts. A writer that dies leaves
immediately. Rows are stored in a real SQLite file.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CALLERS_MAX = 2_048
"""Callers that may connect at the same moment; on a busy machine the server accepts them late."""


class QuotaExceeded(Exception):
    """The error of a cloud client: HTTP 403 with a reason."""

    code = 403
    errors = ({"reason": "quotaExceeded"},)

    def __init__(self) -> None:
        super().__init__("403 Quota exceeded: too many DML jobs writing to a table")

    @property
    def status_code(self) -> int:
        """Status code, as HTTP clients name it."""
        return self.code

    @property
    def reason(self) -> str:
        """Reason, as in Google's errors."""
        return "quotaExceeded"


@dataclass
class QuotaCounts:
    """Counts of the resource."""

    inside: int = 0
    most: int = 0
    errors: int = 0
    rows: int = 0
    entered: int = 0
    times: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class QuotaServer:
    """The server."""

    def __init__(self, table: str, quota: int) -> None:
        self._quota = quota
        self._seen = QuotaCounts()
        self._table = sqlite3.connect(table, isolation_level=None)
        self._table.execute("PRAGMA journal_mode = WAL")
        self._table.execute("CREATE TABLE IF NOT EXISTS rows (row TEXT PRIMARY KEY, times INTEGER)")

    async def serve(self, path: str) -> None:
        """Serve until killed."""
        server = await asyncio.start_unix_server(self._client, path, backlog=CALLERS_MAX)
        print("ready", flush=True)
        async with server:
            await server.serve_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                response = await self._respond(json.loads(line), reader)
                writer.write(json.dumps(response).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, EOFError):
            pass
        finally:
            writer.close()

    async def _respond(self, asked: dict[str, Any], reader: asyncio.StreamReader) -> dict[str, Any]:
        seen = self._seen
        if asked.get("report"):
            return {
                **vars(seen),
                "in_table": self._table.execute("SELECT count(*), sum(times) FROM rows").fetchone(),
            }
        if seen.inside >= self._quota:
            seen.errors += 1
            return {"quota": True}
        seen.inside += 1
        seen.entered += 1
        seen.most = max(seen.most, seen.inside)
        seen.times.append(time.time())
        seen.tokens.append(asked.get("token", 0))
        try:
            if asked["seconds"]:
                await self._hold(asked["seconds"], reader)
            self._table.execute(
                "INSERT INTO rows VALUES (?, 1) ON CONFLICT DO UPDATE SET times = times + 1",
                (asked["row"],),
            )
            seen.rows += 1
        finally:
            seen.inside -= 1
        return {"ok": True}

    async def _hold(self, seconds: float, reader: asyncio.StreamReader) -> None:
        """Run the job; a writer that dies leaves immediately (its socket closes)."""
        try:
            data = await asyncio.wait_for(reader.read(1), seconds)
        except TimeoutError:
            return
        if not data:
            raise EOFError


class QuotaClient:
    """The client: one connection per caller."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(60)
        self._socket.connect(path)
        self._file = self._socket.makefile("rb")

    def write(self, row: str, seconds: float, token: int = 0) -> None:
        """Run one job; raises QuotaExceeded when there are too many."""
        response = self._ask({"row": row, "seconds": seconds, "token": token})
        if response.get("quota"):
            raise QuotaExceeded

    def report(self) -> dict[str, Any]:
        """Return the counts of the resource."""
        return self._ask({"report": True})

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._socket.sendall(json.dumps(asked).encode() + b"\n")
        line = self._file.readline()
        if not line:
            raise ConnectionError("the gatekeeper hung up")
        return dict(json.loads(line))


class QuotaServerProcess:
    """A quota server process for the duration of a block."""

    def __init__(self, folder: str, quota: int) -> None:
        self.path = str(Path(folder) / f"gate{quota}.sock")
        table = str(Path(folder) / f"gate{quota}.db")
        Path(self.path).unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gatekeeper", self.path, table, str(quota)],
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> QuotaServerProcess:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == b"ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def report(self) -> dict[str, Any]:
        """Return its counts."""
        client = QuotaClient(self.path)
        try:
            return client.report()
        finally:
            client.close()


if __name__ == "__main__":
    asyncio.run(QuotaServer(sys.argv[2], int(sys.argv[3])).serve(sys.argv[1]))
