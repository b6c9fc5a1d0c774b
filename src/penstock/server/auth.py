"""Authentication: turns an Authorization header into a Caller and limits each key's request rate.

Valid keys are cached for 30 seconds, or until they expire, and unknown ones for 5, so that a
revocation takes effect on every replica within 60 seconds. A long poll looks up its key again
before it returns anything. The cache is not extended while the database is unavailable. Lookups run
on two dedicated threads, one for keys that were valid before and one for all others, so that
attempts to guess keys do not delay known callers. Each key has a token bucket per process.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from penstock.access import api_keys, run_credentials
from penstock.access.api_keys import Principal
from penstock.client import Client
from penstock.core.clock import Clock
from penstock.core.errors import NotFound
from penstock.server.overload.admission import BoundedThreads
from penstock.server.overload.connections import Standing
from penstock.server.problems import Refused

VALID_CACHE_SECONDS: Final = 30.0
INVALID_CACHE_SECONDS: Final = 5.0
CHECK_AGAIN_SECONDS: Final = 5.0
"""Age of a cache entry from which a long poll looks up its key again."""
LOOKUPS_WAITING_MAX: Final = 200
WRONG_TOKENS_RATE: Final = 5.0
"""Maximum wrong scheduler tokens per second; further requests get 429."""
WAIT_MAX_S: Final = 86_400.0
"""Maximum value of Retry-After."""
KEYS_MAX: Final = 10_000
REFUSED_MAX: Final = 1_000
GRANTS_MAX: Final = 10_000
CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="penstock"'}


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal of a request and a client that acts on its behalf."""

    principal: Principal
    client: Client

    @property
    def actor(self) -> str:
        """Name that is recorded as the actor of changes."""
        return self.principal.actor

    @property
    def key(self) -> str:
        """Public id of the key; a grant has its own."""
        return self.principal.key

    @property
    def customer(self) -> str | None:
        """Customer that the key is restricted to; None for all customers."""
        return self.principal.customer_id


class TokenBucket:
    """A token bucket: `rate` requests per second, at most `burst` at once."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, 2 * rate)
        self._left = self._burst
        self._at = now

    def take(self, now: float) -> float:
        """Take a token; return 0, or the seconds until one is available, at most a day."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return min((1 - self._left) / self._rate, WAIT_MAX_S)


@dataclass(slots=True)
class _Known:
    caller: Caller | None
    until: float
    bucket: TokenBucket
    at: float
    """When the key was looked up."""


