"""Ack ids: which handing-over of which message, in opaque text.

An ack id names (subscription, message, epoch) with a checksum against typing errors. It is no
authorisation: whoever presents it must be allowed to use the subscription, and only the latest
epoch is worth anything.
"""

from __future__ import annotations

import binascii
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from penstock.core.errors import InvalidInput

_FORM: Final = struct.Struct(">QQI")
_CHECK: Final = struct.Struct(">I")
_CHARS: Final = 32


class Ticket(NamedTuple):
    """What an ack id names."""

    subscription: int
    message_id: int
    epoch: int


def encode(subscription: int, message_id: int, epoch: int) -> str:
    """The ack id of one handing-over."""
    body = _FORM.pack(subscription, message_id, epoch)
    return urlsafe_b64encode(body + _CHECK.pack(binascii.crc32(body))).decode("ascii")


def decode(ack_id: object, field: str = "ack_id") -> Ticket:
    """What an ack id names; InvalidInput unless it is spelled as one."""
    expected = "an ack id as it was delivered"
    if not isinstance(ack_id, str) or len(ack_id) != _CHARS or not ack_id.isascii():
        raise InvalidInput(field, expected, ack_id)
    try:
        raw = urlsafe_b64decode(ack_id)
    except (ValueError, binascii.Error):
        raise InvalidInput(field, expected, ack_id) from None
    body, check = raw[: _FORM.size], raw[_FORM.size :]
    if len(raw) != _FORM.size + _CHECK.size or _CHECK.pack(binascii.crc32(body)) != check:
        raise InvalidInput(field, expected, ack_id)
    ticket = Ticket._make(_FORM.unpack(body))
    if ticket.subscription >= 2**63 or ticket.message_id >= 2**63 or ticket.epoch >= 2**31:
        raise InvalidInput(field, expected, ack_id)
    return ticket
