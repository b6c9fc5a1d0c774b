"""Authentication of pushes by tokens that Google (or another issuer) signs for a subscription.

    app = Consumer(..., verify=signed_by(audience="https://my.service/pubsub/push",
                                         email="pusher@project.iam.gserviceaccount.com"))

Needs `penstock-engine[oidc]`. The issuer's keys are fetched from public addresses only, and cached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.core.clock import Clock, SystemClock
from penstock.egress.http_client import HttpClient
from penstock.egress.keyset import Fetch, key_fetcher
from penstock.egress.oidc import GOOGLE, ExpectedClaims, InvalidToken, keys_url_of
from penstock.egress.tokens import Verifier


def signed_by(
    *,
    audience: str,
    email: str,
    issuer: str = GOOGLE,
    customer: str | None = None,
    clock: Clock | None = None,
    fetch: Fetch | None = None,
) -> Callable[[Mapping[str, str]], None]:
    """Return a verifier that accepts only bearer tokens with this audience, email and issuer.

    customer: for tokens that Penstock signs, the customer that owns the push subscription ("" for
    the system). Set it where several customers share an installation.
    """
    judging = clock or SystemClock()
    verifier = Verifier(fetch or key_fetcher(HttpClient(judging)), judging)
    expected = ExpectedClaims(issuer=issuer, audience=audience, email=email, customer=customer)
    keys_url = keys_url_of(issuer)

    def verify(headers: Mapping[str, str]) -> None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise InvalidToken("no bearer token")
        verifier.verify(token.strip(), expected, keys_url)

    return verify
