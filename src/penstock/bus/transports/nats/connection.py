"""A connection to NATS on a private event loop, called from ordinary threads.

The client library is asynchronous and Penstock is not, so one daemon thread runs the loop, and
`call` waits for a coroutine. The library comes with the extra `nats` and is imported only when it
is used. It reconnects automatically and never gives up; a request that gets no reply in time raises
TransportUnavailable, and the caller decides whether to repeat it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from penstock.bus.transports.nats.options import NatsOptions
from penstock.core.errors import SettingsError, TransportUnavailable

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient
    from nats.js import JetStreamContext

T = TypeVar("T")
RECONNECT_SECONDS: Final = 0.25
CONNECT_SECONDS: Final = 2
log = logging.getLogger(__name__)


class NatsConnection:
    """One client connection, opened on first use."""

    def __init__(self, options: NatsOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: NatsClient | None = None
        self._opening: asyncio.Lock | None = None
        self._closing: asyncio.Event | None = None
        require_nats()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise TransportUnavailable("the transport was closed") from None

    async def client(self) -> NatsClient:
        """Return the connected client."""
        assert self._opening is not None
        async with self._opening:
            if self._client is None or self._client.is_closed:
                self._client = await self._connect()
            return self._client

    async def jetstream(self) -> JetStreamContext:
        """Return the JetStream API of the client."""
        client = await self.client()
        return client.jetstream(timeout=self.options.request_seconds)

    @contextlib.asynccontextmanager
    async def errors(self, doing: str) -> AsyncIterator[None]:
        """Translate the library's errors to Penstock's; errors that the server returns are raised
        unchanged.
        """
        import nats.errors  # optional dependency, imported on use
        import nats.js.errors  # as above

        try:
            yield
        except nats.js.errors.APIError as error:
            if error.code is not None and error.code < 500:
                raise
            raise TransportUnavailable(f"{doing}: {error.description or error}") from None
        except (TimeoutError, nats.errors.Error, OSError) as error:
            text = str(error) or type(error).__name__
            raise TransportUnavailable(f"{doing}: {text}") from None

    async def api(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to the JetStream API; return the response, even if it is an error."""
        client = await self.client()
        async with self.errors(subject):
            message = await client.request(
                f"$JS.API.{subject}",
                msgspec.json.encode(body) if body else b"",
                timeout=self.options.request_seconds,
            )
        response: dict[str, Any] = msgspec.json.decode(message.data)
        return response

    async def pause(self, seconds: float) -> None:
        """Wait, at most until the connection is closed."""
        assert self._closing is not None
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
            raise TransportUnavailable("the transport was closed")

    def close(self) -> None:
        """Close the connection and stop the loop; idempotent."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._shut_down(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    async def _shut_down(self) -> None:
        assert self._closing is not None
        self._closing.set()
        if self._client is not None and not self._client.is_closed:
            with contextlib.suppress(Exception):
                await self._client.close()
        self._client = None
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._opening, self._closing = asyncio.Lock(), asyncio.Event()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="penstock-nats", daemon=True
                )
                self._thread.start()
            return self._loop

    async def _connect(self) -> NatsClient:
        import nats  # optional dependency, imported on use

        options = self.options
        async with self.errors(f"connecting to {len(options.servers)} NATS server(s)"):
            connecting = nats.connect(
                list(options.servers),
                name="penstock",
                connect_timeout=CONNECT_SECONDS,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_SECONDS,
                user_credentials=options.credentials,
                error_cb=_report,
            )
            # Without a limit it would retry indefinitely, even the first time.
            return await asyncio.wait_for(connecting, options.request_seconds)


async def _report(error: Exception) -> None:
    log.debug("NATS: %s", str(error) or type(error).__name__)


def require_nats() -> None:
    """Raise SettingsError if the client library is not installed."""
    try:
        import nats  # noqa: F401 - on use: an optional dependency
    except ImportError:
        raise SettingsError(
            "transport",
            "nats-py to be installed",
            "no nats-py",
            "Install it: pip install 'penstock-engine[nats]'",
        ) from None
