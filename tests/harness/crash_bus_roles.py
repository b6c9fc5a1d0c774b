"""The processes that `crash_bus` kills: publishers over HTTP, consumers that pull or are pushed to.

A publisher writes into its history what it is about to publish, and then what was accepted; after
its death the next one repeats what has no answer, under the same dedupe ids. A consumer inserts one
row per message, without any constraint that would hide a second one, and adds to one document per
key; it is slow to ack, so that death often comes between effect and ack. A receiver does the same
with what the server pushes to it. All go on until they are told to stop.
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

from penstock.assembly.process import open_store
from penstock.assembly.settings import load
from penstock.bus.message import Settling
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.consumer import Consumer, ConsumerOptions, Message, SinkTx, Upsert
from penstock.core.clock import SystemClock

TOPIC: Final = "crashing"
SUBSCRIPTION: Final = "crashing-sink"
PUSHED: Final = "crashing-push"
PUSHED_EVERY: Final = 4
"""Every so many is pushed as well: a push is a request of its own, and two cores carry fewer."""
KEYS: Final = 20
BATCH: Final = 50
REST_SECONDS: Final = 0.25
ACK_SECONDS: Final = 0.1
ASKED, ACCEPTED, END = "ask", "ok", "."

stopping = threading.Event()


def history_read(path: Path) -> tuple[set[int], dict[int, int]]:
    """(numbers asked, message ids of those accepted); a line cut short says nothing."""
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
    """Publish `first`, `first + step`, … in batches until told to stop."""
    clock = SystemClock()
    written = os.open(history, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(written, b"\n")  # ends a line that was cut short
    for batch in _batches(history, first, step):
        _say(written, ASKED, [str(n) for n in batch])
        while not (ids := _published(url, key, batch)):
            # A stop waits for the answer, so that the last batch is known, too.
            clock.sleep(REST_SECONDS)
        _say(written, ACCEPTED, [f"{n}={one}" for n, one in zip(batch, ids, strict=True)])
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


def _say(written: int, word: str, numbers: list[str]) -> None:
    os.write(written, f"{word} {' '.join(numbers)} {END}\n".encode())


def _published(url: str, key: str, numbers: list[int]) -> list[str]:
    """The message ids of a batch that was accepted; none when that is not known."""
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
        with urllib.request.urlopen(request, timeout=10) as answer:
            ids: list[str] = json.load(answer)["message_ids"]
            return ids
    except urllib.error.HTTPError as error:
        with error:
            if error.code < 500 and error.code != 429:
                sys.stderr.write(f"publishing refused: {error.code} {error.read()[:300]!r}\n")
        return []
    except (OSError, ValueError, KeyError):
        return []  # killed, starting, or cut off in the middle of its answer


class SlowToAck(EmbeddedBus):
    """The bus, whose acks take a while to get through."""

    def ack(self, subscription: str, ack_ids: Sequence[str]) -> list[Settling]:
        """Wait, then settle."""
        SystemClock().sleep(ACK_SECONDS)
        return super().ack(subscription, ack_ids)


def applying(subscription: str, sink_url: str, options: ConsumerOptions) -> Consumer:
    """One row per message and one sum per key, in one transaction."""
    app = Consumer(subscription, sink=sink_url, topic=TOPIC, options=options)

    @app.on("number")
    def number(message: Message, tx: SinkTx) -> Upsert:
        n = message.json["n"]
        tx.execute("INSERT INTO effects (n, message_id) VALUES (:n, :id)",
                   {"n": n, "id": message.id})  # fmt: skip
        return Upsert(path=f"keys/{n % KEYS}", add={"count": 1})

    return app


def receiver(sink_url: str, port: int) -> None:
    """Take pushes until told to stop; an answer is given a while after its effect is durable."""
    options = ConsumerOptions(
        concurrency=32, outstanding=256, log=lambda _: SystemClock().sleep(ACK_SECONDS)
    )
    app = applying(PUSHED, sink_url, options)
    uvicorn.run(app.asgi(), host="127.0.0.1", port=port, log_level="warning", access_log=False)
    app.close()


def consumer(database_url: str, sink_url: str) -> None:
    """Pull and apply until told to stop."""
    options = ConsumerOptions(concurrency=4, outstanding=64, extend="10s", log=lambda _: None)
    app = applying(SUBSCRIPTION, sink_url, options)
    store = open_store(load({"PENSTOCK_DATABASE_URL": database_url}))
    worker = app.worker(SlowToAck(store, actor=f"consumer-{os.getpid()}"))
    worker.start()
    stopping.wait()
    worker.stop()
    app.close()
    store.close()


def main(arguments: list[str]) -> None:
    """Play one role."""
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
