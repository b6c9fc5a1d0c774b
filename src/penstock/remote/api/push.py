"""Pushes from subscriptions elsewhere.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from penstock.remote.shapes.push import PushEnvelopeIn
from penstock.remote.transport import Transport, quoted


class PushApi:
    """Pushes from subscriptions elsewhere."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def receive_push(self, subscription: str, body: PushEnvelopeIn) -> None:
        """Take in a message that a subscription elsewhere pushes, in Google's envelope.

        `POST /pubsub/push/{subscription}`
        """
        self._transport.call("POST", f"/pubsub/push/{quoted(subscription)}", body=body)
