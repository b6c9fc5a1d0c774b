"""Declaration of the served methods, and the common handling of calls.

A method is declared with its request and response types, the permission that it requires, and a
function. Unary functions are synchronous and run on a few threads behind a bounded queue; `Pull`
and `StreamingPull` wait without a thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from penstock.access.api_keys import Permission, Role
from penstock.client import Client
from penstock.core.clock import Clock
from penstock.egress.policy import EgressRules
from penstock.pubsub_wire.calls import WireCaller
from penstock.pubsub_wire.errors import Code, WireError, as_wire_error
from penstock.pubsub_wire.outstanding import OutstandingAcks
from penstock.server.auth import KeyCache, bearer
from penstock.server.overload.admission import BoundedThreads
from penstock.server.polling.poll_hub import LongPolls

log = logging.getLogger(__name__)

T = TypeVar("T")
WAITING_MAX: Final = 256
"""Maximum number of calls that wait for a thread; further ones get UNAVAILABLE."""
LOCAL: Final = "local"
"""Name of callers on a port that requires no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireOptions:
    """Options of the Pub/Sub front end."""

    project: str
    """Project of system topics."""
    needs_key: bool
    threads: int
    rate: float
    """Calls per second for each API key without its own rate."""
    rules: EgressRules
    jitter: Callable[[], float] | None = None
    """Source of the jitter of retries; random if None."""
    streams_max: int = 1_000
    caller_streams_max: int = 100


@dataclass(frozen=True, slots=True)
class Unary:
    """A method with one request and one response."""

    request: Any
    response: Any
    permission: Permission
    function: Callable[[WireCaller, Any], Any]


