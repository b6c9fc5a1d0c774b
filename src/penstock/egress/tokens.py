"""Signing and checking tokens: PyJWT and cryptography under the rules of `egress.oidc`.

Both libraries come with the extra `penstock-engine[oidc]` and are loaded when a token is signed or
checked. PyJWT parses a token and checks its signature under one algorithm that this module names;
`egress.oidc` decides which claims are trusted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from penstock.core.clock import HOUR, MINUTE, SECOND, Clock, Micros
from penstock.core.errors import SettingsError
from penstock.egress.keyset import Fetch, Jwk, KeySet
from penstock.egress.oidc import (
    CUSTOMER_CLAIM,
    ExpectedClaims,
    InvalidToken,
    SigningKey,
    TokenClaims,
    check_claims,
    read_claims,
    read_header,
)

LIFETIME_US: Final = HOUR
RENEW_US: Final = 10 * MINUTE
RSA_BITS: Final = 2_048
TOKENS_MAX: Final = 10_000
KEYS_KEPT: Final = 16
_KINDS: Final = {"RS256": "RSA", "ES256": "EC"}


class Verifier:
    """Token verifier that caches each issuer's keys. Safe to use from any thread."""

    def __init__(self, fetch: Fetch, clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._sets: dict[str, KeySet] = {}

    def keys_of(self, url: str) -> KeySet:
        """Return the cached key set of a URL."""
        with self._lock:
            if url not in self._sets:
                self._sets[url] = KeySet(url, self._fetch, self._clock)
            return self._sets[url]

    def verify(self, token: object, expected: ExpectedClaims, keys_url: str) -> TokenClaims:
        """Return the claims of a token; raise InvalidToken if it is not as expected.

        Raises KeysUnavailable when the issuer's keys cannot be fetched.
        """
        header = read_header(token)
        assert isinstance(token, str)
        key = self.keys_of(keys_url).find(header.key_id)
        if key is None:
            raise InvalidToken("kid: the issuer has no such key")
        payload = check_signature(token, key, header.algorithm)
        return check_claims(read_claims(payload), expected, self._clock.now())


class Signer:
    """Token signer for push receivers; a token is reused until ten minutes before it expires."""

    def __init__(self, issuer: str, key: Callable[[], SigningKey], clock: Clock) -> None:
        """Sign as `issuer`; `key` returns the current signing key."""
        self._issuer = issuer
        self._key = key
        self._clock = clock
        self._lock = threading.Lock()
        self._cache: dict[tuple[str, str, str, str], tuple[str, Micros]] = {}

    def token(self, audience: str, email: str, customer: str) -> str:
        """Return a token for an audience that is valid for at least ten minutes.

        customer: the owner of the subscription, or "" for the system.
        """
        now, key = self._clock.now(), self._key()
        name = (key.key_id, audience, email, customer)
        with self._lock:
            known = self._cache.get(name)
            if known is None or known[1] - now < RENEW_US:
                if len(self._cache) >= TOKENS_MAX:
                    self._cache.clear()
                claims = {
                    "iss": self._issuer,
                    "aud": audience,
                    "sub": email,
                    "email": email,
                    "email_verified": True,
                    CUSTOMER_CLAIM: customer,
                    "iat": now // SECOND,
                    "exp": (now + LIFETIME_US) // SECOND,
                }
                known = self._cache[name] = (sign(claims, key), now + LIFETIME_US)
        return known[0]


def check_signature(token: str, key: Jwk, algorithm: str) -> bytes:
    """Return the payload of a token signed by this key and algorithm; else raise InvalidToken."""
    jwt = require_oidc()
    if key.get("kty") != _KINDS[algorithm] or key.get("alg", algorithm) != algorithm:
        raise InvalidToken("alg: does not match the key")
    try:
        public = jwt.PyJWK(dict(key), algorithm=algorithm).key
        if algorithm == "RS256" and public.key_size < RSA_BITS:
            raise InvalidToken("kid: the key is too short")
        found = jwt.PyJWS(algorithms=[algorithm]).decode_complete(
            token, public, algorithms=[algorithm]
        )
    except jwt.PyJWTError as error:
        raise InvalidToken(f"signature: {type(error).__name__}") from None
    payload: bytes = found["payload"]
    return payload


def sign(claims: dict[str, Any], key: SigningKey) -> str:
    """Return a token with these claims (RS256)."""
    text: str = require_oidc().encode(
        claims, _private(key.pem), algorithm="RS256", headers={"kid": key.key_id, "typ": "JWT"}
    )
    return text


def new_signing_key() -> SigningKey:
    """Create a key, named by its own thumbprint (RFC 7638)."""
    require_oidc()
    # The extra `oidc`, as above.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa  # as above

    made = rsa.generate_private_key(public_exponent=65_537, key_size=RSA_BITS)
    pem = made.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode("ascii")
    return SigningKey(key_id=_thumbprint(_public(pem)), pem=pem)


def public_jwk(key: SigningKey) -> dict[str, str]:
    """Return the public key that verifies this key's signatures."""
    return {**_public(key.pem), "kid": key.key_id, "use": "sig", "alg": "RS256"}


def _public(pem: str) -> dict[str, str]:
    jwt = require_oidc()
    found = jwt.algorithms.RSAAlgorithm.to_jwk(_private(pem).public_key(), as_dict=True)
    return {name: str(found[name]) for name in ("kty", "n", "e")}


@lru_cache(maxsize=KEYS_KEPT)
def _private(pem: str) -> Any:
    """Return the parsed key; parsing checks its primes, which takes longer than many signatures."""
    require_oidc()
    # The extra `oidc`, as above.
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(pem.encode(), None)


def _thumbprint(jwk: dict[str, str]) -> str:
    text = json.dumps(jwk, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


def require_oidc(field: str = "oidc") -> Any:
    """Import the libraries of the extra; raise SettingsError that names it if one is missing."""
    try:
        # The extra `oidc`: only installations that use tokens need it.
        import cryptography  # noqa: F401
        import jwt  # as above
    except ImportError as error:
        raise SettingsError(
            field, "the libraries for signed tokens", "nothing",
            f"Install them: pip install 'penstock-engine[oidc]' ({error})",
        ) from error  # fmt: skip
    return jwt
