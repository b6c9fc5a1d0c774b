"""The message bus: topics, subscriptions, messages and deliveries, stored in the database.

    from penstock.bus import NewMessage, Subscription, Topic

Names are loaded on first use: a module of this package is imported only when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.exports import lazy_exports

if TYPE_CHECKING:
    from penstock.bus.binding import BindingKind
    from penstock.bus.message import (
        Delivery,
        ErrorKind,
        Nack,
        NewMessage,
        SettleResult,
        SubscriptionSpec,
        TopicSpec,
    )
    from penstock.bus.push.webhook import parse_secret as webhook_key
    from penstock.bus.push.webhook import sign as sign_webhook
    from penstock.bus.push.webhook import verify as verify_webhook
    from penstock.bus.records import (
        AutoReplay,
        NewSnapshot,
        OidcSettings,
        PushSettings,
        Schema,
        SchemaSettings,
        SecretReference,
        Subscription,
        SubscriptionBinding,
        Topic,
        UnwrappedSettings,
    )
    from penstock.bus.transports.capabilities import TransportCapabilities
    from penstock.bus.transports.drift import Drift, differences
    from penstock.bus.transports.embedded import EmbeddedBus
    from penstock.bus.transports.nats.transport import NatsTransport
    from penstock.bus.transports.protocol import Transport
    from penstock.bus.transports.pubsub.transport import PubsubTransport

__all__ = [
    "AutoReplay",
    "BindingKind",
    "Delivery",
    "Drift",
    "EmbeddedBus",
    "ErrorKind",
    "Nack",
    "NatsTransport",
    "NewMessage",
    "NewSnapshot",
    "OidcSettings",
    "PubsubTransport",
    "PushSettings",
    "Schema",
    "SchemaSettings",
    "SecretReference",
    "SettleResult",
    "Subscription",
    "SubscriptionBinding",
    "SubscriptionSpec",
    "Topic",
    "TopicSpec",
    "Transport",
    "TransportCapabilities",
    "UnwrappedSettings",
    "differences",
    "sign_webhook",
    "verify_webhook",
    "webhook_key",
]

_HOMES = {
    "AutoReplay": "penstock.bus.records",
    "BindingKind": "penstock.bus.binding",
    "Delivery": "penstock.bus.message",
    "Drift": "penstock.bus.transports.drift",
    "EmbeddedBus": "penstock.bus.transports.embedded",
    "ErrorKind": "penstock.bus.message",
    "Nack": "penstock.bus.message",
    "NatsTransport": "penstock.bus.transports.nats.transport",
    "NewMessage": "penstock.bus.message",
    "NewSnapshot": "penstock.bus.records",
    "OidcSettings": "penstock.bus.records",
    "PubsubTransport": "penstock.bus.transports.pubsub.transport",
    "PushSettings": "penstock.bus.records",
    "Schema": "penstock.bus.records",
    "SchemaSettings": "penstock.bus.records",
    "SecretReference": "penstock.bus.records",
    "SettleResult": "penstock.bus.message",
    "Subscription": "penstock.bus.records",
    "SubscriptionBinding": "penstock.bus.records",
    "SubscriptionSpec": "penstock.bus.message",
    "Topic": "penstock.bus.records",
    "TopicSpec": "penstock.bus.message",
    "Transport": "penstock.bus.transports.protocol",
    "TransportCapabilities": "penstock.bus.transports.capabilities",
    "UnwrappedSettings": "penstock.bus.records",
    "differences": "penstock.bus.transports.drift",
    "sign_webhook": "penstock.bus.push.webhook:sign",
    "verify_webhook": "penstock.bus.push.webhook:verify",
    "webhook_key": "penstock.bus.push.webhook:parse_secret",
}
"""Module that defines each public name."""

if not TYPE_CHECKING:  # type checkers see the imports above instead
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
