"""The processes that `crash_bus` kills: publishers over HTTP, pull consumers, push receivers.

A publisher writes to its history what it is about to publish, then what was accepted. After it is
killed, its successor repeats what has no response, under the same dedupe ids. A consumer inserts
one row per message, without a constraint that would hide a duplicate, and adds to one document per
key. It acks slowly, so that kills often fall between effect and ack. A receiver does the same with
pushed messages. All run until they are asked to stop.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import uvicorn

from penstock.assembly.database import open_store
from penstock.assembly.settings import load
from penstock.bus.message import SettleResult
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.consumer import Consumer, ConsumerOptions, Message, SinkTx, Upsert
from penstock.core.clock import SystemClock

TOPIC: Final = "crashing"
SUBSCRIPTION: Final = "crashing-sink"
PUSHED: Final = "crashing-push"
PUSHED_EVERY: Final = 4
"""Every n-th message is also pushed: each push is a request, and two cores handle fewer."""
KEYS: Final = 20
BATCH: Final = 50
REST_SECONDS: Final = 0.25
ACK_SECONDS: Final = 0.1
ASKED, ACCEPTED, END = "ask", "ok", "."

stopping = threading.Event()


def history_read(path: Path) -> tuple[set[int], dict[int, int]]:
    """Return (requested numbers, message ids of accepted ones); ignore incomplete lines."""
    found: dict[str, dict[int, int]] = {ASKED: {}, ACCEPTED: {}}
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines():
        word, *numbers = line.split() or [""]
        if word in found and numbers[-1:] == [END]:
            for one in numbers[:-1]:
                n, _, message_id = one.partition("=")
                found[word][int(n)] = int(message_id or 0)
    return set(found[ASKED]), found[ACCEPTED]


def publisher(url: str, key: str, history: Path, first: int, step: int) -> None:
    """Publish `first`, `first + step`, … in batches until asked to stop."""
    clock = SystemClock()
    written = os.open(history, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(written, b"\n")  # ends an incomplete line
    for batch in _batches(history, first, step):
        record(written, ASKED, [str(n) for n in batch])
        while not (ids := _published(url, key, batch)):
            # A stop waits for the response, so that the outcome of the last batch is known.
            clock.sleep(REST_SECONDS)
        record(written, ACCEPTED, [f"{n}={one}" for n, one in zip(batch, ids, strict=True)])
        if stopping.wait(REST_SECONDS):
            return


def _batches(history: Path, first: int, step: int) -> Iterator[list[int]]:
    asked, accepted = history_read(history)
    open_ones = sorted(asked - accepted.keys())
    for at in range(0, len(open_ones), BATCH):
        yield open_ones[at : at + BATCH]
    after = max(asked, default=first - step) + step
    while True:
        yield [after + step * n for n in range(BATCH)]
        after += step * BATCH


def record(written: int, word: str, numbers: list[str]) -> None:
    """Append a line to a history, durable enough to survive the death of this process."""
    os.write(written, f"{word} {' '.join(numbers)} {END}\n".encode())


def _published(url: str, key: str, numbers: list[int]) -> list[str]:
    """Return the message ids of an accepted batch; empty if the outcome is unknown."""
    messages = [
        {
            "data": base64.b64encode(json.dumps({"n": n}).encode()).decode(),
            "attributes": {"event_type": "number", "push": "no" if n % PUSHED_EVERY else "yes"},
            "dedupe_id": f"n{n}",
        }
        for n in numbers
    ]
    request = urllib.request.Request(
        f"{url}/api/v1/topics/{TOPIC}/publish",
        json.dumps({"messages": messages}).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            ids: list[str] = json.load(response)["message_ids"]
            return ids
    except urllib.error.HTTPError as error:
        with error:
            if error.code < 500 and error.code != 429:
                sys.stderr.write(f"publishing refused: {error.code} {error.read()[:300]!r}\n")
        return []
    except (OSError, ValueError, KeyError):
        return []  # killed, starting, or interrupted while responding


class SlowAckBus(EmbeddedBus):
    """The bus with slow acks."""

    def ack(self, subscription: str, ack_ids: Sequence[str], **report: Any) -> list[SettleResult]:
        """Wait, then settle."""
        SystemClock().sleep(ACK_SECONDS)
        return super().ack(subscription, ack_ids, **report)


def counting_consumer(subscription: str, sink_url: str, options: ConsumerOptions) -> Consumer:
    """Return a consumer that writes one row per message and one sum per key, atomically."""
    app = Consumer(subscription, sink=sink_url, topic=TOPIC, options=options)

    @app.on("number")
    def number(message: Message, tx: SinkTx) -> Upsert:
        n = message.json["n"]
        tx.execute("INSERT INTO effects (n, message_id) VALUES (:n, :id)",
                   {"n": n, "id": message.id})  # fmt: skip
        return Upsert(path=f"keys/{n % KEYS}", add={"count": 1})

    return app


def receiver(sink_url: str, port: int) -> None:
    """Receive pushes until asked to stop; respond some time after the effect is durable."""
    options = ConsumerOptions(
        concurrency=32, outstanding=256, log=lambda _: SystemClock().sleep(ACK_SECONDS)
    )
    app = counting_consumer(PUSHED, sink_url, options)
    uvicorn.run(app.asgi(), host="127.0.0.1", port=port, log_level="warning", access_log=False)
    app.close()


def consumer(database_url: str, sink_url: str) -> None:
    """Pull and apply until asked to stop."""
    options = ConsumerOptions(concurrency=4, outstanding=64, extend="10s", log=lambda _: None)
    app = counting_consumer(SUBSCRIPTION, sink_url, options)
    store = open_store(load({"PENSTOCK_DATABASE_URL": database_url}))
    worker = app.worker(SlowAckBus(store, actor=f"consumer-{os.getpid()}"))
    worker.start()
    stopping.wait()
    worker.stop()
    app.close()
    store.close()


def main(arguments: list[str]) -> None:
    """Run one role."""
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    role, *rest = arguments
    given: dict[str, Any] = json.loads(rest[0])
    if role == "publisher":
        publisher(given["url"], given["key"], Path(given["history"]), given["first"], given["step"])
    elif role == "receiver":
        receiver(given["push_sink_url"], given["push_port"])
    else:
        consumer(given["database_url"], given["sink_url"])


if __name__ == "__main__":
    main(sys.argv[1:])
