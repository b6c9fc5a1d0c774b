"""The consumer kit with an SQL sink: pushes in one process, from the envelope to the commit."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.result import Result
from benchmarks.site import Site
from penstock.consumer import Batch, Consumer, ConsumerOptions, Message, Upsert
from penstock.consumer.asgi import PushApp

AT_ONCE = 200
THREADS = 16
KEYS = 1_000
SUBSCRIPTION = "bench"


def consumer_sink(site: Site, *, quick: bool) -> Iterator[Result]:
    """Decode, dedupe, handle, write: each message in its own transaction, and in batches."""
    n = 1_000 if quick else 10_000
    rates: dict[str, float] = {}
    for kind in ("single", "batched"):
        place = site.create("kit")
        options = ConsumerOptions(
            concurrency=THREADS, outstanding=2 * AT_ONCE, prefix=f"{kind}_", log=lambda _: None
        )
        # A sink in SQLite is a separate file next to the store's.
        url = f"{place.url}-sink" if site.engine == "sqlite" else place.url
        app = Consumer(SUBSCRIPTION, sink=url, dead_letters=True, options=options)
        if kind == "single":
            app.on("game.updated")(_row)
        else:
            app.collect("game.updated", max=100, wait="20ms")(_rows)
        asyncio.run(_push_all(app.asgi(), range(n, n + AT_ONCE)))
        began = time.perf_counter()
        asyncio.run(_push_all(app.asgi(), range(n)))
        rates[kind] = n / (time.perf_counter() - began)
        assert app.counters() == {"applied": n + AT_ONCE}, app.counters()
        app.close()
        site.drop(place)
    yield Result(
        bench="consumer_sink",
        engine=site.engine,
        value=rates["single"],
        unit="messages/s",
        n=n,
        extra={"per_s": rates["single"], "batched": rates["batched"], "at_once": AT_ONCE},
    )


def _row(message: Message) -> Upsert:
    game = message.json["game"]
    return Upsert(path=f"games/{game}", fields={"points": message.json["points"]}, add={"n": 1})


def _rows(batch: Batch) -> list[Upsert]:
    return [_row(message) for message in batch]


async def _push_all(app: PushApp, numbers: range) -> None:
    """Post every message, AT_ONCE at a time; each response must be 200."""
    left = iter(numbers)

    async def sender() -> None:
        for n in left:
            status = await _push(app, _envelope(n))
            assert status == 200, status

    await asyncio.gather(*(sender() for _ in range(AT_ONCE)))


async def _push(app: PushApp, body: bytes) -> int:
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(event: Any) -> None:
        if event["type"] == "http.response.start":
            statuses.append(event["status"])

    await app({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, send)
    return statuses[0]


def _envelope(n: int) -> bytes:
    data = json.dumps({"game": n % KEYS, "points": n, "note": "x" * 140}).encode()
    message = {
        "messageId": str(n),
        "data": base64.b64encode(data).decode(),
        "attributes": {"event_type": "game.updated"},
        "publishTime": "2025-11-17T00:00:00Z",
    }
    whole = {"message": message, "subscription": f"projects/p/subscriptions/{SUBSCRIPTION}"}
    return json.dumps(whole).encode()
