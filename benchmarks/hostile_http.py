"""Hostile HTTP clients: 200 connections without a key next to callers that have one.

A quarter of the connections each: silent readers (pipelined requests, no response read), slow
bodies (one byte a second), idle ones, and readers that pipeline requests as fast as responses
arrive. Each opens another connection when the server closes it. They run in a process of their
own, so that only the server's time is measured. `hostile` reports `http_ratio` and `refused`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.caller import Caller
from benchmarks.load import customers, settle
from benchmarks.result import percentile, print_progress
from benchmarks.served import Server, served
from benchmarks.site import Site

CONNECTIONS = 200
CALLERS = 8
RATE = 60.0
"""Requests of the other callers per second: about a tenth of what the server can do."""
RUNS = "/api/v1/customers/c{}/pipeline-runs"
PATHS = ("/openapi.json", "/healthz", "/readyz", "/api/v1/pauses", "/.well-known/jwks.json")


@dataclass(slots=True)
class Replies:
    """Response times in milliseconds, refusals, and other failures of the callers."""

    times: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    unhealthy: int = 0


def http_figures(site: Site, *, quick: bool) -> dict[str, Any]:
    """Measure the callers without and with the hostile connections, in turns."""
    seconds, rounds = (5, 2) if quick else (5, 9)
    place = site.create("hostile_http")
    raw = place.raw()
    customers(place, raw, 100)
    settle(place, raw)
    raw.close()
    normal, attacked = Replies(), Replies()
    with served(place) as server:
        asyncio.run(_warm(server))
        for number in range(rounds):
            print_progress(f"normal, {number + 1} of {rounds}")
            asyncio.run(_call(server, seconds, normal))
            print_progress(f"{CONNECTIONS} hostile connections")
            with _attackers(server.port):
                asyncio.run(_call(server, seconds, attacked))
    site.drop(place)
    return {
        "http_ratio": percentile(attacked.times, 0.99) / percentile(normal.times, 0.99),
        "refused": attacked.refused + attacked.failed,
        "http_normal_refused": normal.refused + normal.failed,
        "unhealthy": attacked.unhealthy,
        "http_normal_p99_ms": percentile(normal.times, 0.99),
        "http_p99_ms": percentile(attacked.times, 0.99),
        "http_normal_p50_ms": percentile(normal.times, 0.5),
        "http_p50_ms": percentile(attacked.times, 0.5),
        "http_requests": len(attacked.times),
    }


async def _warm(server: Server) -> None:
    """Let the server do what it does once, such as building the OpenAPI document."""
    caller = Caller("127.0.0.1", server.port, server.key)
    for path in PATHS:
        await caller.call("GET", path)
    caller.close()
    await _call(server, 3, Replies())


async def _call(server: Server, seconds: float, seen: Replies) -> None:
    """Submit and list runs at a fixed rate, and ask for health once a second."""
    free = [Caller("127.0.0.1", server.port, server.key) for _ in range(CALLERS)]
    going: set[asyncio.Task[None]] = set()
    began = time.perf_counter()

    async def one(caller: Caller, number: int) -> None:
        if number % RATE == 0:
            status, _, _ = await caller.call("GET", "/readyz")
            seen.unhealthy += status != 200
        path = RUNS.format(number % 100 + 1)
        if number % 2:
            body = {"pipeline_template": "outside"}
            status, _, took = await caller.call("POST", path, body)
        else:
            status, _, took = await caller.call("GET", path + "?limit=20")
        if status in (200, 201):
            seen.times.append(took)
        elif status in (429, 503):
            seen.refused += 1
        else:
            seen.failed += 1
        free.append(caller)

    for number in itertools.count():
        due = began + number / RATE
        if due > began + seconds:
            break
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        caller = free.pop() if free else Caller("127.0.0.1", server.port, server.key)
        task = asyncio.create_task(one(caller, number))
        going.add(task)
        task.add_done_callback(going.discard)
    if going:
        await asyncio.wait(going, timeout=30)
    for caller in free:
        caller.close()


@contextlib.contextmanager
def _attackers(port: int) -> Iterator[None]:
    """Keep the hostile connections open while the block runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.hostile_http", str(port)],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.terminate()
        process.wait(10)


async def _attack(port: int) -> None:
    async def again(act: Any) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
                try:
                    await act(reader, writer)
                finally:
                    writer.close()
            await asyncio.sleep(0.05)

    acts = (_silent, _slow_body, _idle, _pipelined)
    tasks = [asyncio.create_task(again(acts[n % len(acts)])) for n in range(CONNECTIONS)]
    await asyncio.sleep(1)
    print("ready", flush=True)
    await asyncio.gather(*tasks)


def _requests(count: int) -> bytes:
    return b"".join(
        f"GET {PATHS[n % len(PATHS)]} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for n in range(count)
    )


async def _silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 15)
    await asyncio.sleep(3600)


async def _slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = "POST /api/v1/customers/c1/pipeline-runs HTTP/1.1\r\nHost: x\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n".encode())
    while not reader.at_eof():
        writer.write(b" ")
        await asyncio.sleep(1)


async def _idle(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def _pipelined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(_requests(10))
        for _ in range(10):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_attack(int(sys.argv[1])))
