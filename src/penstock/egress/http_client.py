"""HTTP client that connects only to checked addresses, with one deadline per request.

The name is resolved once; every address it has must be allowed (`egress.policy`); the connection
goes to one of exactly those addresses, with the name in SNI, certificate check and Host header. No
redirect is followed, no proxy from the environment is used, a response is read up to 64 KB, and the
deadline covers everything from the lookup to the last byte, so a slow trickle of bytes cannot
extend it. A request with `keep_alive` returns its connection to a pool (`egress.connection_pool`).
Failures raise `RequestFailed`, whose reason contains nothing from the response body.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.egress.connection_pool import IdleConnections
from penstock.egress.lookups import Lookups, Resolve, TooManyLookupsError
from penstock.egress.policy import (
    STRICT,
    Address,
    EgressRules,
    Target,
    check_addresses,
    parse_target,
)

BODY_MAX: Final = 65_536
CONNECT_SECONDS: Final = 10.0
HINTS_MAX: Final = 8
SEND_CHUNK: Final = 65_536
DRAIN_SECONDS: Final = 1.0
"""How long an unwanted response body is read, so that the connection can be reused."""


class RequestFailed(PenstockError):
    """The request got no response."""

    code = "egress.failed"
    http_status = 502
    retryable = True

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message, detail={"kind": kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to send. The response's body is read only if `read_body`.

    `keep_alive`: reuse a pooled connection if there is one, and return it to the pool. A pooled
    connection that turns out to be closed is replaced, so such a request may arrive twice.
    """

    method: str = "POST"
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout_s: float = 30.0
    read_body: bool = False
    keep_alive: bool = False
    owner: str = ""
    """Customer that owns the URL; hanging lookups of one owner never delay those of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class HttpClient:
    """HTTP client that enforces the egress rules; safe to use from any thread."""

    def __init__(
        self,
        clock: Clock,
        rules: EgressRules = STRICT,
        *,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self._clock = clock
        self._rules = rules
        self._tls = tls
        self._tls_lock = threading.Lock()
        self._lookups = Lookups(resolve or _lookup)
        self._pool = IdleConnections(clock)

    @property
    def rules(self) -> EgressRules:
        """The rules that requests must satisfy."""
        return self._rules

    def send(self, request: Request) -> HttpResponse:
        """Send a request; raise InvalidInput if the rules forbid it, RequestFailed on failure."""
        target = parse_target(request.url, self._rules)
        deadline = _Deadline(self._clock, request.timeout_s)
        try:
            reply = self._send_again(target, request, deadline) if request.keep_alive else None
            if reply is not None:
                return reply
            addresses = self._addresses(target, request.owner, deadline)
            stream = self._connect(target, addresses, deadline)
            return self._send_on(stream, target, request, None)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _failed(target, error) from None

    def close(self) -> None:
        """Close the pooled connections; the object stays usable."""
        self._pool.close()

    def _send_again(
        self, target: Target, request: Request, deadline: _Deadline
    ) -> HttpResponse | None:
        """Send on a pooled connection; return None if there is none or the server closed it."""
        pooled = self._pool.take(target.origin)
        if pooled is None:
            return None
        try:
            return self._send_on(_Stream(pooled.raw, deadline), target, request, pooled.opened_at)
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return None  # no response: the server had closed it

    def _send_on(
        self, stream: _Stream, target: Target, request: Request, made_at: float | None
    ) -> HttpResponse:
        is_reusable = False
        try:
            reply, is_reusable = _exchange(stream, target, request)
        finally:
            if is_reusable:
                self._pool.put(target.origin, stream.raw, made_at)
            else:
                stream.end()
        return reply

    def _addresses(self, target: Target, owner: str, deadline: _Deadline) -> list[Address]:
        """Return every address of the name, checked; a failed or hanging lookup allows none."""
        try:
            found = self._lookups.addresses(target.host, target.port, owner, deadline.left())
        except TooManyLookupsError:
            raise RequestFailed("lookup", f"{target.host}: too many lookups in progress") from None
        except TimeoutError:
            text = f"{target.host}: the name did not resolve in time"
            raise RequestFailed("timeout", text) from None
        except Exception as error:
            reason = type(error).__name__
            text = f"{target.host}: the name does not resolve ({reason})"
            raise RequestFailed("lookup", text) from None
        return check_addresses(found, self._rules)

    def _connect(
        self, target: Target, addresses: Sequence[Address], deadline: _Deadline
    ) -> _Stream:
        """Connect to the first of the checked addresses that accepts the connection."""
        for address in addresses[:-1]:
            with contextlib.suppress(OSError):
                return self._connect_to(target, address, deadline)
        return self._connect_to(target, addresses[-1], deadline)

    def _connect_to(self, target: Target, address: Address, deadline: _Deadline) -> _Stream:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.settimeout(min(CONNECT_SECONDS, deadline.left()))
            plain.connect((str(address), target.port))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not target.is_tls:
                return _Stream(plain, deadline)
            plain.settimeout(min(CONNECT_SECONDS, deadline.left()))
            wrapped = self._context().wrap_socket(plain, server_hostname=target.host)
            return _Stream(wrapped, deadline)
        except BaseException:
            plain.close()
            raise

    def _context(self) -> ssl.SSLContext:
        """Return the TLS context; created on first use, since loading certificates is slow."""
        with self._tls_lock:
            if self._tls is None:
                self._tls = ssl.create_default_context()
            return self._tls


class _Deadline:
    """One deadline for all steps of a request."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left; raise TimeoutError when there are none."""
        left = self._at - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline passed")
        return left

    def shorten(self, seconds: float) -> None:
        """Shorten the deadline to at most `seconds` from now."""
        self._at = min(self._at, self._clock.monotonic() + seconds)