@dataclass(frozen=True, slots=True)
class WaitingUnary:
    """A method with one request and one response that may wait."""

    request: Any
    response: Any
    permission: Permission
    function: Callable[[FrontEnd, WireCaller, Any, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Streaming:
    """A method with a stream of requests and a stream of responses."""

    request: Any
    response: Any
    permission: Permission
    function: Callable[[FrontEnd, WireCaller, Any], Awaitable[None]]


Method = Unary | WaitingUnary | Streaming


class FrontEnd:
    """Shared state of all calls of a process: keys, threads, long polls, open streams."""

    def __init__(self, client: Client, options: WireOptions, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.outstanding = OutstandingAcks()
        self.waiting = LongPolls(lambda channel: client.store.listen([channel]))
        self._keys = KeyCache(client, clock=clock, rate=options.rate)
        self._threads = BoundedThreads(options.threads, WAITING_MAX)
        self._streams: Counter[str] = Counter()
        self._local = WireCaller(
            name=LOCAL,
            role=Role.OPERATOR,
            client=client.as_actor("pubsub"),
            own_project=options.project,
            rules=options.rules,
            jitter=options.jitter,
        )
        self._known: dict[str, WireCaller] = {}
        self._returning: set[asyncio.Task[None]] = set()

    async def run(self, work: Callable[[], T]) -> T:
        """Run work that uses the store in one of the threads."""
        return await self._threads.run(work)

    async def lease(self, pull: Callable[[], T], release: Callable[[T], object]) -> T:
        """Run a pull in one of the threads; `release` its result if the caller is cancelled.

        gRPC cancels the call of a client that disconnects, but a thread goes on: it commits leases
        that no client receives.
        """
        is_gone = threading.Event()

        def work() -> T:
            if is_gone.is_set():
                raise ConnectionAbortedError
            return pull()

        pulling = asyncio.ensure_future(self.run(work))
        try:
            return await asyncio.shield(pulling)
        except asyncio.CancelledError:
            is_gone.set()
            returning = asyncio.ensure_future(self._return(pulling, release))
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)
            raise

    async def settled(self) -> None:
        """Wait until the messages of clients that disconnected are released."""
        await asyncio.gather(*self._returning)

    async def _return(self, pulling: asyncio.Future[T], release: Callable[[T], object]) -> None:
        try:
            result = await pulling
            await self.run(lambda: release(result))
        except ConnectionAbortedError:
            pass  # the pull had not begun
        except Exception as error:
            log.info("messages of a client that disconnected wait for their deadline: %s", error)

    async def caller(self, metadata: Mapping[str, str]) -> WireCaller:
        """Return the caller, from a call's metadata; raise Refused if it has no valid key."""
        header = metadata.get("authorization")
        if header is None and not self.options.needs_key:
            return self._local
        text = bearer(header)
        found = self._keys.admit(await self._keys.authenticate(text))
        known = self._known.get(text)
        if known is None or known.client is not found.client:
            if len(self._known) > WAITING_MAX:
                self._known.clear()
            known = self._known[text] = WireCaller(
                name=found.key,
                role=found.principal.role,
                client=found.client,
                own_project=self.options.project,
                rules=self.options.rules,
                jitter=self.options.jitter,
                key=text,
            )
        return known

    def check_again(self, caller: WireCaller) -> None:
        """Raise Refused if the caller's key is no longer valid; blocks."""
        if caller.key is not None:
            self._keys.check_again(caller.key)

    @contextmanager
    def stream_of(self, caller: WireCaller) -> Iterator[None]:
        """Count an open stream; raise if the caller, or the process, has too many."""
        if self._streams[caller.name] >= self.options.caller_streams_max:
            text = f"at most {self.options.caller_streams_max} open streams for each caller"
            raise WireError(Code.RESOURCE_EXHAUSTED, text)
        if self._streams.total() >= self.options.streams_max:
            raise WireError(Code.RESOURCE_EXHAUSTED, "too many open streams")
        self._streams[caller.name] += 1
        try:
            yield
        finally:
            self._streams[caller.name] -= 1
            if not self._streams[caller.name]:
                del self._streams[caller.name]


def generic_handler(front: FrontEnd, service: str, methods: Mapping[str, Method]) -> Any:
    """Return the gRPC handler of a service."""
    return grpc.method_handlers_generic_handler(
        service, {name: _handler(front, method) for name, method in methods.items()}
    )


def _handler(front: FrontEnd, method: Method) -> Any:
    codec = {
        "request_deserializer": method.request.FromString,
        "response_serializer": method.response.SerializeToString,
    }
    if isinstance(method, Streaming):
        return grpc.stream_stream_rpc_method_handler(_streaming(front, method), **codec)
    serve = _unary(front, method) if isinstance(method, Unary) else _waiting(front, method)
    return grpc.unary_unary_rpc_method_handler(serve, **codec)


def _unary(front: FrontEnd, method: Unary) -> Any:
    async def serve(request: Any, context: Any) -> Any:
        async with _StatusOnError(context):
            caller = await _admitted(front, method, context)
            return await front.run(lambda: method.function(caller, request))

    return serve


def _waiting(front: FrontEnd, method: WaitingUnary) -> Any:
    async def serve(request: Any, context: Any) -> Any:
        async with _StatusOnError(context):
            caller = await _admitted(front, method, context)
            return await method.function(front, caller, request, context)

    return serve


def _streaming(front: FrontEnd, method: Streaming) -> Any:
    async def serve(_: AsyncIterator[Any], context: Any) -> None:
        async with _StatusOnError(context):
            caller = await _admitted(front, method, context)
            with front.stream_of(caller):
                await method.function(front, caller, context)

    return serve


async def _admitted(front: FrontEnd, method: Method, context: Any) -> WireCaller:
    caller = await front.caller(dict(context.invocation_metadata() or ()))
    caller.require(method.permission)
    return caller


class _StatusOnError:
    """Ends a call with the status of the error that it raised."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        if isinstance(error, grpc.aio.AbortError | grpc.RpcError | asyncio.CancelledError):
            return
        found = as_wire_error(error)
        await self._context.abort(found.code, found.text, trailing_metadata=found.trailing)
