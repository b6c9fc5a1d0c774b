"""Assembly of alerts: the evaluator with its local measurements, the sender, the watchdog."""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import Callable, Sequence

from penstock.access.secrets import Secrets
from penstock.alerts.channels.delivery import Deliver, Deliveries, require_apprise
from penstock.alerts.declared import AlertSettings, HeartbeatSpec, parse_alerts
from penstock.alerts.evaluator import AlertEvaluator, OutboundHeartbeat
from penstock.alerts.measures import Measurement
from penstock.alerts.rules import rules_of
from penstock.alerts.sender import AlertSender
from penstock.assembly.push import build_egress
from penstock.assembly.settings import (
    Settings,
    egress_rules,
    secrets_from_environment,
    store_file,
)
from penstock.core.clock import Clock, parse_duration
from penstock.core.errors import InvalidInput
from penstock.db.store import Transactions
from penstock.egress.http_client import HttpClient, Request, RequestFailed

__all__ = ["build_evaluator", "build_sender", "disk_measurements"]

HEARTBEAT_SECONDS = 10.0


def build_evaluator(
    store: Transactions, settings: Settings, *, clock: Clock | None = None
) -> AlertEvaluator:
    """Build the service that evaluates the rules of alerts."""
    declared = _declared(settings)
    return AlertEvaluator(
        store,
        rules_of(declared),
        interval_us=parse_duration(declared.interval),
        clock=clock,
        local=disk_measurements(settings),
        heartbeat=_heartbeat(declared.heartbeat, settings),
    )


def build_sender(
    store: Transactions,
    settings: Settings,
    *,
    jitter: Callable[[], float],
    clock: Clock | None = None,
    deliver: Deliver | None = None,
) -> AlertSender:
    """Build the service that sends notices; with a `clock` it sends in the calling thread."""
    made = deliver or Deliveries(
        egress=build_egress(settings), secrets=_secrets(settings), tls=lambda: _tls(settings)
    )
    declared = _declared(settings)
    for name, channel in declared.channels.items():
        if channel.kind == "apprise":
            require_apprise(f"alerts.channels.{name}")
    return AlertSender(
        store,
        declared,
        made,
        jitter=jitter,
        group_us=parse_duration(declared.group_wait),
        is_threaded=clock is None,
    )


def _declared(settings: Settings) -> AlertSettings:
    return parse_alerts(settings.alerts, egress_rules(settings))


def _secrets(settings: Settings) -> Secrets:
    return Secrets(secrets_from_environment(os.environ), settings.secrets_dir or None)


def _tls(settings: Settings) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=settings.egress_ca_file or None)


def disk_measurements(settings: Settings) -> Callable[[], Sequence[Measurement]]:
    """Return a function that measures the use of the disk that holds a SQLite file."""
    file = store_file(settings.database_url)

    def measured() -> Sequence[Measurement]:
        if file is None:
            return ()
        try:
            usage = shutil.disk_usage(file.absolute().parent)
        except OSError:
            return ()
        used = 100 * (1 - usage.free / usage.total)
        facts = {"free_megabytes": usage.free // 1_000_000}
        return (Measurement(metric="disk_used_percent", value=used, facts=facts),)

    return measured


def _heartbeat(spec: HeartbeatSpec | None, settings: Settings) -> OutboundHeartbeat | None:
    if spec is None:
        return None
    egress, secrets = build_egress(settings), _secrets(settings)

    def send() -> None:
        url = spec.url if spec.url_secret is None else secrets.get(spec.url_secret, "")
        _request(egress, url or "")

    return OutboundHeartbeat(send=send, interval_us=parse_duration(spec.interval, "interval"))


def _request(egress: HttpClient, url: str) -> None:
    """Request a URL; errors are ignored, because the external monitor detects missing requests."""
    try:
        egress.send(Request(method="GET", url=url, timeout_s=HEARTBEAT_SECONDS))
    except (InvalidInput, RequestFailed):
        return
