"""The message bus: topics, subscriptions, messages and deliveries, stored in the database.

    from penstock.bus import NewMessage, SubscriptionSpec

Names are loaded on first use: modules of this package are imported one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.exports import lazy_exports

if TYPE_CHECKING:
    from penstock.bus.message import (
        Delivery,
        ErrorKind,
        Nack,
        NewMessage,
        SettleResult,
        SubscriptionSpec,
        TopicSpec,
    )
    from penstock.bus.push.push_config import parse_push, serialize_push
    from penstock.bus.push.webhook import parse_secret as webhook_key
    from penstock.bus.push.webhook import sign as sign_webhook
    from penstock.bus.push.webhook import verify as verify_webhook
    from penstock.bus.store.topics import SubscriptionOptions
    from penstock.bus.transports.embedded import EmbeddedBus
    from penstock.bus.transports.protocol import Transport, TransportCapabilities

__all__ = [
    "Delivery",
    "EmbeddedBus",
    "ErrorKind",
    "Nack",
    "NewMessage",
    "SettleResult",
    "SubscriptionOptions",
    "SubscriptionSpec",
    "TopicSpec",
    "Transport",
    "TransportCapabilities",
    "parse_push",
    "serialize_push",
    "sign_webhook",
    "verify_webhook",
    "webhook_key",
]

_HOMES = {
    "Delivery": "penstock.bus.message",
    "EmbeddedBus": "penstock.bus.transports.embedded",
    "ErrorKind": "penstock.bus.message",
    "Nack": "penstock.bus.message",
    "NewMessage": "penstock.bus.message",
    "SettleResult": "penstock.bus.message",
    "SubscriptionOptions": "penstock.bus.store.topics",
    "SubscriptionSpec": "penstock.bus.message",
    "TopicSpec": "penstock.bus.message",
    "Transport": "penstock.bus.transports.protocol",
    "TransportCapabilities": "penstock.bus.transports.protocol",
    "parse_push": "penstock.bus.push.push_config",
    "serialize_push": "penstock.bus.push.push_config",
    "sign_webhook": "penstock.bus.push.webhook:sign",
    "verify_webhook": "penstock.bus.push.webhook:verify",
    "webhook_key": "penstock.bus.push.webhook:parse_secret",
}
"""Module that defines each public name."""

if not TYPE_CHECKING:  # type checkers see the imports above instead
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
