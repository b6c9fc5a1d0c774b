"""Assembly of push: outgoing requests, the pusher, and incoming push.

Libraries for signed tokens are loaded on first use.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from penstock.access.secrets import Secrets
from penstock.assembly.settings import (
    Settings,
    egress_rules,
    encryption_key_file,
    secrets_from_environment,
)
from penstock.audit.telemetry import Events
from penstock.bus.incoming.inbound_push import IncomingPush, parse_incoming
from penstock.bus.push.push_config import TokenSigner, parse_stored_push
from penstock.bus.push.pusher import Pusher, PusherOptions
from penstock.bus.push.sender import push_sender
from penstock.bus.push.signing_keys import KEPT, SigningKeys
from penstock.bus.store.topics import SubscriptionFilter, subscription_list
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import InvalidInput, SettingsError
from penstock.db.store import Transactions
from penstock.egress.http_client import HttpClient, Request, RequestFailed
from penstock.egress.key_file import KeyFile
from penstock.egress.keyset import key_fetcher
from penstock.egress.oidc import SigningKey
from penstock.egress.policy import parse_target
from penstock.egress.tokens import Signer, Verifier, new_signing_key, public_jwk, require_oidc
from penstock.services.health_checks import HealthCheck
from penstock.telemetry.declared import parse_telemetry

if TYPE_CHECKING:
    from penstock.server.push_auth import PushAuth

__all__ = [
    "build_bearer",
    "build_egress",
    "build_health_check",
    "build_push_auth",
    "build_pusher",
    "push_problems",
    "rotate_signing_key",
    "signing_keys",
]  # fmt: skip

CHECKED_MAX: Final = 10_000
HEALTH_SECONDS: Final = 5.0


def build_egress(settings: Settings) -> HttpClient:
    """Build the client for HTTP requests to user-supplied URLs."""
    tls = None
    if settings.egress_ca_file:
        try:
            tls = ssl.create_default_context(cafile=settings.egress_ca_file)
        except OSError as error:
            raise SettingsError(
                "egress_ca_file", "a readable file of certificates", settings.egress_ca_file,
                type(error).__name__,
            ) from None  # fmt: skip
    return HttpClient(SystemClock(), egress_rules(settings), tls=tls)


def build_health_check(settings: Settings) -> HealthCheck:
    """Return a health check of consumers: a GET must return 2xx within a few seconds."""
    egress = build_egress(settings)

    def is_healthy(url: str, owner: str) -> bool:
        request = Request(method="GET", url=url, timeout_s=HEALTH_SECONDS, owner=owner)
        try:
            reply = egress.send(request)
        except (InvalidInput, RequestFailed):
            return False
        return 200 <= reply.status < 300

    return is_healthy


def build_pusher(
    store: Transactions,
    settings: Settings,
    events: Events,
    *,
    jitter: Callable[[], float],
    clock: Clock | None = None,
) -> Pusher:
    """Build the pusher of this process; with a `clock` it posts in the calling thread."""
    return Pusher(
        store,
        push_sender(build_egress(settings)),
        bearer=build_bearer(store, settings, clock or SystemClock()),
        secrets=Secrets(secrets_from_environment(os.environ), settings.secrets_dir or None),
        clock=clock or SystemClock(),
        jitter=jitter,
        events=events,
        options=PusherOptions(
            threads=settings.push_threads if clock is None else 0,
            holder=f"{socket.gethostname()}:{os.getpid()}",
            trace_share=parse_telemetry(settings.telemetry).sample,
        ),
    )


def build_push_auth(store: Transactions, settings: Settings) -> PushAuth:
    """Build the authentication of push requests that the API of this process receives."""
    # Importing the web stack takes half a second: only processes that serve load it.
    from penstock.server.push_auth import PushAuth

    if settings.incoming_push:
        require_oidc("incoming_push")
    verifier = Verifier(key_fetcher(build_egress(settings)), SystemClock())
    keys = signing_keys(store, settings)
    # Reading a private key takes 37 ms, and the route for public keys needs no API key.
    public = lru_cache(maxsize=2 * KEPT)(public_jwk)

    def verify(token: object, row: IncomingPush) -> Any:
        return verifier.verify(token, row.expected, row.keys_url)

    return PushAuth(
        incoming=parse_incoming(settings.incoming_push, egress_rules(settings)),
        verify=verify,
        keys=lambda: [public(key) for key in keys.published()],
        issuer=settings.public_url,
        rules=egress_rules(settings),
    )


def push_problems(store: Transactions, settings: Settings) -> list[str]:
    """List problems of push subscriptions, one sentence each: egress rules, tokens, pauses."""
    wanted = SubscriptionFilter(kind="push", limit=CHECKED_MAX)
    found = []
    for sub in store.read(lambda tx: subscription_list(tx, wanted)):
        try:
            spec = parse_stored_push(sub.push or "null")
            parse_target(spec.endpoint, egress_rules(settings), "push_endpoint")
            if spec.oidc is not None and not settings.public_url:
                found.append(f"{sub.name}: its tokens require the setting public_url")
        except InvalidInput as error:
            found.append(f"{sub.name}: {error.message}")
        if sub.is_paused:
            found.append(f"{sub.name}: the subscription is paused")
    return found


def rotate_signing_key(store: Transactions, settings: Settings, actor: str) -> str:
    """Sign tokens with a new key from now on; return its id."""
    return signing_keys(store, settings).rotate(actor).key_id


def signing_keys(store: Transactions, settings: Settings) -> SigningKeys:
    """Return the keys that sign this installation's tokens, encrypted by a key file if any."""
    file = encryption_key_file(settings)
    cipher = None if file is None else KeyFile(file)
    return SigningKeys(store, new_signing_key, SystemClock(), cipher)


def build_bearer(store: Transactions, settings: Settings, clock: Clock) -> TokenSigner:
    """Return the function that signs tokens of outgoing requests; they need `public_url`."""
    keys = signing_keys(store, settings)

    def current() -> SigningKey:
        if not settings.public_url:
            raise SettingsError(
                "public_url", "a URL at which receivers find the token keys", "nothing",
                "Set PENSTOCK_PUBLIC_URL to the URL at which others reach this API.",
            )  # fmt: skip
        return keys.current()

    return Signer(settings.public_url, current, clock).token
