"""Assembly of the API server: its options, the tick endpoint, and incoming push."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.access.api_keys import KeyState
from penstock.access.secrets import Secrets
from penstock.assembly.push import build_egress, build_push_auth
from penstock.assembly.settings import Settings, secrets_from_environment
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.core.clock import SECOND, Clock, SystemClock
from penstock.core.errors import SettingsError
from penstock.egress.addresses import is_loopback
from penstock.egress.tokens import require_oidc
from penstock.schedules.scheduler import Scheduler, SchedulerOptions

if TYPE_CHECKING:
    from penstock.server.listener import ApiServer
    from penstock.server.metrics import Metrics
    from penstock.server.routes import PageSite

__all__ = ["build_api"]


def build_api(
    client: Client, settings: Settings, events: Events, metrics: Metrics | None = None
) -> ApiServer:
    """Build the API server of this process, bound to its port and not yet serving.

    metrics: the metrics that it serves at `/metrics`.
    """
    # Importing the web stack takes half a second: only processes that serve load it.
    from penstock.assembly.routes import ROUTES
    from penstock.server.app import build  # as above
    from penstock.server.context import ApiOptions, TickReport  # as above
    from penstock.server.listener import ApiServer  # as above

    if not is_loopback(settings.api_host) and not _has_usable_key(client):
        raise SettingsError(
            "api_host",
            "a loopback address, or at least one valid API key",
            settings.api_host,
            "Create one first: penstock keys create NAME --role admin",
        )
    clock = SystemClock()

    def trigger(batch: int | None, seconds: float) -> TickReport:
        options = SchedulerOptions(
            batch=settings.scheduler_batch if batch is None else batch,
            budget_seconds=seconds,
            catch_up_rate=settings.catch_up_rate,
        )
        started = clock.monotonic()
        tick = Scheduler(client.store, options, events=events).run_once()
        return TickReport(
            due=tick.due,
            runs=tick.runs,
            seconds=clock.monotonic() - started,
            is_complete=tick.next_at is None or tick.next_at > tick.now,
        )

    options = ApiOptions(
        threads=settings.api_threads,
        inflight=settings.api_inflight,
        worker_inflight=settings.api_worker_inflight,
        rate=settings.api_rate,
        body_max=settings.api_body_max,
        connections=settings.api_connections,
        scheduler_token=settings.scheduler_token,
    )
    api = build(
        client,
        replace(ROUTES, pages=partial(_pages, settings)),
        options=options,
        clock=clock,
        events=events,
        trigger=trigger,
        receiving=build_push_auth(client.store, settings),
        metrics=metrics,
    )
    return ApiServer(
        api,
        host=settings.api_host,
        port=settings.api_port,
        drain_seconds=settings.drain / SECOND,
    )


def _pages(settings: Settings, client: Client, clock: Clock) -> PageSite:
    """Build the dashboard, with the identity provider of the settings."""
    from penstock.web.build import build_site  # loaded by processes that serve, as above
    from penstock.web.login.identity import parse_identity  # as above
    from penstock.web.login.provider import IdentityProvider  # as above

    identity, provider = parse_identity(settings.login), None
    if identity is not None:
        require_oidc("login.oidc")
        names = Secrets(secrets_from_environment(os.environ), settings.secrets_dir or None)
        secret = None if identity.client_secret is None else names.get(identity.client_secret, "")
        provider = IdentityProvider(identity, secret, build_egress(settings), clock)
    return build_site(
        client,
        clock,
        provider=provider,
        public_url=settings.public_url,
        environment=settings.environment,
        trusted_proxies=settings.trusted_proxies,
    )


def _has_usable_key(client: Client) -> bool:
    """Whether a caller can authenticate: an expired or revoked key does not count."""
    cursor = None
    while True:
        page = client.keys.list(limit=100, cursor=cursor)
        if any(key.state in (KeyState.ACTIVE, KeyState.ROTATING) for key in page.items):
            return True
        cursor = page.next_cursor
        if cursor is None:
            return False
