"""One HTTP request to an address that was judged, within one deadline.

The name is resolved once; every address it has must be allowed (`core.egress`); the connection goes
to one of exactly those addresses, with the name in SNI, certificate check and Host header. No
redirect is followed, no proxy of the environment is asked, a response is read up to 64 KB, and the
deadline covers everything from the lookup to the last byte: dripping bytes gains nothing. A request
that `keeps` leaves its connection for the next one (`egress.kept`). What goes wrong is a `Failed`,
with a reason that says nothing about the response's body.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.egress.connection_pool import Kept
from penstock.egress.policy import STRICT, Address, EgressRules, Target, judge_all, parse_target

BODY_MAX: Final = 65_536
CONNECT_SECONDS: Final = 10.0
LOOKUPS_MAX: Final = 32
HINTS_MAX: Final = 8
SEND_CHUNK: Final = 65_536
DRAIN_SECONDS: Final = 1.0
"""How long a body that nobody asks for is read, so that the connection can be kept."""

Resolve: TypeAlias = Callable[[str, int], Sequence[str]]
"""(host, port) → the addresses of a name; raises OSError when there are none."""


class Failed(PenstockError):
    """The request was not answered."""

    code = "egress.failed"
    http_status = 502
    retryable = True

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message, detail={"kind": kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent. `wants_body` False: nobody asks for the answer's body.

    `keeps`: the connection may be one that was left, and is left for the next request. One that
    turns out to be closed is replaced: such a request may arrive twice.
    """

    method: str = "POST"
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 30.0
    wants_body: bool = False
    keeps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Egress:
    """Sends requests under the rules; safe to use from any thread."""

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
        self._making = threading.Lock()
        self._resolve = resolve or _look_up
        self._lookups = threading.BoundedSemaphore(LOOKUPS_MAX)
        self._kept = Kept(clock)

    @property
    def rules(self) -> EgressRules:
        """What is allowed."""
        return self._rules

    def send(self, request: Request) -> Reply:
        """Send a request; InvalidInput when the rules refuse it, Failed when it is not answered."""
        target = parse_target(request.url, self._rules)
        deadline = _Deadline(self._clock, request.seconds)
        try:
            reply = self._send_again(target, request, deadline) if request.keeps else None
            if reply is not None:
                return reply
            addresses = self._addresses(target, deadline)
            line = self._connect(target, addresses, deadline)
            return self._send_on(line, target, request, None)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _failed(target, error) from None

    def close(self) -> None:
        """Close the connections that wait for another request; it may be used again."""
        self._kept.close()

    def _send_again(self, target: Target, request: Request, deadline: _Deadline) -> Reply | None:
        """Send on a connection that was kept; None when there is none, or it was closed by now."""
        kept = self._kept.take(target.origin)
        if kept is None:
            return None
        try:
            return self._send_on(_Line(kept.raw, deadline), target, request, kept.made_at)
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return None  # no answer: the other side had closed it

    def _send_on(
        self, line: _Line, target: Target, request: Request, made_at: float | None
    ) -> Reply:
        is_reusable = False
        try:
            reply, is_reusable = _exchange(line, target, request)
        finally:
            if is_reusable:
                self._kept.put(target.origin, line.raw, made_at)
            else:
                line.end()
        return reply

    def _addresses(self, target: Target, deadline: _Deadline) -> list[Address]:
        """Every address of the name, judged; a lookup that fails or hangs allows nothing."""
        if not self._lookups.acquire(blocking=False):
            raise Failed("lookup", f"{target.host}: too many names are being looked up")
        answer = _Answer()

        def look() -> None:
            try:
                answer.addresses = list(self._resolve(target.host, target.port))
            except Exception as error:  # a resolver may raise what it likes: nothing is allowed
                answer.error = error
            finally:
                self._lookups.release()
                answer.ready.set()

        # A lookup cannot be interrupted: it gets a thread of its own, which may outlive the wait.
        threading.Thread(target=look, name="penstock-lookup", daemon=True).start()
        if not answer.ready.wait(deadline.left()):
            raise Failed("timeout", f"{target.host}: the name did not resolve in time")
        if answer.error is not None:
            told = type(answer.error).__name__
            raise Failed("lookup", f"{target.host}: the name does not resolve ({told})")
        return judge_all(answer.addresses, self._rules)

    def _connect(self, target: Target, addresses: Sequence[Address], deadline: _Deadline) -> _Line:
        """A connection to the first of the judged addresses that takes one."""
        for address in addresses[:-1]:
            with contextlib.suppress(OSError):
                return self._connect_to(target, address, deadline)
        return self._connect_to(target, addresses[-1], deadline)

    def _connect_to(self, target: Target, address: Address, deadline: _Deadline) -> _Line:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.settimeout(min(CONNECT_SECONDS, deadline.left()))
            plain.connect((str(address), target.port))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not target.is_tls:
                return _Line(plain, deadline)
            plain.settimeout(min(CONNECT_SECONDS, deadline.left()))
            wrapped = self._context().wrap_socket(plain, server_hostname=target.host)
            return _Line(wrapped, deadline)
        except BaseException:
            plain.close()
            raise

    def _context(self) -> ssl.SSLContext:
        """Made once, on first use: loading the certificates takes a while."""
        with self._making:
            if self._tls is None:
                self._tls = ssl.create_default_context()
            return self._tls


