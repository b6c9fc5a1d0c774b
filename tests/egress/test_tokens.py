"""Push tokens: every invalid token of the corpus is refused, and keys are fetched rarely."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from penstock.consumer import signed_by
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.errors import InvalidInput
from penstock.egress.http_client import HttpResponse, RequestFailed
from penstock.egress.keyset import (
    EXPIRE_SECONDS,
    KeySet,
    KeysUnavailable,
    fresh_seconds,
    read_keys,
)
from penstock.egress.oidc import (
    GOOGLE,
    TOKEN_MAX,
    ExpectedClaims,
    InvalidToken,
    SigningKey,
    TokenClaims,
    keys_url_of,
)
from penstock.egress.tokens import Signer, Verifier, new_signing_key, public_jwk, sign
from penstock.testing.clock import VirtualClock
from tests.conftest import CLOCK_START

AUDIENCE = "https://penstock.example.com/pubsub/push/orders"
EMAIL = "pusher@project.iam.gserviceaccount.com"
EXPECTED = ExpectedClaims(issuer=GOOGLE, audience=AUDIENCE, email=EMAIL)
URL = keys_url_of(GOOGLE)
NOW = CLOCK_START // SECOND


@cache
def key() -> SigningKey:
    return new_signing_key()


@cache
def curve() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def claims(**changed: Any) -> dict[str, Any]:
    made = {
        "iss": GOOGLE, "aud": AUDIENCE, "sub": "1", "email": EMAIL, "email_verified": True,
        "iat": NOW, "exp": NOW + 3600, **changed,
    }  # fmt: skip
    return {name: value for name, value in made.items() if value is not None}


def b64(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def signed(header: dict[str, Any], payload: Any) -> str:
    """Return a token with a genuine signature over any content."""
    algorithm = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256)
    text = f"{b64(header)}.{b64(payload)}"
    private: Any = algorithm.prepare_key(key().pem)
    return f"{text}.{b64(algorithm.sign(text.encode(), private))}"


class Issuer:
    """Serves keys and counts the requests."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [public_jwk(key()), ec_jwk()]
        self.headers = {"cache-control": "public, max-age=3600, must-revalidate"}
        self.requests = 0
        self.is_down = False
        self.status = 200

    def fetch(self, url: str) -> HttpResponse:
        self.requests += 1
        if self.is_down:
            raise RequestFailed("timeout", url)
        body = json.dumps({"keys": self.keys}).encode()
        return HttpResponse(status=self.status, headers=self.headers, body=body)


def ec_jwk() -> dict[str, Any]:
    found = jwt.algorithms.ECAlgorithm.to_jwk(curve().public_key(), as_dict=True)
    return {**found, "kid": "curve", "alg": "ES256", "use": "sig"}


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(CLOCK_START)


@pytest.fixture
def verifier(issuer: Issuer, clock: VirtualClock) -> Verifier:
    return Verifier(issuer.fetch, clock)


def check(verifier: Verifier, token: Any) -> TokenClaims:
    return verifier.verify(token, EXPECTED, URL)


class TestValid:
    """Tokens that are accepted."""

    @pytest.mark.parametrize(
        "changed",
        [
            {}, {"iss": "accounts.google.com"}, {"exp": NOW - 59}, {"iat": NOW + 60},
            {"nbf": NOW + 60}, {"exp": NOW + 0.5, "iat": NOW - 0.5}, {"azp": EMAIL, "sub": None},
        ],
    )  # fmt: skip
    def test_claims(self, verifier: Verifier, changed: dict[str, Any]) -> None:
        changed = {"iat": NOW - 100, **changed} if changed.get("exp", NOW) < NOW else changed
        assert check(verifier, sign(claims(**changed), key())).email == EMAIL

    def test_es256(self, verifier: Verifier) -> None:
        token = jwt.encode(claims(), curve(), algorithm="ES256", headers={"kid": "curve"})
        assert check(verifier, token).issuer == GOOGLE

    def test_signed_tokens_pass_verification(self, verifier: Verifier, clock: VirtualClock) -> None:
        """The signer's token passes; it is reused until ten minutes are left."""
        signer = Signer(GOOGLE, key, clock)
        token = signer.token(AUDIENCE, EMAIL, "acme")
        assert check(verifier, token).subject == EMAIL
        clock.advance(49 * MINUTE)
        assert signer.token(AUDIENCE, EMAIL, "acme") == token
        assert signer.token("other", EMAIL, "acme") != token
        assert signer.token(AUDIENCE, EMAIL, "") != token
        clock.advance(2 * MINUTE)
        renewed = signer.token(AUDIENCE, EMAIL, "acme")
        assert renewed != token
        assert check(verifier, renewed).expires_at == clock.now() // SECOND * SECOND + HOUR

    def test_the_private_key_is_never_shown(self) -> None:
        assert "PRIVATE" not in repr(key())
        assert "d" not in public_jwk(key())


