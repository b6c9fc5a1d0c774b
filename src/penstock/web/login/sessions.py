"""Sessions of people: the cookie, the cache of callers, the limit on wrong keys."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.access.api_keys import Principal, hash_secret
from penstock.client import Client
from penstock.core.clock import Clock
from penstock.server.auth import Caller, TokenBucket
from penstock.server.overload.admission import BoundedThreads
from penstock.server.problems import Refused
from penstock.web.live.fragments import FRAGMENT_HEADER

COOKIE: Final = "penstock"
SECURE_COOKIE: Final = "__Host-penstock"
TOKEN: Final = re.compile(r"[0-9a-z]{40}")
CACHE_SECONDS: Final = 30.0
"""Time within which a revoked key ends its sessions on every replica."""
USE_SECONDS: Final = 60.0
SESSIONS_MAX: Final = 10_000
RATE: Final = 50.0
LOOKUPS_WAITING_MAX: Final = 200
TRIES: Final = 5
TRY_SECONDS: Final = 60.0
ADDRESSES_MAX: Final = 10_000


@dataclass(slots=True)
class _Known:
    caller: Caller
    until: float
    bucket: TokenBucket
    used_at: float
    """When a lookup last recorded activity of the person."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person with a session: the caller it acts as, and the token of its cookie."""

    caller: Caller
    token: str


class SessionCache:
    """Finds the caller of a session; caches it for 30 seconds."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._threads = BoundedThreads(1, LOOKUPS_WAITING_MAX)
        self._lookups: dict[tuple[str, bool], asyncio.Task[Caller | None]] = {}

    def is_known(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a request has a session that was valid before."""
        token = _token(headers.get(b"cookie", b"").decode("latin-1"))
        return token is not None and token in self._known

    async def find(self, request: Request) -> Visitor | None:
        """Return the session of a request; None without one. Raise Refused above the rate."""
        token = _token(request.headers.get("cookie", ""))
        if token is None:
            return None
        is_use = FRAGMENT_HEADER not in request.headers
        now = self._clock.monotonic()
        with self._lock:
            known = self._known.get(token)
            if known is not None and known.until > now:
                wait = known.bucket.take(now)
                if wait > 0:
                    raise Refused(
                        429,
                        "The session exceeded its request rate: retry later (see Retry-After).",
                        headers={"Retry-After": str(math.ceil(wait))},
                    )
                if not is_use or known.used_at > now - USE_SECONDS:
                    return Visitor(known.caller, token)
        caller = await self._shared_lookup(token, is_use=is_use)
        return None if caller is None else Visitor(caller, token)

    async def is_open(self, request: Request) -> bool:
        """Return whether the session of a stream has not ended; the stream is not a use of it."""
        token = _token(request.headers.get("cookie", ""))
        known = None if token is None else self._known.get(token)
        if known is not None and known.until > self._clock.monotonic():
            return True
        return token is not None and await self._shared_lookup(token, is_use=False) is not None

    async def _shared_lookup(self, token: str, *, is_use: bool) -> Caller | None:
        lookup = self._lookups.get((token, is_use))
        if lookup is None:  # requests that arrive meanwhile share the lookup
            work = partial(self._look_up, token, is_use=is_use)
            lookup = asyncio.ensure_future(self._threads.run(work))
            self._lookups[token, is_use] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop((token, is_use), None))
        return await asyncio.shield(lookup)

    def add(self, token: str, principal: Principal, *, is_use: bool = True) -> Caller:
        """Cache a session and return its caller."""
        now = self._clock.monotonic()
        caller = self._caller(principal)
        seconds = min(CACHE_SECONDS, principal.valid_seconds or math.inf)
        with self._lock:
            before = self._known.pop(token, None)
            bucket = TokenBucket(RATE, now) if before is None else before.bucket
            used_at = now if is_use or before is None else before.used_at
            self._known[token] = _Known(caller, now + seconds, bucket, used_at)
            while len(self._known) > SESSIONS_MAX:
                self._known.popitem(last=False)
        return caller

    def drop(self, token: str) -> None:
        """Remove a session from the cache."""
        with self._lock:
            self._known.pop(token, None)

    def drop_by_id(self, session_id: str) -> None:
        """Remove a session from the cache, by the id that lists show."""
        with self._lock:
            for token in [t for t in self._known if hash_secret(t).startswith(session_id)]:
                del self._known[token]

    def _look_up(self, token: str, *, is_use: bool) -> Caller | None:
        principal = self._client.logins.find(token, is_use=is_use)
        if principal is None:
            self.drop(token)
            return None
        return self.add(token, principal, is_use=is_use)

    def _caller(self, principal: Principal) -> Caller:
        actor, key = principal.actor, principal.key
        if principal.customer_id is not None:
            scoped = self._client.scoped(principal.customer_id, actor=actor, key=key)
            return Caller(principal, scoped)
        return Caller(principal, self._client.as_actor(actor, key=key))


class LoginTries:
    """Counts refused logins by client address; five in a minute are too many."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()

    def wait_seconds(self, address: str) -> int:
        """Return how long an address has too many refused logins; 0 if it has not."""
        now = self._clock.monotonic()
        with self._lock:
            recent = [at for at in self._wrong.get(address, ()) if at > now - TRY_SECONDS]
        return 0 if len(recent) < TRIES else math.ceil(recent[0] + TRY_SECONDS - now)

    def count(self, address: str) -> None:
        """Count a refused login."""
        now = self._clock.monotonic()
        with self._lock:
            kept = [at for at in self._wrong.pop(address, ()) if at > now - TRY_SECONDS]
            self._wrong[address] = [*kept, now][-TRIES:]
            while len(self._wrong) > ADDRESSES_MAX:
                self._wrong.popitem(last=False)


def set_cookie(request: Request, response: Response, token: str, seconds: float) -> None:
    """Set the session cookie; scripts cannot read it and other sites cannot send it."""
    secure = is_https(request)
    response.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        token,
        max_age=int(seconds),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def clear_cookies(request: Request, response: Response) -> None:
    """Delete the session cookies."""
    if is_https(request):
        response.delete_cookie(
            SECURE_COOKIE, path="/", secure=True, httponly=True, samesite="strict"
        )
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


def is_https(request: Request) -> bool:
    """Return whether the browser uses TLS, to this server or to the proxy in front of it."""
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip()
    return request.url.scheme == "https" or forwarded == "https"


def _token(header: str) -> str | None:
    """Return the session's token from a Cookie header."""
    if not header or len(header) > 8_192:
        return None
    try:
        found = SimpleCookie(header)
    except CookieError:
        return None
    for name in (SECURE_COOKIE, COOKIE):
        if name in found and TOKEN.fullmatch(found[name].value):
            return found[name].value
    return None
