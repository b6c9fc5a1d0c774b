"""The gRPC server: one port, served by one event loop in its own thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, Final

import grpc
import grpc.aio

from penstock.client import Client
from penstock.core.clock import Clock
from penstock.core.errors import SettingsError
from penstock.pubsub_wire import publisher, schemas, subscriber
from penstock.pubsub_wire.handlers import FrontEnd, WireOptions, generic_handler

REQUEST_BYTES_MAX: Final = 12 * 1024 * 1024
"""Maximum size of a request: 10 MB of data plus attributes and framing."""
GRACE_SECONDS: Final = 5.0
CONCURRENT_MAX: Final = 2_000
_CHANNEL: Final = (
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class PubsubServer:
    """Serves Google Pub/Sub's services on the embedded bus."""

    def __init__(
        self, client: Client, options: WireOptions, *, clock: Clock, host: str, port: int
    ) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self.host = host
        self.port = port
        _check_free(host, port)
        self._is_up = threading.Event()
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._serve, name="penstock-pubsub", daemon=True)

    @property
    def address(self) -> str:
        """Host and port in the form of PUBSUB_EMULATOR_HOST."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{shown}:{self.port}"

    def start(self) -> None:
        """Bind and serve; return once calls are accepted."""
        self._thread.start()
        self._is_up.wait(30)
        if self._failure is not None:
            raise _not_free(self.host, self.port, str(self._failure))

    def stop(self) -> None:
        """Let active calls finish, end streams, then close; idempotent."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
            self._thread.join(GRACE_SECONDS + 10)

    def _serve(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:
            self._failure = error
        finally:
            self._is_up.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        front = FrontEnd(self._client, self._options, self._clock)
        server = grpc.aio.server(options=_CHANNEL, maximum_concurrent_rpcs=CONCURRENT_MAX)
        server.add_generic_rpc_handlers(_handlers(front))
        self.port = server.add_insecure_port(self.address)
        if not self.port:
            raise OSError("the address is in use")
        await server.start()
        self._is_up.set()
        await self._stopping.wait()
        front.waiting.close()
        await server.stop(GRACE_SECONDS)
        await front.settled()


def _check_free(host: str, port: int) -> None:
    """Raise SettingsError if the port is taken, before gRPC fails and logs its own errors."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            raise _not_free(host, port, error.strerror or str(error)) from None


def _not_free(host: str, port: int, why: str) -> SettingsError:
    fix = "Choose another with --pubsub-port or PENSTOCK_PUBSUB_PORT (0 picks a free one)."
    return SettingsError("pubsub_port", f"a free port on {host} ({why})", port, fix)


def _handlers(front: FrontEnd) -> list[Any]:
    return [
        generic_handler(front, publisher.SERVICE, publisher.METHODS),
        generic_handler(front, subscriber.SERVICE, subscriber.METHODS),
        generic_handler(front, schemas.SERVICE, schemas.METHODS),
    ]