class KeyCache:
    """A cache of callers by key; thread-safe."""

    def __init__(self, client: Client, *, clock: Clock, rate: float) -> None:
        """Authenticate with the client's keys; `rate` applies to keys without their own."""
        self._client = client
        self._clock = clock
        self._rate = rate
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._refused: OrderedDict[str, _Known] = OrderedDict()
        """Kept apart, so that guessing many keys does not evict valid ones."""
        self._known_threads = BoundedThreads(1, LOOKUPS_WAITING_MAX)
        self._other_threads = BoundedThreads(1, LOOKUPS_WAITING_MAX)
        self._wrong_tokens = TokenBucket(WRONG_TOKENS_RATE, clock.monotonic())
        self._lookups: dict[str, asyncio.Task[_Known]] = {}
        self._grants: OrderedDict[str, _Known] = OrderedDict()
        """Credentials of runs, kept apart like refused keys."""
        self._run_secret: bytes | None = None

    def accept_grants(self, secret: bytes) -> None:
        """Accept the credentials of runs that this secret signed."""
        self._run_secret = secret

    async def authenticate(self, text: str) -> _Known:
        """Return the entry of a key, from the cache or the database; raise Refused if unknown."""
        known = self.cached(text)
        if known is not None:
            return known
        grant = self._grant(text)
        if grant is not None:
            before = self._grants.get(text)
            if before is not None:
                return before
            return await self._known_threads.run(lambda: self._look_up_grant(text, grant))
        if api_keys.parse(text) is None:
            raise unauthorised()
        lookup = self._lookups.get(text)
        if lookup is None:  # requests that arrive meanwhile share the lookup
            threads = self._known_threads if text in self._known else self._other_threads
            lookup = asyncio.ensure_future(threads.run(lambda: self.look_up(text)))
            self._lookups[text] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(text, None))
        return await asyncio.shield(lookup)

    def check_again(self, text: str) -> None:
        """Raise Refused if a key that was valid no longer is; blocks."""
        known = self.cached(text)
        if known is None or known.at + CHECK_AGAIN_SECONDS < self._clock.monotonic():
            known = self.look_up(text)
        if known.caller is None:
            raise unauthorised()

    def cached(self, text: str) -> _Known | None:
        """Return the cached entry of a key; None if it must be looked up."""
        known = self._known.get(text) or self._refused.get(text)
        return known if known is not None and known.until > self._clock.monotonic() else None

    def standing(self, text: str) -> Standing:
        """Return whether a key was valid before, or is at least well-formed, without a lookup."""
        if text in self._known or self._grant(text) is not None:
            return Standing.KNOWN
        return Standing.NONE if api_keys.parse(text) is None else Standing.PLAUSIBLE

    def look_up(self, text: str) -> _Known:
        """Look a key up in the database and cache the result; blocks."""
        asked = self._clock.monotonic()
        principal = self._client.keys.authenticate(text)
        caller = None if principal is None else self._caller(principal)
        rate = self._rate
        if principal is not None and principal.rate is not None:
            rate = principal.rate
        with self._lock:
            before = self._known.pop(text, None)
            bucket = before.bucket if before is not None else TokenBucket(rate, asked)
            self._refused.pop(text, None)
            if principal is None or caller is None:
                kept, most, until = self._refused, REFUSED_MAX, asked + INVALID_CACHE_SECONDS
            else:
                seconds = min(VALID_CACHE_SECONDS, principal.valid_seconds or math.inf)
                kept, most, until = self._known, KEYS_MAX, asked + seconds
            known = kept[text] = _Known(caller, until, bucket, asked)
            while len(kept) > most:
                kept.popitem(last=False)
        return known

    def _grant(self, text: str) -> run_credentials.RunGrant | None:
        """Return the grant of a run's credential; None for anything else. Needs no lookup."""
        if self._run_secret is None:
            return None
        return run_credentials.verify(self._run_secret, text, self._clock.now())

    def _look_up_grant(self, text: str, grant: run_credentials.RunGrant) -> _Known:
        """Return the entry of a run's credential, with a rate like that of a key; blocks."""
        asked = self._clock.monotonic()
        try:
            caller = self._caller(api_keys.run_principal(grant))
        except NotFound:
            raise unauthorised() from None
        with self._lock:
            made = _Known(caller, asked, TokenBucket(self._rate, asked), asked)
            known = self._grants.setdefault(text, made)
            while len(self._grants) > GRANTS_MAX:
                self._grants.popitem(last=False)
        return known

    def admit(self, known: _Known) -> Caller:
        """Return the caller; raise Refused for an invalid key or an exceeded rate."""
        if known.caller is None:
            raise unauthorised()
        with self._lock:
            wait = known.bucket.take(self._clock.monotonic())
        if wait > 0:
            raise Refused(
                429,
                "The API key exceeded its request rate: retry later (see Retry-After).",
                headers={"Retry-After": str(math.ceil(wait))},
            )
        return known.caller

    def count_wrong_token(self) -> None:
        """Count a wrong scheduler token; raise Refused if there are too many. The right one is not
        counted, so guessing does not lock the scheduler out.
        """
        with self._lock:
            wait = self._wrong_tokens.take(self._clock.monotonic())
        if wait > 0:
            raise Refused(
                429,
                "X-Scheduler-Token: too many wrong tokens; retry later (see Retry-After).",
                headers={"Retry-After": str(math.ceil(wait))},
            )

    def _caller(self, principal: Principal) -> Caller:
        actor, key = principal.actor, principal.key
        if principal.customer_id is not None:
            scoped = self._client.scoped(principal.customer_id, actor=actor, key=key)
            return Caller(principal, scoped)
        return Caller(principal, self._client.as_actor(actor, key=key))


def bearer(header: str | None) -> str:
    """Return the key of an Authorization header; raise Refused if there is none."""
    scheme, _, text = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise unauthorised()
    return text.strip()


def is_scheduler(header: str | None, token: str) -> bool:
    """Whether an X-Scheduler-Token header has the configured token."""
    return bool(token) and hmac.compare_digest((header or "").encode(), token.encode())


def unauthorised() -> Refused:
    """Return the same error for a missing, an unknown and a revoked key."""
    return Refused(
        401,
        "A valid API key is required: Authorization: Bearer pnk_… (penstock keys create NAME).",
        headers=CHALLENGE,
    )
