"""The API server: one listening socket, served from its own thread.

Stopping is graceful: readiness turns off, long polls return, active requests may finish. Signals
are handled by the command, not by the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import socket
import sys
import threading
from typing import Final

import uvicorn

from penstock.core.errors import SettingsError
from penstock.server.app import Api
from penstock.server.overload.connections import BACKLOG, ConnectionTable
from penstock.server.overload.protocol import protocol_with

DRAIN_SECONDS_MAX: Final = 10
SWITCH_SECONDS: Final = 0.0005
TICK_SECONDS: Final = 0.1
SWEEP_TICKS: Final = 10


class ApiServer:
    """One listening socket and the thread that serves it."""

    def __init__(
        self, api: Api, *, host: str, port: int, drain_seconds: float = DRAIN_SECONDS_MAX
    ) -> None:
        """Bind now, so that a port conflict is detected before anything else starts.

        drain_seconds: how long `stop` waits for active requests, at most DRAIN_SECONDS_MAX.
        """
        self._api = api
        self._drain_seconds = math.ceil(min(drain_seconds, DRAIN_SECONDS_MAX))
        self._socket = _bind(host, port)
        self.host = host
        self.port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            api.app,
            loop="auto",
            http=protocol_with(api.load_shedder, api.connections, api.recognise),
            lifespan="on",
            access_log=False,
            log_config=None,
            log_level="error",  # it warns about every invalid request
            server_header=False,
            proxy_headers=False,
            date_header=True,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=self._drain_seconds,
            backlog=BACKLOG,
            ws="none",
            interface="asgi3",
        )
        self._server = _Server(config, api.connections)
        self._thread = threading.Thread(target=self._serve, name="penstock-api", daemon=True)

    @property
    def url(self) -> str:
        """URL of the server."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}"

    def start(self) -> None:
        """Start serving; return once requests are accepted."""
        # A transaction releases the GIL at every statement. With the default switch interval of
        # 5 ms it would wait that long each time while the event loop refuses requests.
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        self._thread.start()
        self._server.is_up.wait(30)
        if not self._server.started:
            raise SettingsError("api_port", "the API to start", self.port, "See the log.")

    def stop(self) -> None:
        """Finish active requests, then close; idempotent."""
        self._api.drain()
        self._server.end()
        self._thread.join(timeout=self._drain_seconds + 5)
        self._socket.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._server.is_up.set()


class _Server(uvicorn.Server):
    """A uvicorn server that signals when it is up, stops on `end` and ignores signals."""

    def __init__(self, config: uvicorn.Config, connections: ConnectionTable) -> None:
        super().__init__(config)
        self._connections = connections
        self.is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()

    def install_signal_handlers(self) -> None:
        """Do nothing; the command handles signals."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then set `is_up`."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.is_up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop like uvicorn, then drop the clients that did not read in time."""
        await super().shutdown(sockets)
        self._connections.abort_all()

    async def main_loop(self) -> None:
        """Run uvicorn's tick until `end` is called."""
        for counter in itertools.count():
            if await self.on_tick(counter):
                return
            if counter % SWEEP_TICKS == 0:
                self._connections.sweep(asyncio.get_running_loop().time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), TICK_SECONDS)

    def end(self) -> None:
        """Stop the main loop immediately, not at its next tick; thread-safe and idempotent."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in the meantime
                self._loop.call_soon_threadsafe(self._ending.set)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        fix = "Choose another with --port or PENSTOCK_API_PORT (0 picks a free one)."
        why = error.strerror or str(error)
        raise SettingsError("api_port", f"a free port on {host} ({why})", port, fix) from None
    made.listen(BACKLOG)
    return made
