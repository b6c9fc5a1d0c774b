"""A served API that accepts pushes of one issuer, and that issuer's tokens."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from penstock.assembly.push import build_push_auth
from penstock.assembly.settings import Settings, load
from penstock.audit.telemetry import PushRefused
from penstock.bus.message import Delivery, SubscriptionSpec, TopicSpec
from penstock.bus.store.topics import subscription_declare, topic_declare
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.core.clock import SECOND, SystemClock
from penstock.egress.oidc import SigningKey
from penstock.egress.tokens import new_signing_key, public_jwk, sign
from tests.kits.egress import Receiver, ScriptedResponse, receiving
from tests.server.kit import Client, Reply, ServedApi

AUDIENCE = "https://penstock.example.com/push"
EMAIL = "pusher@project.iam.gserviceaccount.com"
ISSUER = "https://accounts.google.com"
NAME = "orders-push"
FULL = f"projects/p/subscriptions/{NAME}"


@cache
def google() -> SigningKey:
    """Return the key that "Google" signs with."""
    return new_signing_key()


def token(key: SigningKey | None = None, **changed: Any) -> str:
    now = SystemClock().now() // SECOND
    claims = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "1", "email": EMAIL, "email_verified": True,
        "iat": now, "exp": now + 3600, **changed,
    }  # fmt: skip
    return sign(claims, key or google())


def envelope(message_id: str, data: bytes = b"hello", **more: Any) -> dict[str, Any]:
    message = {
        "messageId": message_id,
        "message_id": message_id,
        "data": base64.b64encode(data).decode(),
        "attributes": {"kind": "order"},
        "publishTime": "2026-11-15T16:00:00.123Z",
    }
    return {"message": message, "subscription": FULL, **more}


class Inlet:
    """A served API that accepts pushes of one issuer."""

    def __init__(self, served: ServedApi, keys: Receiver) -> None:
        self.served = served
        self.keys = keys
        self.by: Client = served.by(None)
        self.store = served.harness.store
        self.install()

    def settings(self, **table: Any) -> Settings:
        row = {
            "topic": "orders", "audience": AUDIENCE, "email": EMAIL,
            "keys_url": f"http://127.0.0.1:{self.keys.port}/certs", **table,
        }  # fmt: skip
        return load(
            {
                "PENSTOCK_INCOMING_PUSH": json.dumps(
                    {NAME: row, "other": {**row, "topic": "others"}}
                ),
                "PENSTOCK_DATABASE_URL": "sqlite::memory:",
                "PENSTOCK_EGRESS_HTTP": "allowed",
                "PENSTOCK_EGRESS_PRIVATE": "allowed",
                "PENSTOCK_PUBLIC_URL": f"http://127.0.0.1:{self.served.server.port}",
            }
        )

    def install(self, **table: Any) -> None:
        """Apply these settings; no key of the issuer is cached yet."""
        made = build_push_auth(self.store, self.settings(**table))
        self.served.api.asgi.state.receiving = made
        self.served.received.clear()

    def push(self, body: Any, bearer: str | None = None, name: str = NAME) -> Reply:
        sent = {"Authorization": f"Bearer {bearer or token()}"}
        return self.by.call("POST", f"/pubsub/push/{name}", body, sent)

    def drained(self, topic: str) -> list[Delivery]:
        """Return everything published to a topic since the last call."""
        bus = EmbeddedBus(self.served.harness.store)
        return bus.pull(f"{topic}-reader", max_messages=1000)

    def reads(self, topic: str) -> None:
        """Create a subscription to a topic."""

        def body(tx: Any) -> None:
            topic_declare(tx, TopicSpec(name=topic))
            spec = SubscriptionSpec(name=f"{topic}-reader", topic=topic)
            subscription_declare(tx, spec)

        self.store.write(body)

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.served.received if isinstance(event, PushRefused)]


@contextlib.contextmanager
def issuer_keys() -> Iterator[Receiver]:
    """Serve the issuer's keys."""
    body = json.dumps({"keys": [public_jwk(google())]}).encode()
    with receiving(
        lambda _: ScriptedResponse(200, {"Cache-Control": "max-age=3600"}, body)
    ) as made:
        yield made
