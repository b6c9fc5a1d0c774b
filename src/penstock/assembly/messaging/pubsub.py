"""Assembly of the Pub/Sub front end: a port that serves Google's gRPC services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.assembly.settings import Settings, egress_rules
from penstock.client import Client
from penstock.core.clock import SystemClock
from penstock.core.errors import SettingsError
from penstock.egress.addresses import is_loopback

if TYPE_CHECKING:
    from penstock.pubsub_wire.listener import PubsubServer

OFF = -1


def build_pubsub(client: Client, settings: Settings) -> PubsubServer | None:
    """Build the Pub/Sub front end of this process; None if no port is set."""
    if settings.pubsub_port == OFF:
        return None
    needs_key = settings.pubsub_keys == "required"
    if not needs_key and not is_loopback(settings.pubsub_host):
        raise SettingsError(
            "pubsub_host",
            "a loopback address unless API keys are required",
            settings.pubsub_host,
            "Set PENSTOCK_PUBSUB_KEYS=required; clients then send a key as bearer token.",
        )
    try:
        # Only processes that serve the port load gRPC; it comes with an extra.
        from penstock.pubsub_wire.handlers import WireOptions
        from penstock.pubsub_wire.listener import PubsubServer  # as above
    except ImportError as error:
        raise SettingsError(
            "pubsub_port",
            "google-cloud-pubsub to be installed",
            settings.pubsub_port,
            f"Install it: pip install 'penstock-engine[pubsub]' ({error})",
        ) from None
    options = WireOptions(
        project=settings.pubsub_project,
        needs_key=needs_key,
        threads=settings.pubsub_threads,
        rate=settings.api_rate,
        rules=egress_rules(settings),
    )
    return PubsubServer(
        client, options, clock=SystemClock(), host=settings.pubsub_host, port=settings.pubsub_port
    )
