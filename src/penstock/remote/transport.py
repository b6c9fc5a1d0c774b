"""HTTP(S) requests with the standard library: connection reuse, timeouts, safe retries.

A request is retried only if that is safe. If nothing was sent, or the server rejected the request
before processing it (429, overloaded), it is always retried. If the response was lost or the
database is unavailable, reads and POSTs are retried; every POST has an Idempotency-Key. PATCH and
DELETE then raise the error, because the change may have been made. Redirects are not followed and
proxies are not used, so that the key is sent only to the given host. No error or log contains the
key.
"""

from __future__ import annotations

import contextlib
import json
import random
import ssl
import threading
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from penstock.access.api_keys import parse as parse_key
from penstock.core.clock import Clock, SystemClock, from_datetime
from penstock.core.errors import ApiError, ApiUnavailable, InvalidInput, PenstockError
from penstock.core.ids import new_correlation_id
from penstock.core.tracing.current import current_context
from penstock.core.tracing.trace_context import TRACEPARENT
from penstock.egress.addresses import is_loopback
from penstock.remote.problems import error_of

BACKOFF_SECONDS: Final = 0.25
WAIT_SECONDS_MAX: Final = 30.0
IDLE_MAX: Final = 8
REFUSED: Final = frozenset({"rate.exceeded", "overloaded", "draining"})
"""Error codes of requests that the server rejected before it did anything."""

Headers = Mapping[str, str | None]
Query = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    target: str
    body: bytes | None
    headers: dict[str, str] = field(repr=False)
    timeout: float

    @property
    def is_repeatable(self) -> bool:
        """Whether the request can be sent twice safely."""
        return self.method == "GET" or "Idempotency-Key" in self.headers


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    headers: dict[str, str]
    body: bytes


class _NotSent(Exception):
    """The connection failed; the server did not receive the request."""