class TestInvalid:
    """The corpus: each token is refused, and the reason names the fault."""

    @pytest.mark.parametrize(
        ("reason", "changed"),
        [
            ("iss", {"iss": "https://evil.example.com"}), ("iss", {"iss": None}),
            ("iss", {"iss": [GOOGLE]}), ("iss", {"iss": GOOGLE + "/"}),
            ("aud", {"aud": [AUDIENCE]}), ("aud", {"aud": [AUDIENCE, "x"]}), ("aud", {"aud": None}),
            ("aud", {"aud": AUDIENCE + "/"}), ("aud", {"aud": AUDIENCE[:-1]}),
            ("aud", {"aud": AUDIENCE.upper()}), ("aud", {"aud": AUDIENCE + "\n"}),
            ("email", {"email": "other@evil.iam.gserviceaccount.com"}), ("email", {"email": None}),
            ("email", {"email": EMAIL.upper()}), ("email", {"email": [EMAIL]}),
            *(("email_verified", {"email_verified": wrong}) for wrong in ("true", 1, False, None)),
            ("exp", {"iat": NOW - 100, "exp": NOW - 60}), ("exp", {"exp": None}),
            ("exp", {"exp": "9999999999"}), ("exp", {"exp": True}), ("exp", {"exp": NOW + 90_000}),
            ("exp", {"exp": NOW - 5, "iat": NOW}), ("exp", {"exp": 1e300}),
            ("iat", {"iat": NOW + 61}), ("iat", {"iat": None}), ("nbf", {"nbf": NOW + 61}),
            ("nbf", {"nbf": "now"}),
        ],
    )  # fmt: skip
    def test_claims(self, verifier: Verifier, reason: str, changed: dict[str, Any]) -> None:
        with pytest.raises(InvalidToken) as refused:
            check(verifier, signed({"alg": "RS256", "kid": key().key_id}, claims(**changed)))
        assert refused.value.reason.startswith(reason)
        assert reason not in refused.value.message

    @pytest.mark.parametrize(
        "header",
        [
            {"alg": "none"}, {"alg": "None"}, {"alg": "HS256"}, {"alg": "RS512"}, {"alg": "PS256"},
            {"alg": ["RS256"]}, {"alg": None}, {"crit": ["exp"]}, {"b64": False},
            {"b64": False, "crit": ["b64"]}, {"jku": "https://evil.example.com/keys"},
            {"x5u": "https://evil.example.com/cert"}, {"jwk": {"kty": "RSA"}}, {"x5c": ["MII"]},
            {"zip": "DEF"}, {"kid": None}, {"kid": "../../etc/passwd"}, {"kid": ""},
            {"kid": "https://evil.example.com/key"}, {"kid": 7}, {"kid": "a" * 129},
            {"typ": "at+jwt"}, {"alg": "ES256"},
        ],
    )  # fmt: skip
    def test_headers(self, verifier: Verifier, issuer: Issuer, header: dict[str, Any]) -> None:
        """A genuine signature over a header that requests something else."""
        made = {"alg": "RS256", "kid": key().key_id, "typ": "JWT", **header}
        made = {name: value for name, value in made.items() if value is not None}
        with pytest.raises(InvalidToken):
            check(verifier, signed(made, claims()))
        assert issuer.requests <= 1

    def test_hs256_with_the_public_key_as_its_secret(self, verifier: Verifier) -> None:
        text = f"{b64({'alg': 'HS256', 'kid': key().key_id})}.{b64(claims())}"
        secret = json.dumps(public_jwk(key())).encode()
        signature = hmac.new(secret, text.encode(), hashlib.sha256).digest()
        with pytest.raises(InvalidToken, match="accept"):
            check(verifier, f"{text}.{b64(signature)}")

    @pytest.mark.parametrize(
        "token",
        [
            None, "", "x", "a.b", "a.b.c.d", "a.b.", "..", ".b.c", "a b.c.d", "Bearer x", 7,
            "x" * (TOKEN_MAX + 1), "x" * 1_048_576, f"{b64([1])}.{b64({})}.{b64({})}",
            f"{b64(b'{')}.{b64({})}.{b64({})}",
            f"{b64(b'{}' + b' ' * 9)}.{b64({})}.{b64({})}", f"{b64(b'[' * 3000)}.e30.e30",
        ],
    )  # fmt: skip
    def test_malformed_tokens(self, verifier: Verifier, issuer: Issuer, token: object) -> None:
        with pytest.raises(InvalidToken):
            check(verifier, token)
        assert issuer.requests == 0

    def test_duplicate_header_names(self, verifier: Verifier) -> None:
        """A header with a duplicate name is invalid."""
        header = f'{{"alg":"RS256","kid":"{key().key_id}","alg":"none"}}'.encode()
        with pytest.raises(InvalidToken):
            check(verifier, f"{b64(header)}.{b64(claims())}.{b64(b'x')}")

    def test_changed_after_signing(self, verifier: Verifier) -> None:
        head, _, signature = sign(claims(), key()).split(".")
        for token in (
            f"{head}.{b64(claims(email='x@y.z'))}.{signature}",
            f"{head}.{b64(claims())}.{signature[:-4]}AAAA",
            f"{head}.{b64(b'not json')}.{signature}",
        ):
            with pytest.raises(InvalidToken):
                check(verifier, token)

    def test_another_key_under_the_same_kid(self, verifier: Verifier) -> None:
        other = SigningKey(key_id=key().key_id, pem=new_signing_key().pem)
        with pytest.raises(InvalidToken) as refused:
            check(verifier, sign(claims(), other))
        assert refused.value.reason.startswith("signature")

    def test_short_keys(self, verifier: Verifier, issuer: Issuer) -> None:
        """A key of 1,024 bits is refused, even if the issuer publishes it."""
        weak = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
        found = jwt.algorithms.RSAAlgorithm.to_jwk(weak.public_key(), as_dict=True)
        issuer.keys = [{**found, "kid": "weak"}]
        algorithm = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256)
        text = f"{b64({'alg': 'RS256', 'kid': 'weak'})}.{b64(claims())}"
        with pytest.raises(InvalidToken) as refused:
            check(verifier, f"{text}.{b64(algorithm.sign(text.encode(), weak))}")
        assert "short" in refused.value.reason

    def test_genuine_but_for_another_receiver(self, verifier: Verifier) -> None:
        """Only a token whose signature, issuer and time are valid counts as known."""
        with pytest.raises(InvalidToken) as known:
            check(verifier, sign(claims(email="other@x.y"), key()))
        with pytest.raises(InvalidToken) as unknown:
            check(verifier, sign(claims(iss="x"), key()))
        assert (known.value.is_authentic, unknown.value.is_authentic) == (True, False)


