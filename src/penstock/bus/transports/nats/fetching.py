"""Pull requests to consumers.

Requests are short: one that is in flight while a server restarts never gets a response, so each
waits at most five seconds and is then sent again. A consumer of a shard delivers one message at a
time; a request for more would receive the same message repeatedly.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.bus.transports.nats.connection import NatsConnection
from penstock.core.errors import TransportUnavailable

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as Inbox

WAIT_SECONDS: Final = 5.0
SHARD_SECONDS: Final = 0.02
"""How long to wait for shards without a ready message; a shard in use sends no reply."""
SHARD_WAIT_SECONDS: Final = 0.25
GRACE_SECONDS: Final = 3.0
BYTES_MAX: Final = 64 * 1024 * 1024
_NO_RESPONDERS: Final = "503"


class Fetcher:
    """Sends the pull requests of one consumer and collects the messages."""

    def __init__(self, connection: NatsConnection, stream: str, consumer: str) -> None:
        self._connection = connection
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._lock = asyncio.Lock()
        self._inbox: Inbox | None = None
        self._prefix = ""
        self._requests = 0

    async def ready(self, n: int) -> list[Msg]:
        """Return up to `n` messages that are ready now."""
        async with self._lock:
            return await self._request({"batch": n, "no_wait": True}, n, 0.0)

    async def one(self, seconds: float) -> list[Msg]:
        """Return the next message, waiting for it."""
        async with self._lock:
            body = {"batch": 1, "expires": int(seconds * 1e9)}
            return await self._request(body, 1, seconds)

    async def _request(self, body: dict[str, Any], n: int, seconds: float) -> list[Msg]:
        import nats.errors  # optional dependency, imported on use

        client = await self._connection.client()
        async with self._connection.errors("pulling"):
            if self._inbox is None:
                self._prefix = client.new_inbox()
                self._inbox = await client.subscribe(f"{self._prefix}.*", pending_bytes_limit=0)
            self._requests += 1
            reply = f"{self._prefix}.{self._requests}"
            body["max_bytes"] = BYTES_MAX
            await client.publish(self._subject, msgspec.json.encode(body), reply=reply)
            found: list[Msg] = []
            timeout = seconds + GRACE_SECONDS
            while len(found) < n:
                try:
                    message = await self._inbox.next_msg(timeout=timeout)
                except nats.errors.TimeoutError:
                    if found or client.is_connected:
                        break
                    raise
                status = (message.headers or {}).get("Status")
                if status is None or message.reply:
                    found.append(message)
                elif message.subject == reply:
                    if status == _NO_RESPONDERS:
                        raise TransportUnavailable("pulling: the consumer has no leader now")
                    break
        return found