class _Stream:
    """A connected socket whose every operation is bounded by the deadline.

    Implements what `http.client` needs of a socket: sending, a file to read from, and close.
    """

    def __init__(self, raw: socket.socket, deadline: _Deadline) -> None:
        self.raw = self._raw = raw
        self._deadline = deadline
        self._unsent: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        """Add data to the request; it is sent when the response is read, headers with the body."""
        self._unsent.append(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Send the request, and return the file that the response is read from."""
        assert mode == "rb", mode
        self._flush()
        return io.BufferedReader(_Reader(self._raw, self._deadline))

    def close(self) -> None:
        """Do nothing: `http.client` closes before reading; the caller ends the connection."""

    def shorten(self, seconds: float) -> None:
        """Shorten the deadline to at most `seconds` from now."""
        self._deadline.shorten(seconds)

    def end(self) -> None:
        """Close the socket."""
        self._raw.close()

    def _flush(self) -> None:
        """Send everything, in pieces that each check the deadline."""
        view = memoryview(b"".join(self._unsent))
        self._unsent.clear()
        while view:
            self._raw.settimeout(self._deadline.left())
            view = view[self._raw.send(view[:SEND_CHUNK]) :]


class _Reader(io.RawIOBase):
    """Bytes received, each read bounded by the deadline."""

    def __init__(self, raw: socket.socket, deadline: _Deadline) -> None:
        self._raw = raw
        self._deadline = deadline

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes."""
        self._raw.settimeout(self._deadline.left())
        return self._raw.recv_into(buffer)


class _Response(http.client.HTTPResponse):
    """Response that skips 103 Early Hints; 102 is final, as in Google's push semantics."""

    def begin(self) -> None:
        """Read the status and headers of the final response."""
        for _ in range(HINTS_MAX):
            super().begin()
            if self.status != 103:
                return
            self.headers = self.msg = None  # type: ignore[assignment]
        raise http.client.BadStatusLine("too many 103 responses")


def _exchange(stream: _Stream, target: Target, request: Request) -> tuple[HttpResponse, bool]:
    """Send the request; return the reply and whether the connection can be reused."""
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.response_class = _Response
    connection.sock = stream
    connection.putrequest(request.method, target.path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", target.host_header)
    connection.putheader("Connection", "keep-alive" if request.keep_alive else "close")
    connection.putheader("Accept-Encoding", "identity")
    for name, value in request.headers.items():
        connection.putheader(name, value)
    if request.body or request.method != "GET":
        connection.putheader("Content-Length", str(len(request.body)))
    connection.endheaders(request.body or None)
    with contextlib.closing(connection.getresponse()) as response:
        headers = {name.lower(): value for name, value in response.getheaders()}
        # After a 1xx status another response follows, regardless of its headers.
        is_reusable = request.keep_alive and response.status >= 200 and not response.will_close
        body = b""
        if request.read_body:
            body = response.read(BODY_MAX + 1)
            if len(body) > BODY_MAX:
                raise RequestFailed(
                    "too_large", f"{target.origin}: response over {BODY_MAX:,} bytes"
                )
        elif is_reusable:
            stream.shorten(DRAIN_SECONDS)
            is_reusable = _is_short(response)
        is_reusable = is_reusable and response.isclosed()
        return HttpResponse(status=response.status, headers=headers, body=body), is_reusable


def _is_short(response: http.client.HTTPResponse) -> bool:
    """Read an unwanted body to its end; return False when it does not end soon."""
    try:
        return len(response.read(BODY_MAX + 1)) <= BODY_MAX
    except (OSError, http.client.HTTPException, ValueError):
        return False  # only the status matters


def _failed(target: Target, error: Exception) -> RequestFailed:
    """Describe a failure without quoting anything the server sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return RequestFailed("certificate", f"{target.origin}: {error.verify_message}")
    if isinstance(error, TimeoutError):
        return RequestFailed("timeout", f"{target.origin}: no response in time")
    if isinstance(error, ssl.SSLError):
        return RequestFailed("tls", f"{target.origin}: {error.reason or 'no encrypted connection'}")
    if isinstance(error, ConnectionError):
        return RequestFailed("connection", f"{target.origin}: {type(error).__name__}")
    if isinstance(error, http.client.HTTPException | ValueError):
        return RequestFailed(
            "protocol", f"{target.origin}: invalid response ({type(error).__name__})"
        )
    return RequestFailed("connection", f"{target.origin}: {error.__class__.__name__}")


def _lookup(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(where[0]) for *_, where in found))
