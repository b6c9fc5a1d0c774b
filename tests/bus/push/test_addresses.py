"""E-mail addresses of push tokens: no customer gets tokens for the receivers of another one."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.bus.records import Subscription, Topic
from penstock.core.errors import InvalidInput
from penstock.core.records.validation import convert_input
from penstock.egress.oidc import ExpectedClaims, InvalidToken, check_claims
from tests.kits.client_harness import Harness

EMAIL = "Pusher@acme.example.com"
NOW = 1_763_337_600


def push(email: str, name: str = "out") -> Subscription:
    """Return a push subscription that signs tokens for an address."""
    body: dict[str, Any] = {
        "name": name, "topic": "feed", "kind": "push",
        "push": {
            "push_endpoint": "https://receiver.example.com/in",
            "oidc_token": {"service_account_email": email},
        },
    }  # fmt: skip
    made: Subscription = convert_input(body, Subscription)
    return made


@pytest.fixture
def customers(harness: Harness) -> Harness:
    """A harness with two customers, each with a topic `feed`."""
    for name in ("acme", "other"):
        harness.submit(customer=name)
        harness.client.topics.create(Topic(name="feed"), customer=name)
    return harness


def test_an_address_belongs_to_its_customer(customers: Harness) -> None:
    """The first subscription takes it; a caller bound to another customer is refused."""
    acme, other = customers.client.scoped("acme"), customers.client.scoped("other")
    acme.subscriptions.declare(push(EMAIL))
    acme.subscriptions.declare(push(EMAIL.lower(), "second"))
    for email in (EMAIL, EMAIL.upper()):
        with pytest.raises(InvalidInput, match="no other customer uses"):
            other.subscriptions.declare(push(email))
    other.subscriptions.declare(push("pusher@other.example.com"))


def test_an_operator_may_share_one(customers: Harness) -> None:
    """An address that serves several customers belongs to the system: bound callers are refused."""
    client = customers.client
    for name in ("acme", "other"):
        client.subscriptions.declare(push(EMAIL), customer=name)
    for name in ("acme", "other"):
        with pytest.raises(InvalidInput, match="no other customer uses"):
            client.scoped(name).subscriptions.declare(push(EMAIL, "another"))


def test_receivers_check_the_customer() -> None:
    """A token names its customer, and a receiver that expects another one refuses it."""
    claims = {
        "iss": "https://penstock.example.com", "aud": "us", "email": EMAIL, "sub": EMAIL,
        "email_verified": True, "iat": NOW, "exp": NOW + 60, "penstock_customer": "acme",
    }  # fmt: skip

    def expected(customer: str | None) -> ExpectedClaims:
        return ExpectedClaims(
            issuer="https://penstock.example.com", audience="us", email=EMAIL, customer=customer
        )

    for accepted in ("acme", None):
        assert check_claims(claims, expected(accepted), NOW * 1_000_000).email == EMAIL
    for refused in ("other", ""):
        with pytest.raises(InvalidToken):
            check_claims(claims, expected(refused), NOW * 1_000_000)
