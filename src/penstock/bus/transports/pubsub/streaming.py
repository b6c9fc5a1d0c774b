"""Streaming pull: a stream per subscription that holds messages ahead of the consumer.

The service sends at most `prefetch` messages that are not settled (flow control). A thread reads
the stream and opens it again when it ends; it extends the leases of messages that wait for the
consumer (`keep`); the consumer extends those that it received.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.bus.transports.pubsub.connection import PubsubConnection
from penstock.core.errors import PenstockError, TransportUnavailable

AGAIN_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses in seconds before a stream is reopened; the last one is repeated."""


class MessageStream:
    """One streaming pull."""

    def __init__(
        self,
        connection: PubsubConnection,
        path: str,
        *,
        deadline_s: int,
        extend: Callable[[list[str]], None],
    ) -> None:
        """`extend` moves the deadlines of Google's ack ids by the subscription's own deadline."""
        self._connection = connection
        self._path = path
        self._deadline_s = deadline_s
        self._extend = extend
        self._changed = threading.Condition()
        self._waiting: deque[Any] = deque()
        self._error: PenstockError | None = None
        self._call: Any = None
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, name="penstock-pubsub-stream", daemon=True),
            threading.Thread(target=self._keep, name="penstock-pubsub-leases", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def take(self, n: int, seconds: float) -> list[Any]:
        """Return up to `n` received messages, waiting up to `seconds` for the first."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting or self._error), seconds)
            if self._error is not None and not self._waiting:
                raise self._error
            return [self._waiting.popleft() for _ in range(min(n, len(self._waiting)))]

    def close(self) -> list[str]:
        """End the stream; return Google's ack ids of messages that were not taken."""
        self._closed.set()
        with self._changed:
            left = [one.ack_id for one in self._waiting]
            self._waiting.clear()
            if self._call is not None:
                self._call.cancel()
        for thread in self._threads:
            thread.join(10)
        return left

    def _read(self) -> None:
        import grpc  # an optional dependency

        failures = 0
        while not self._closed.is_set():
            try:
                for response in self._open():
                    failures = 0
                    with self._changed:
                        self._error = None
                        self._waiting.extend(response.received_messages)
                        self._changed.notify_all()
            except grpc.RpcError as error:
                found = self._connection.translated(error, self._path)
                with self._changed:
                    self._error = None if self._closed.is_set() else found
                    self._changed.notify_all()
                if not isinstance(found, TransportUnavailable):
                    failures = len(AGAIN_SECONDS) - 1
            self._closed.wait(AGAIN_SECONDS[min(failures, len(AGAIN_SECONDS) - 1)])
            failures += 1

    def _open(self) -> Iterator[Any]:
        stub = self._connection.subscriber().streaming_pull
        call = stub(self._requests(), metadata=self._connection.metadata(self._path))
        with self._changed:
            self._call = call
        yield from call

    def _requests(self) -> Iterator[Any]:
        from google.pubsub_v1 import types  # an optional dependency

        prefetch = self._connection.options.prefetch
        yield types.StreamingPullRequest(
            subscription=self._path,
            stream_ack_deadline_seconds=self._deadline_s,
            max_outstanding_messages=prefetch,
            client_id="penstock",
        )
        while not self._closed.wait(30):
            yield types.StreamingPullRequest()  # a keep-alive

    def _keep(self) -> None:
        while not self._closed.wait(self._deadline_s / 3):
            with self._changed:
                held = [one.ack_id for one in self._waiting]
            if held:
                try:
                    self._extend(held)
                except PenstockError:
                    continue  # they are delivered again
