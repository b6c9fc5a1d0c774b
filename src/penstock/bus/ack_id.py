"""Ack ids: opaque text that identifies one delivery attempt of one message.

An ack id encodes (subscription, message, epoch) and a checksum that catches typing errors. It does
not authorise anything: the caller needs access to the subscription, and only the ack id of the
message's latest epoch has an effect.
"""

from __future__ import annotations

import binascii
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from penstock.core.errors import InvalidInput
from penstock.core.naming import SubscriptionKey

_LAYOUT: Final = struct.Struct(">QQI")
_CHECKSUM: Final = struct.Struct(">I")
_CHARS: Final = 32


class DeliveryKey(NamedTuple):
    """The delivery attempt that an ack id identifies."""

    subscription_key: SubscriptionKey
    message_id: int
    epoch: int


def encode(subscription_key: SubscriptionKey, message_id: int, epoch: int) -> str:
    """Return the ack id of a delivery attempt."""
    body = _LAYOUT.pack(subscription_key, message_id, epoch)
    return urlsafe_b64encode(body + _CHECKSUM.pack(binascii.crc32(body))).decode("ascii")


def decode(ack_id: object, field: str = "ack_id") -> DeliveryKey:
    """Return the contents of an ack id; raise InvalidInput if it is malformed."""
    expected = "an ack id exactly as it was delivered"
    if not isinstance(ack_id, str) or len(ack_id) != _CHARS or not ack_id.isascii():
        raise InvalidInput(field, expected, ack_id)
    try:
        raw = urlsafe_b64decode(ack_id)
    except (ValueError, binascii.Error):
        raise InvalidInput(field, expected, ack_id) from None
    body, check = raw[: _LAYOUT.size], raw[_LAYOUT.size :]
    if len(raw) != _LAYOUT.size + _CHECKSUM.size or _CHECKSUM.pack(binascii.crc32(body)) != check:
        raise InvalidInput(field, expected, ack_id)
    ticket = DeliveryKey._make(_LAYOUT.unpack(body))
    if ticket.subscription_key >= 2**63 or ticket.message_id >= 2**63 or ticket.epoch >= 2**31:
        raise InvalidInput(field, expected, ack_id)
    return ticket
