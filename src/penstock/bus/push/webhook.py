"""Signatures of Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`.

Pure. HMAC-SHA256 over `id.timestamp.body` (raw bytes) with a `whsec_` secret of 24 to 64 bytes; two
secrets give two signatures, so that a receiver can rotate from one to the other. Receivers call
`verify`: it compares in constant time and allows a clock difference of five minutes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.core.clock import SECOND, Micros
from penstock.core.errors import InvalidInput

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = (24, 64)
TOLERANCE_SECONDS: Final = 300
SECRETS_MAX: Final = 4
SIGNATURES_MAX: Final = 16


def parse_secret(secret: object, field: str = "secret") -> bytes:
    """Return the key of a `whsec_` secret. InvalidInput never quotes the secret."""
    expected = "whsec_ and the base64 of 24 to 64 bytes"
    if not isinstance(secret, str) or not secret.startswith(PREFIX):
        raise InvalidInput(field, expected, "a value without whsec_")
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(field, expected, "invalid base64") from None
    if not SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1]:
        raise InvalidInput(field, expected, f"{len(key)} bytes")
    return key


def sign(keys: Sequence[bytes], message_id: str, body: bytes, now: Micros) -> dict[str, str]:
    """Return the Standard Webhooks headers of a request, with one signature per key."""
    assert 1 <= len(keys) <= SECRETS_MAX, len(keys)
    assert "." not in message_id, message_id
    at = str(now // SECOND)
    marks = [_mark(key, message_id, at, body) for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": at,
        "webhook-signature": " ".join(f"v1,{mark}" for mark in marks),
    }


def verify(
    keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: Micros
) -> str | None:
    """Return the id of a message with a valid signature, else None. Header names are lowercase."""
    message_id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not message_id or not (at.isascii() and at.isdigit() and len(at) <= 12):
        return None
    if abs(int(at) - now // SECOND) > TOLERANCE_SECONDS:
        return None
    given = headers.get("webhook-signature", "").split(" ")[:SIGNATURES_MAX]
    wanted = [_mark(key, message_id, at, body) for key in keys]
    is_genuine = False
    for text in given:
        version, _, mark = text.partition(",")
        for right in wanted if version == "v1" else ():
            is_genuine |= hmac.compare_digest(mark.encode(), right.encode())
    return message_id if is_genuine else None


def _mark(key: bytes, message_id: str, at: str, body: bytes) -> str:
    signed = f"{message_id}.{at}.".encode() + body
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode("ascii")
