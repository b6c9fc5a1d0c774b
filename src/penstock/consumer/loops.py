"""Event loop for async handlers: the server's loop if there is one, otherwise a private loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any


class LoopRunner:
    """Runs coroutines for threads that block until they end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run coroutines on a loop that the server drives."""
        self._given = loop

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine and return its value; must not be called on the loop's own thread."""
        given = self._given
        loop = given if given is not None and given.is_running() else self._started()
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def close(self) -> None:
        """Stop and close the private loop."""
        with self._lock:
            loop, thread = self._own, self._thread
            self._own = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._own is None:
                self._own = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._own.run_forever, name="penstock-consumer-loop", daemon=True
                )
                self._thread.start()
            return self._own