class _Deadline:
    """One end for all steps of a request."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; TimeoutError when there are none."""
        left = self._at - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline passed")
        return left

    def hurry(self, seconds: float) -> None:
        """Let the rest take no longer than this."""
        self._at = min(self._at, self._clock.monotonic() + seconds)


class _Answer:
    """What a lookup found."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.addresses: list[str] = []
        self.error: Exception | None = None


class _Line:
    """A connected socket whose every step waits no longer than the deadline allows.

    It is what `http.client` takes for a socket: it sends, gives a file to read from, and closes.
    """

    def __init__(self, raw: socket.socket, deadline: _Deadline) -> None:
        self.raw = self._raw = raw
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        """Send everything, in pieces that each see what is left of the time."""
        view = memoryview(data)
        while view:
            self._raw.settimeout(self._deadline.left())
            view = view[self._raw.send(view[:SEND_CHUNK]) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        """What the answer is read from."""
        assert mode == "rb", mode
        return io.BufferedReader(_Incoming(self._raw, self._deadline))

    def close(self) -> None:
        """Nothing: `http.client` closes before it reads; who connected ends the connection."""

    def hurry(self, seconds: float) -> None:
        """Wait no longer than this for the rest."""
        self._deadline.hurry(seconds)

    def end(self) -> None:
        """End the connection."""
        self._raw.close()


class _Incoming(io.RawIOBase):
    """Bytes from the other side, each read bounded by the deadline."""

    def __init__(self, raw: socket.socket, deadline: _Deadline) -> None:
        self._raw = raw
        self._deadline = deadline

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        self._raw.settimeout(self._deadline.left())
        return self._raw.recv_into(buffer)


class _Response(http.client.HTTPResponse):
    """Passes over 103 Early Hints; 102 is an answer, as Google takes it."""

    def begin(self) -> None:
        """Read the status and the headers of the answer that counts."""
        for _ in range(HINTS_MAX):
            super().begin()
            if self.status != 103:
                return
            self.headers = self.msg = None  # type: ignore[assignment]
        raise http.client.BadStatusLine("hints without end")


def _exchange(line: _Line, target: Target, request: Request) -> tuple[Reply, bool]:
    """The answer, and whether the connection is fit for another request."""
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.response_class = _Response
    connection.sock = line
    connection.putrequest(request.method, target.path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", target.host_header)
    connection.putheader("Connection", "keep-alive" if request.keeps else "close")
    connection.putheader("Accept-Encoding", "identity")
    for name, value in request.headers.items():
        connection.putheader(name, value)
    if request.body or request.method != "GET":
        connection.putheader("Content-Length", str(len(request.body)))
    connection.endheaders(request.body or None)
    with contextlib.closing(connection.getresponse()) as answer:
        headers = {name.lower(): value for name, value in answer.getheaders()}
        # After a 1xx there is more to come, whatever it says.
        is_reusable = request.keeps and answer.status >= 200 and not answer.will_close
        body = b""
        if request.wants_body:
            body = answer.read(BODY_MAX + 1)
            if len(body) > BODY_MAX:
                raise Failed("too_large", f"{target.origin}: answered more than {BODY_MAX:,} bytes")
        elif is_reusable:
            line.hurry(DRAIN_SECONDS)
            is_reusable = _is_short(answer)
        is_reusable = is_reusable and answer.isclosed()
        return Reply(status=answer.status, headers=headers, body=body), is_reusable


def _is_short(answer: http.client.HTTPResponse) -> bool:
    """Read an answer that nobody asks for to its end; False when it does not end soon."""
    try:
        return len(answer.read(BODY_MAX + 1)) <= BODY_MAX
    except (OSError, http.client.HTTPException, ValueError):
        return False  # the status counts, its body does not


def _failed(target: Target, error: Exception) -> Failed:
    """What is told of a failure: never what the other side wrote."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failed("certificate", f"{target.origin}: {error.verify_message}")
    if isinstance(error, TimeoutError):
        return Failed("timeout", f"{target.origin}: no answer in time")
    if isinstance(error, ssl.SSLError):
        return Failed("tls", f"{target.origin}: {error.reason or 'no encrypted connection'}")
    if isinstance(error, ConnectionError):
        return Failed("connection", f"{target.origin}: {type(error).__name__}")
    if isinstance(error, http.client.HTTPException | ValueError):
        return Failed("protocol", f"{target.origin}: no proper answer ({type(error).__name__})")
    return Failed("connection", f"{target.origin}: {error.__class__.__name__}")


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(where[0]) for *_, where in found))
