"""Who calls: from an Authorization header to a Caller, and how often a key may call.

Keys are believed for 30 seconds without a look at the store (and unknown ones for 5), so that a
revocation holds on every replica within 60. A key that cannot be checked because the store is away
is not believed longer. Each key has a bucket of requests per second in this process.
"""

from __future__ import annotations

import hmac
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from penstock.access.api_keys import Principal
from penstock.client import Client
from penstock.core.clock import Clock
from penstock.core.ids import encode
from penstock.server.problems import Refused

BELIEVED_SECONDS: Final = 30.0
REFUSED_SECONDS: Final = 5.0
KEYS_MAX: Final = 10_000
REFUSED_MAX: Final = 1_000
CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="penstock"'}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, and the client that does it for them."""

    principal: Principal
    client: Client

    @property
    def actor(self) -> str:
        """Who is written down."""
        return self.principal.actor

    @property
    def key(self) -> str:
        """The key's public id."""
        return encode("key", self.principal.key_id)

    @property
    def customer(self) -> str | None:
        """The customer the key is bound to."""
        return self.principal.customer_id


class Bucket:
    """Requests a key may make: `rate` per second, at most `burst` at once."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, 2 * rate)
        self._left = self._burst
        self._at = now

    def take(self, now: float) -> float:
        """Take one; 0 when there was one, else the seconds until there is."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._rate


@dataclass(slots=True)
class _Known:
    caller: Caller | None
    until: float
    bucket: Bucket


class Keyring:
    """Callers by key, remembered for a moment; safe to use from any thread."""

    def __init__(self, client: Client, *, clock: Clock, rate: float) -> None:
        """Keys of the client's store; `rate` holds for keys that have none of their own."""
        self._client = client
        self._clock = clock
        self._rate = rate
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._refused: OrderedDict[str, _Known] = OrderedDict()
        """Apart from the others: whoever tries many keys pushes no good one out."""

    def remembered(self, text: str) -> _Known | None:
        """What is known of a key without a look at the store."""
        known = self._known.get(text) or self._refused.get(text)
        return known if known is not None and known.until > self._clock.monotonic() else None

    def learn(self, text: str) -> _Known:
        """Look a key up in the store; blocks."""
        asked = self._clock.monotonic()
        principal = self._client.keys.authenticate(text)
        caller = None if principal is None else self._caller(principal)
        rate = self._rate
        if principal is not None and principal.rate is not None:
            rate = principal.rate
        with self._lock:
            before = self._known.pop(text, None)
            bucket = before.bucket if before is not None else Bucket(rate, asked)
            self._refused.pop(text, None)
            if caller is None:
                kept, most, until = self._refused, REFUSED_MAX, asked + REFUSED_SECONDS
            else:
                kept, most, until = self._known, KEYS_MAX, asked + BELIEVED_SECONDS
            known = kept[text] = _Known(caller, until, bucket)
            while len(kept) > most:
                kept.popitem(last=False)
        return known

    def admit(self, known: _Known) -> Caller:
        """The caller, unless the key is refused or calls too often."""
        if known.caller is None:
            raise unauthorised()
        with self._lock:
            wait = known.bucket.take(self._clock.monotonic())
        if wait > 0:
            raise Refused(
                429,
                "This key makes more requests per second than it may.",
                headers={"Retry-After": str(math.ceil(wait))},
            )
        return known.caller

    def _caller(self, principal: Principal) -> Caller:
        actor = principal.actor
        if principal.customer_id is not None:
            return Caller(principal, self._client.scoped(principal.customer_id, actor=actor))
        return Caller(principal, self._client.acting(actor))


def bearer(header: str | None) -> str:
    """The key of an Authorization header, or a refusal."""
    scheme, _, text = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise unauthorised()
    return text.strip()


def is_scheduler(header: str | None, token: str) -> bool:
    """Whether an X-Scheduler-Token header carries the configured token."""
    return bool(token) and hmac.compare_digest((header or "").encode(), token.encode())


def unauthorised() -> Refused:
    """No key, an unknown one, a revoked one: all look the same."""
    return Refused(
        401,
        "A valid API key is needed: Authorization: Bearer pnk_… (penstock keys create NAME).",
        headers=CHALLENGE,
    )