class Transport:
    """A connection pool to one server; thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        attempts: int = 4,
        allow_plain: bool = False,
        clock: Clock | None = None,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        """Connect to the server at `url`; a path in it is the prefix of all API paths.

        `timeout` is in seconds without data from the server; `attempts` counts the first try. A key
        is sent unencrypted only to this machine, unless `allow_plain` is set.
        """
        self.url, self._prefix, self._connect = _address(url)
        self._check_key(key, allow_plain)
        self._key = key
        self._timeout = timeout
        self._attempts = max(1, attempts)
        self._clock = clock or SystemClock()
        self._jitter = jitter or random.Random().random  # noqa: S311 - spreads repeats
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self.server_now: int | None = None
        """Server time in microseconds, to the second, from its last response."""
        self._extra: Headers = {}

    def __repr__(self) -> str:
        return f"Transport({self.url!r})"

    def dry_run(self) -> Transport:
        """Return the same connections for dry runs: changes are rolled back by the server."""
        other = copy(self)
        other._extra = {"Dry-Run": "true"}
        return other

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Headers | None = None,
    ) -> Any:
        """Send a request; return the response's JSON, None if it is empty, or raise its error."""
        response = self._send(self._request(method, path, query, body, headers))
        return json.loads(response.body) if response.body else None

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        headers: Headers | None = None,
        wait_seconds: float = 0.0,
    ) -> bytes:
        """Send a request whose body is JSON; return the body of the response or raise its error."""
        made = self._request(method, path, query, body, headers, wait_seconds)
        return self._send(made).body

    def close(self) -> None:
        """Close idle connections; idempotent."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _check_key(self, key: str | None, allow_plain: bool) -> None:
        if key is None:
            return
        if parse_key(key) is None:
            fix = "Check that it is complete, or create another with `penstock keys create`."
            raise InvalidInput("api_key", "a key such as pnk_…", "a malformed key", fix)
        host = urlsplit(self.url).hostname or ""
        if self.url.startswith("http:") and not is_loopback(host) and not allow_plain:
            raise InvalidInput(
                "url",
                "https, because a key would be sent unencrypted",
                self.url,
                "Use https, or set PENSTOCK_URL_PLAIN=allowed if the network is safe.",
            )

    def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object,
        headers: Headers | None,
        waits: float = 0.0,
    ) -> _Request:
        sent = {"Accept": "application/json, application/problem+json", "User-Agent": "penstock"}
        context = current_context()
        if context is not None:
            sent[TRACEPARENT] = context.header
        sent |= {name: value for name, value in (headers or {}).items() if value is not None}
        if method != "GET":
            sent |= {name: value for name, value in self._extra.items() if value is not None}
        if self._key is not None:
            sent["Authorization"] = f"Bearer {self._key}"
        if isinstance(body, dict):
            waits = body.get("wait_seconds") or 0
        # With an Idempotency-Key the server would not wait, so long polls are sent without one.
        if method == "POST" and not waits:
            sent.setdefault("Idempotency-Key", new_correlation_id())
        raw = None
        if body is not None:
            raw = body if isinstance(body, bytes) else json.dumps(body, allow_nan=False).encode()
            sent["Content-Type"] = "application/json"
        asked = {name: _spelled(v) for name, v in (query or {}).items() if v is not None}
        target = f"{self._prefix}{path}{'?' + urlencode(asked) if asked else ''}"
        return _Request(
            method=method, target=target, body=raw, headers=sent, timeout=self._timeout + waits
        )

    def _send(self, request: _Request) -> _Response:
        """Send a request, retrying it while that is safe and useful."""
        attempt = 0
        while True:
            attempt += 1
            waited = 0.0
            try:
                response = self._once(request)
                if response.status < 300:
                    return response
                error = error_of(response.status, response.body, self.url)
                waited = _retry_after(response.headers)
                is_over = response.status not in (429, 503) or waited > WAIT_SECONDS_MAX
                is_over = is_over or not (request.is_repeatable or error.code in REFUSED)
            except ssl.SSLCertVerificationError as fault:
                raise ApiUnavailable(
                    f"cannot verify the certificate of {self.url}: {fault.verify_message}."
                ) from None
            except _NotSent as fault:
                error, is_over = ApiUnavailable(f"cannot reach {self.url}: {fault}."), False
            except (OSError, HTTPException) as fault:
                error, is_over = self._lost(request, fault), not request.is_repeatable
            if is_over or attempt >= self._attempts:
                raise error
            backoff = BACKOFF_SECONDS * 2 ** (attempt - 1) * (0.5 + self._jitter())
            self._clock.sleep(max(waited, backoff))

    def _lost(self, request: _Request, fault: Exception) -> PenstockError:
        why = "it timed out" if isinstance(fault, TimeoutError) else "the connection was lost"
        maybe = "" if request.is_repeatable else " The change may have been made: check first."
        return ApiUnavailable(f"no response from {self.url}: {why}.{maybe}")

    def _once(self, request: _Request) -> _Response:
        idle = self._take_idle() if request.is_repeatable else None
        if idle is not None and idle.sock is not None:
            idle.sock.settimeout(request.timeout)
            # If the server has closed the idle connection, use a new one immediately.
            with contextlib.suppress(ConnectionError):
                return self._over(idle, request)
        return self._over(self._opened(request), request)

    def _over(self, connection: HTTPConnection, request: _Request) -> _Response:
        try:
            connection.request(request.method, request.target, request.body, request.headers)
            got = connection.getresponse()
            response = _Response(got.status, _lower(got), got.read())
        except BaseException:
            connection.close()
            raise
        self._keep(connection, got)
        if 300 <= response.status < 400:
            raise ApiError(f"{self.url} returned {response.status}: redirects are not followed.")
        date = response.headers.get("date")
        if date is not None:
            with contextlib.suppress(ValueError):  # a date that is none is ignored
                self.server_now = from_datetime(parsedate_to_datetime(date))
        return response

    def _take_idle(self) -> HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _opened(self, request: _Request) -> HTTPConnection:
        connection = self._connect(request.timeout)
        try:
            connection.connect()
        except ssl.SSLCertVerificationError:
            raise
        except OSError as fault:
            connection.close()
            raise _NotSent(fault.strerror or type(fault).__name__) from None
        return connection

    def _keep(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        with self._lock:
            if not response.will_close and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()


def _address(url: str) -> tuple[str, str, Callable[[float], HTTPConnection]]:
    """Split a URL into origin, path prefix and a function that opens a connection."""
    example = "a URL such as https://penstock.example or http://127.0.0.1:8080"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidInput("url", example, url.rpartition("@")[2]) from None
    host = parts.hostname
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise InvalidInput("url", example, url.rpartition("@")[2])
    if parts.username is not None or parts.password is not None:
        fix = "Set the key in PENSTOCK_API_KEY."
        raise InvalidInput("url", f"{example}, without a user", parts.hostname, fix)
    shown = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}"

    def connect(timeout: float) -> HTTPConnection:
        if parts.scheme == "http":
            return HTTPConnection(host, port, timeout=timeout)
        return HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())

    return origin, parts.path.rstrip("/"), connect


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lower(response: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _retry_after(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    return float(text) if text.isdecimal() and len(text) < 10 else 0.0