class TestKeys:
    """Keys are fetched rarely, and kept while the issuer is unavailable."""

    def test_a_flood_of_unknown_kids_costs_one_fetch_a_minute(
        self, issuer: Issuer, clock: VirtualClock
    ) -> None:
        keys = KeySet(URL, issuer.fetch, clock)
        for n in range(500):
            assert keys.find(f"k{n}") is None
        assert issuer.requests == 1
        clock.advance(59 * SECOND)
        assert keys.find("k") is None
        assert issuer.requests == 1
        clock.advance(2 * SECOND)
        assert keys.find("k") is None
        assert keys.find(key().key_id) is not None
        assert issuer.requests == 2

    def test_a_new_key_is_found(self, issuer: Issuer, clock: VirtualClock) -> None:
        issuer.keys = issuer.keys[:1]
        keys = KeySet(URL, issuer.fetch, clock)
        assert keys.find(key().key_id)
        issuer.keys.append(ec_jwk())
        clock.advance(61 * SECOND)
        assert keys.find("curve")

    def test_known_keys_are_used_while_the_issuer_is_down(
        self, issuer: Issuer, clock: VirtualClock
    ) -> None:
        keys = KeySet(URL, issuer.fetch, clock)
        assert keys.find("curve")
        issuer.is_down = True
        clock.advance(5 * HOUR)
        for _ in range(50):
            assert keys.find("curve")
        assert issuer.requests == 2
        clock.advance(int(EXPIRE_SECONDS * SECOND))
        with pytest.raises(KeysUnavailable):
            keys.find("curve")

    @pytest.mark.parametrize("fault", ["down", "500", "empty", "invalid"])
    def test_without_any_keys_no_token_is_judged(
        self, issuer: Issuer, clock: VirtualClock, fault: str
    ) -> None:
        """The sender gets a retryable error, and the issuer gets one request a minute."""
        issuer.is_down = fault == "down"
        issuer.status = 500 if fault == "500" else 200
        issuer.keys = [] if fault == "empty" else [{"kid": 7}]
        keys = KeySet(URL, issuer.fetch, clock)
        for _ in range(20):
            with pytest.raises(KeysUnavailable):
                keys.find("curve")
        assert issuer.requests == 1

    def test_a_withdrawn_key_is_forgotten(self, issuer: Issuer, clock: VirtualClock) -> None:
        keys = KeySet(URL, issuer.fetch, clock)
        assert keys.find("curve")
        issuer.keys = issuer.keys[:1]
        clock.advance(2 * HOUR)
        assert keys.find("curve") is None

    @pytest.mark.parametrize(
        ("header", "seconds"),
        [
            (None, 3600), ("max-age=20", 300), ("public, max-age=7200", 7200), ("no-store", 3600),
            ("max-age=999999999", 86_400), ("s-max-age=5,max-age=400", 400), ("max-age=-1", 3600),
        ],
    )  # fmt: skip
    def test_cache_control(self, header: str | None, seconds: float) -> None:
        assert fresh_seconds(header) == seconds

    @pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"keys":{}}', b"[" * 100_000])
    def test_invalid_key_sets(self, body: bytes) -> None:
        with pytest.raises(InvalidInput):
            read_keys(body)

    def test_keys_of_other_kinds_are_ignored(self) -> None:
        good = {"kid": "a", "kty": "RSA"}
        odd = [
            {"kid": "b", "kty": "oct"}, {**good, "use": "enc"}, {**good, "alg": "RS512"},
            {**good, "d": "x"}, {"kty": "RSA"}, 7, {**good, "kid": ["a"]},
        ]  # fmt: skip
        assert list(read_keys(json.dumps({"keys": [*odd, good]}).encode())) == ["a"]


def test_the_consumer_kits_verifier(issuer: Issuer, clock: VirtualClock) -> None:
    """The consumer kit's verifier accepts only the configured sender."""
    verify = signed_by(audience=AUDIENCE, email=EMAIL, clock=clock, fetch=issuer.fetch)
    good = sign(claims(), key())
    verify({"authorization": f"Bearer {good}"})
    other = sign(claims(email="other@project.iam.gserviceaccount.com"), key())
    for header in ("", good, f"Basic {good}", "Bearer ", f"Bearer {other}", f"Bearer {good[:-4]}"):
        with pytest.raises(InvalidToken):
            verify({"authorization": header})
    with pytest.raises(InvalidToken):
        verify({})
