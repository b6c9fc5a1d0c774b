"""Verification of the OIDC tokens that authenticate inbound pushes.

Pure. `read_header` parses the header of an unverified token within narrow bounds; an adapter
(`penstock.egress.tokens`) verifies the signature with exactly the algorithm and key named there;
`check_claims` then checks every claim. A rejected token raises `InvalidToken`: its reason is for
the operator's log and is never sent to the caller.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.clock import DAY, SECOND, Micros
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.json_profile import parse_json

TOKEN_MAX: Final = 8_192
LEEWAY_US: Final = 60 * SECOND
LIFETIME_MAX_US: Final = DAY
ALGORITHMS: Final = ("RS256", "ES256")
CUSTOMER_CLAIM: Final = "penstock_customer"
"""Claim of tokens that Penstock signs: the customer that owns the push subscription."""
GOOGLE: Final = "https://accounts.google.com"
GOOGLE_KEYS: Final = "https://www.googleapis.com/oauth2/v3/certs"

_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
_KEY_ID = re.compile(r"[A-Za-z0-9._=-]{1,128}")
_NOT_IN_HEADERS: Final = ("b64", "crit", "jku", "jwk", "x5c", "x5u", "zip", "enc", "p2c")
"""Header fields that would let a token choose its own key or change how it is parsed."""


class InvalidToken(PenstockError):
    """A token that this endpoint does not accept."""

    code = "auth.token"
    http_status = 401

    def __init__(self, reason: str, *, is_known: bool = False) -> None:
        self.reason = reason
        self.is_authentic = is_known
        """Whether the signature is valid and only the audience or the sender is wrong."""
        super().__init__()


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A private key of this installation and its key id. Its `repr` omits the key."""

    key_id: str
    pem: str

    def __repr__(self) -> str:
        return f"SigningKey(key_id={self.key_id!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHeader:
    """Algorithm and key id from the header of a token."""

    algorithm: str
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedClaims:
    """The issuer, audience and service account that a token must have."""

    issuer: str
    audience: str
    email: str
    customer: str | None = None
    """Customer that a token issued by Penstock must name; None accepts any, and tokens of other
    issuers.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClaims:
    """Claims of a verified token."""

    issuer: str
    subject: str
    email: str
    expires_at: Micros


def read_header(token: object) -> TokenHeader:
    """Return the header of an unverified token. Raise InvalidToken if it is invalid."""
    if not isinstance(token, str) or not token:
        raise InvalidToken("no token")
    if len(token) > TOKEN_MAX:
        raise InvalidToken(f"a token of more than {TOKEN_MAX:,} characters")
    segments = token.split(".")
    if len(segments) != 3 or not all(_SEGMENT.fullmatch(part) for part in segments):
        raise InvalidToken("not three parts of base64url")
    header = _object(segments[0], "header")
    for name in _NOT_IN_HEADERS:
        if name in header:
            raise InvalidToken(f"header: {name} is not accepted")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise InvalidToken(f"header: alg is not one of {', '.join(ALGORITHMS)}")
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise InvalidToken("header: kid is not a valid key id")
    if header.get("typ", "JWT") not in ("JWT", "jwt"):
        raise InvalidToken("header: typ is not JWT")
    return TokenHeader(algorithm=str(algorithm), key_id=key_id)


def read_claims(payload: bytes) -> dict[str, Any]:
    """Return the claims of a token whose signature has been verified."""
    try:
        claims = parse_json(payload, "claims", names_max=200)
    except InvalidInput as error:
        raise InvalidToken(error.message) from None
    if not isinstance(claims, dict):
        raise InvalidToken("claims: not an object")
    return claims


def check_claims(claims: Mapping[str, Any], expected: ExpectedClaims, now: Micros) -> TokenClaims:
    """Return the claims if all are as expected; raise InvalidToken, naming the first one that
    fails.
    """
    issuer = claims.get("iss")
    if not isinstance(issuer, str) or issuer not in issuers_of(expected.issuer):
        raise InvalidToken("iss: unexpected issuer")
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if expires <= now - LEEWAY_US:
        raise InvalidToken("exp: expired")
    if issued > now + LEEWAY_US:
        raise InvalidToken("iat: not issued yet")
    if "nbf" in claims and _time(claims, "nbf") > now + LEEWAY_US:
        raise InvalidToken("nbf: not valid yet")
    if not issued <= expires <= issued + LIFETIME_MAX_US:
        raise InvalidToken("exp: valid for longer than a day")
    audience = claims.get("aud")
    if not isinstance(audience, str) or audience != expected.audience:
        raise InvalidToken("aud: another audience, or several", is_known=True)
    email = claims.get("email")
    if not isinstance(email, str) or email != expected.email:
        raise InvalidToken("email: another service account", is_known=True)
    if claims.get("email_verified") is not True:
        raise InvalidToken("email_verified: not true", is_known=True)
    if expected.customer is not None and claims.get(CUSTOMER_CLAIM) != expected.customer:
        raise InvalidToken(f"{CUSTOMER_CLAIM}: another customer", is_known=True)
    subject = claims.get("sub")
    return TokenClaims(
        issuer=issuer,
        subject=subject if isinstance(subject, str) else "",
        email=email,
        expires_at=expires,
    )


def issuers_of(issuer: str) -> tuple[str, ...]:
    """Return the accepted spellings of an issuer; Google uses two."""
    return (GOOGLE, "accounts.google.com") if issuer == GOOGLE else (issuer,)


def keys_url_of(issuer: str) -> str:
    """Return the default URL of an issuer's public keys."""
    return GOOGLE_KEYS if issuer == GOOGLE else f"{issuer.rstrip('/')}/.well-known/jwks.json"


def _object(segment: str, field: str) -> dict[str, Any]:
    try:
        raw = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
        value = parse_json(raw, field, names_max=50)
    except (ValueError, InvalidInput):
        raise InvalidToken(f"{field}: not a JSON object in base64url") from None
    if not isinstance(value, dict):
        raise InvalidToken(f"{field}: not a JSON object in base64url")
    return value


def _time(claims: Mapping[str, Any], name: str) -> Micros:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"{name}: not a time")
    if not 0 <= value < 2**40:
        raise InvalidToken(f"{name}: out of range")
    return int(value * SECOND)
