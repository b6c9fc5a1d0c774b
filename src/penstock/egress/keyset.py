"""The public keys of an issuer, fetched rarely and kept while the issuer is unavailable.

Fresh keys are used without a request. Stale keys, or an unknown key id, cause one fetch, and no
other within a minute: a flood of fake key ids does not reach the issuer. While a fetch is in
progress, other threads continue with the known keys. Keys that could not be renewed for a day are
no longer used.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.core.clock import Clock
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.json_profile import parse_json
from penstock.egress.http_client import HttpClient, HttpResponse, Request, RequestFailed
from penstock.egress.oidc import ALGORITHMS

REFETCH_SECONDS: Final = 60.0
FRESH_SECONDS: Final = 3_600.0
FRESH_MIN, FRESH_MAX = 300.0, 86_400.0
EXPIRE_SECONDS: Final = 86_400.0
FETCH_SECONDS: Final = 5.0
KEYS_MAX: Final = 64
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=([0-9]{1,9})(?:$|[,\s])", re.IGNORECASE)

Jwk = Mapping[str, Any]
Fetch = Callable[[str], HttpResponse]


class KeysUnavailable(PenstockError):
    """The issuer's keys cannot be fetched now: try again."""

    code = "auth.keys_unavailable"
    http_status = 503
    retryable = True


def key_fetcher(egress: HttpClient) -> Fetch:
    """Return a function that fetches keys under the egress rules."""
    return lambda url: egress.send(
        Request(method="GET", url=url, timeout_s=FETCH_SECONDS, read_body=True)
    )


class KeySet:
    """Keys by id; safe to use from any thread."""

    def __init__(self, url: str, fetch: Fetch, clock: Clock) -> None:
        self._url = url
        self._fetch = fetch
        self._clock = clock
        self._fetching = threading.Lock()
        self._keys: Mapping[str, Jwk] = {}
        self._got_at: float | None = None
        self._fresh_until = 0.0
        self._tried_at: float | None = None
        self.fetches = 0

    def find(self, key_id: str) -> Jwk | None:
        """Return the key with an id; None if the issuer has none.

        Raises KeysUnavailable when the issuer's keys are not known.
        """
        now = self._clock.monotonic()
        if key_id in self._keys and now < self._fresh_until:
            return self._keys[key_id]
        self._renew(now)
        if self._got_at is None or now - self._got_at > EXPIRE_SECONDS:
            raise KeysUnavailable
        return self._keys.get(key_id)

    def _renew(self, now: float) -> None:
        """Fetch once, unless a fetch is in progress or was tried within the last minute."""
        if self._tried_at is not None and now - self._tried_at < REFETCH_SECONDS:
            if self._got_at is None and self._fetching.acquire(timeout=FETCH_SECONDS):
                self._fetching.release()  # wait for the very first fetch, which is in progress
            return
        if not self._fetching.acquire(blocking=False):
            return
        try:
            self._tried_at = now
            self.fetches += 1
            reply = self._fetch(self._url)
            if reply.status != 200:
                return
            keys = read_keys(reply.body)
            if not keys:
                return
            self._keys, self._got_at = keys, now
            self._fresh_until = now + fresh_seconds(reply.headers.get("cache-control"))
        except (RequestFailed, InvalidInput):
            return  # the known keys stay in use; without any, `find` raises KeysUnavailable
        finally:
            self._fetching.release()


def read_keys(body: bytes) -> dict[str, Jwk]:
    """Return the signing keys of a key set by id; InvalidInput if it is not a key set."""
    found = parse_json(body, "keys", names_max=2_000)
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list):
        raise InvalidInput("keys", "an object with a list of keys", "other JSON")
    return {key["kid"]: key for key in keys[:KEYS_MAX] if _is_usable(key)}


def fresh_seconds(header: str | None) -> float:
    """Return how long keys are fresh by Cache-Control, between five minutes and a day."""
    found = _MAX_AGE.search(header or "")
    given = FRESH_SECONDS if found is None else float(found[1])
    return min(max(given, FRESH_MIN), FRESH_MAX)


def _is_usable(key: object) -> bool:
    """Return whether a key is public, has an id, and is for signatures of a supported kind."""
    if not isinstance(key, dict) or not isinstance(key.get("kid"), str):
        return False
    kind = (key.get("kty"), key.get("alg"))
    is_known = kind[0] in ("RSA", "EC") and (kind[1] is None or kind[1] in ALGORITHMS)
    return is_known and key.get("use", "sig") == "sig" and "d" not in key
