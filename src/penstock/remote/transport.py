"""Requests over HTTP(S), on the standard library: kept connections, timeouts, safe repeats.

A request is repeated when that cannot do harm. Nothing was sent, or the server refused before it
began (429, overloaded): always. The answer was lost or the store is away: reads, and POSTs, which
all carry an Idempotency-Key. PATCH and DELETE then end with the error, because the change may have
been made. Redirects are not followed and proxies are not used, so that a key goes nowhere but to
the host that was named; it is in no error and in no log.
"""

from __future__ import annotations

import contextlib
import json
import random
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from penstock.access.api_keys import parse as parse_key
from penstock.core.clock import Clock, SystemClock, from_datetime
from penstock.core.errors import ApiError, ApiUnavailable, InvalidInput, PenstockError
from penstock.core.ids import new_correlation_id
from penstock.egress.addresses import is_loopback
from penstock.remote.problems import error_of

BACKOFF_SECONDS: Final = 0.25
WAIT_SECONDS_MAX: Final = 30.0
IDLE_MAX: Final = 8
REFUSED: Final = frozenset({"rate.exceeded", "overloaded", "draining"})
"""Codes of refusals before anything was done."""

Headers = Mapping[str, str | None]
Query = Mapping[str, object]


def quoted(part: str) -> str:
    """A value as one part of a path."""
    return quote(part, safe="")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    target: str
    body: bytes | None
    headers: dict[str, str] = field(repr=False)
    timeout: float

    @property
    def is_repeatable(self) -> bool:
        """Whether doing it twice is as good as once."""
        return self.method == "GET" or "Idempotency-Key" in self.headers


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class _NotSent(Exception):
    """No connection: the server has not heard of the request."""


class Transport:
    """One server; safe to use from any thread."""

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
        """The server at `url`; a path in it is put before every path of the API.

        `timeout` is seconds without a sign of life, `attempts` how often a request is tried in
        all. A key is sent unencrypted to this machine only, unless `allow_plain`.
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
        """The server's time in micros, to a second, as of its last answer."""

    def __repr__(self) -> str:
        return f"Transport({self.url!r})"

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Headers | None = None,
    ) -> Any:
        """One request; returns the JSON of its answer (None without one), or raises its error."""
        answer = self._send(self._request(method, path, query, body, headers))
        return json.loads(answer.body) if answer.body else None

    def lines(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Headers | None = None,
    ) -> Any:
        """As `call`, for an answer of one JSON value to a line."""
        answer = self._send(self._request(method, path, query, body, headers))
        return [json.loads(line) for line in answer.body.splitlines() if line]

    def text(self, method: str, path: str, *, query: Query | None = None) -> str:
        """As `call`, for an answer that is plain text."""
        return self._send(self._request(method, path, query, None, None)).body.decode()

    def close(self) -> None:
        """Close kept connections; idempotent."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _check_key(self, key: str | None, allow_plain: bool) -> None:
        if key is None:
            return
        if parse_key(key) is None:
            fix = "Check that it was not cut off; make another with `penstock keys create`."
            raise InvalidInput("api_key", "a key such as pnk_…", "something else", fix)
        host = urlsplit(self.url).hostname or ""
        if self.url.startswith("http:") and not is_loopback(host) and not allow_plain:
            raise InvalidInput(
                "url",
                "https, because a key would be sent unencrypted",
                self.url,
                "Use https, or say that the network is safe: PENSTOCK_URL_PLAIN=allowed.",
            )

    def _request(
        self, method: str, path: str, query: Query | None, body: object, headers: Headers | None
    ) -> _Request:
        sent = {"Accept": "application/json, application/problem+json", "User-Agent": "penstock"}
        sent |= {name: value for name, value in (headers or {}).items() if value is not None}
        if self._key is not None:
            sent["Authorization"] = f"Bearer {self._key}"
        waits = body.get("wait_seconds") or 0 if isinstance(body, dict) else 0
        # A request that waits for work on purpose is answered at once under a key.
        if method == "POST" and not waits:
            sent.setdefault("Idempotency-Key", new_correlation_id())
        raw = None
        if body is not None:
            raw = json.dumps(body, allow_nan=False).encode()
            sent["Content-Type"] = "application/json"
        asked = {name: _spelled(v) for name, v in (query or {}).items() if v is not None}
        target = f"{self._prefix}{path}{'?' + urlencode(asked) if asked else ''}"
        return _Request(
            method=method, target=target, body=raw, headers=sent, timeout=self._timeout + waits
        )

    def _send(self, request: _Request) -> _Answer:
        """Try until there is an answer to give, or no use in trying."""
        attempt = 0
        while True:
            attempt += 1
            waited = 0.0
            try:
                answer = self._once(request)
                if answer.status < 300:
                    return answer
                error = error_of(answer.status, answer.body, self.url)
                waited = _retry_after(answer.headers)
                is_over = answer.status not in (429, 503) or waited > WAIT_SECONDS_MAX
                is_over = is_over or not (request.is_repeatable or error.code in REFUSED)
            except ssl.SSLCertVerificationError as fault:
                raise ApiUnavailable(
                    f"{self.url} is not who it says it is: {fault.verify_message}."
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
        why = "it did not answer in time" if isinstance(fault, TimeoutError) else "it broke off"
        maybe = "" if request.is_repeatable else " The change may have been made: look first."
        return ApiUnavailable(f"no answer from {self.url}: {why}.{maybe}")

    def _once(self, request: _Request) -> _Answer:
        kept = self._kept() if request.is_repeatable else None
        if kept is not None and kept.sock is not None:
            kept.sock.settimeout(request.timeout)
            # The server may have closed it meanwhile: then at once on a new one.
            with contextlib.suppress(ConnectionError):
                return self._over(kept, request)
        return self._over(self._opened(request), request)

    def _over(self, connection: HTTPConnection, request: _Request) -> _Answer:
        try:
            connection.request(request.method, request.target, request.body, request.headers)
            got = connection.getresponse()
            answer = _Answer(got.status, _lower(got), got.read())
        except BaseException:
            connection.close()
            raise
        self._keep(connection, got)
        if 300 <= answer.status < 400:
            raise ApiError(f"{self.url} answered {answer.status}: redirects are not followed.")
        date = answer.headers.get("date")
        if date is not None:
            self.server_now = from_datetime(parsedate_to_datetime(date))
        return answer

    def _kept(self) -> HTTPConnection | None:
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

    def _keep(self, connection: HTTPConnection, answer: HTTPResponse) -> None:
        with self._lock:
            if not answer.will_close and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()


def _address(url: str) -> tuple[str, str, Callable[[float], HTTPConnection]]:
    """(scheme and host, path before the API's, how to connect) of a URL."""
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
        fix = "The key belongs into PENSTOCK_API_KEY."
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


def _lower(answer: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.getheaders()}


def _retry_after(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    return float(text) if text.isdigit() and len(text) < 10 else 0.0
