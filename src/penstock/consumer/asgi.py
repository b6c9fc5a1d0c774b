"""Push endpoint: a plain ASGI application without a framework, mountable anywhere.

    POST {path} or /   one push          GET /healthz   liveness     GET /readyz   sink reachable
                                         GET /metrics   Prometheus

Invalid input gets a 4xx response (or 2xx, if there is no dead-letter policy to handle it), never
5xx. The number of pushes in progress is bounded: above the limit the response is 429, and the
broker retries.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.bus.envelope import Poison, decode, decode_unwrapped
from penstock.bus.message import ERROR_KIND, ErrorKind
from penstock.consumer.disposition import Disposition
from penstock.consumer.handling import malformed, misdirected
from penstock.consumer.message import Message, of_push
from penstock.core.clock import SECOND
from penstock.core.errors import PenstockError
from penstock.core.tracing.trace_context import TRACEPARENT
from penstock.flows.gates.acknowledge import GateResponse

if TYPE_CHECKING:
    from penstock.consumer.app import Consumer

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
INFLIGHT_MIN: Final = 64
"""Lowest limit on the number of pushes in progress, regardless of concurrency."""


class _Refused(Exception):
    """A request that gets an error response before a message is handled."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class _Gone(Exception):
    """The client disconnected before its request was complete."""


class PushApp:
    """The ASGI application of a consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._options = consumer.options
        self._inflight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan events of the server."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            try:
                await self._http(scope, receive, send)
            except _Refused as refused:
                self._consumer.telemetry.served(refused.status)
                value = {"error": refused.reason}
                await _respond(send, refused.status, value, refused.headers, scope)
            except _Gone:
                return

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await asyncio.to_thread(self._consumer.close)
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        method = scope["method"]
        if path in ("/healthz", "/readyz"):
            if method not in ("GET", "HEAD"):
                raise _Refused(405, "only GET is allowed", allow="GET, HEAD")
            await self._health(path, scope, send)
        elif path == "/metrics":
            if method != "GET":
                raise _Refused(405, "only GET is allowed", allow="GET")
            await self._verify(_headers(scope))
            text = await asyncio.to_thread(self._consumer.telemetry.metrics.text)
            await _send(send, 200, text, {"content-type": METRICS_TYPE}, scope)
        elif path in (self._options.path, "/"):
            if method != "POST":
                raise _Refused(405, "only POST is allowed", allow="POST")
            if self._inflight >= max(INFLIGHT_MIN, self._consumer.outstanding):
                raise _Refused(429, "busy", retry_after="1")
            self._inflight += 1
            try:
                message, end = await self._push(scope, receive)
            finally:
                self._inflight -= 1
            status = end.http_status(dead_letters=end.has_dead_letters)
            delay = end.delay_us
            headers = {} if delay is None else {"retry-after": str(-(-delay // SECOND))}
            if end.is_configuration:
                headers[ERROR_KIND] = ErrorKind.CONFIGURATION.value
            self._consumer.telemetry.served(status)
            await _respond(send, status, _reply(message, end), headers, scope)
        else:
            raise _Refused(404, f"not found; send pushes to {self._options.path}")

    async def _push(self, scope: Scope, receive: Receive) -> tuple[Message, Disposition]:
        consumer, options = self._consumer, self._options
        consumer.adopt(asyncio.get_running_loop())
        headers = _headers(scope)
        await self._verify(headers)
        body = await _body(receive, headers, options.body_max, options.seconds("body_wait"))
        if options.is_unwrapped:
            read = decode_unwrapped(body, headers, subscription=consumer.name)
        else:
            # Decoding ten megabytes would block the event loop for other requests.
            read = await asyncio.to_thread(decode, body, subscription=consumer.name)
        message = of_push(
            read,
            body,
            subscription=consumer.name,
            topic=consumer.topic,
            traceparent=headers.get(TRACEPARENT),
        )
        if not isinstance(read, Poison):
            future = consumer.submit(message)
        else:
            wrong = misdirected(message) if read.is_misdirected else malformed(read.reason)
            future = consumer.refuse(message, wrong)
        return message, await asyncio.wrap_future(future)

    async def _verify(self, headers: Mapping[str, str]) -> None:
        verify = self._consumer.verify
        if verify is None:
            return
        try:
            is_known = await asyncio.to_thread(verify, headers) is not False
        except PenstockError as error:
            if error.retryable:
                raise _Refused(503, "the sender cannot be verified right now") from None
            status = error.http_status if error.http_status in (401, 403) else 401
            raise _Refused(status, error.message[:200], www_authenticate="Bearer") from None
        except Exception:  # a verifier that fails has not accepted the sender
            is_known = False
        if not is_known:
            raise _Refused(401, "unknown sender", www_authenticate="Bearer")

    async def _health(self, path: str, scope: Scope, send: Send) -> None:
        if path == "/readyz":
            try:
                await asyncio.to_thread(self._consumer.sink.check)
            except Exception as error:
                reason = f"the sink is not available ({type(error).__name__})"
                raise _Refused(503, reason) from None
        await _respond(send, 200, {"status": "ok"}, {}, scope)


def _reply(message: Message, end: Disposition) -> dict[str, Any]:
    """Return the body of the response: the outcome and, with a gate, the gate's response."""
    reply: dict[str, Any] = {"outcome": end.outcome.value}
    return reply | (message.gate.reply() if isinstance(message.gate, GateResponse) else {})


def _headers(scope: Scope) -> dict[str, str]:
    """Return headers by lower-case name; refuse more than one Authorization header."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name == "authorization" and name in found:
            raise _Refused(400, "expected one Authorization header, got several")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


async def _body(
    receive: Receive, headers: Mapping[str, str], bytes_max: int, seconds: float
) -> bytes:
    """Read the whole body, bounded in size and time."""
    if headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        raise _Refused(415, "compressed bodies are not supported")
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > 12 or int(length) > bytes_max):
        raise _Refused(413, f"the body exceeds {bytes_max} bytes", connection="close")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise _Gone
                part = event.get("body", b"")
                size += len(part)
                if size > bytes_max:
                    raise _Refused(413, f"the body exceeds {bytes_max} bytes", connection="close")
                parts.append(part)
                if not event.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise _Refused(
            408, f"the body was not complete within {seconds:g} s", connection="close"
        ) from None


async def _respond(
    send: Send, status: int, value: Any, headers: Mapping[str, str], scope: Scope
) -> None:
    body = json.dumps(value).encode()
    await _send(send, status, body, {"content-type": "application/json", **headers}, scope)


async def _send(
    send: Send, status: int, body: bytes, headers: Mapping[str, str], scope: Scope
) -> None:
    named = {"content-length": str(len(body)), **headers}
    raw = [(name.encode(), text.encode("latin-1", "replace")) for name, text in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    sent = b"" if scope.get("method") == "HEAD" else body
    await send({"type": "http.response.body", "body": sent})
