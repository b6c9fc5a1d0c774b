"""Pushes from subscriptions elsewhere.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class PushedMessageIn(TypedDict):
    """A message in an envelope."""

    messageId: str  # Its id; the same id again is the same message.
    data: NotRequired[str]  # Its bytes, in base64.
    attributes: NotRequired[dict[str, str]]  # At most a hundred texts by name.
    orderingKey: NotRequired[str]  # Messages of a key keep their order.
    publishTime: NotRequired[str]  # When it was published there (RFC 3339).


class PushEnvelopeIn(TypedDict):
    """Google's push envelope."""

    message: PushedMessageIn  # The message.
    subscription: str  # The full name of the subscription that pushes.
    deliveryAttempt: NotRequired[int | None]  # From 1, when the sender has a dead-letter policy.
