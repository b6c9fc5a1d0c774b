"""Pagination cursors: signed, opaque positions in a list that clients cannot forge or modify.

Pure. A cursor is a position and a signature over the list, the customer, the filters and the
position. Any cursor that was not issued for the same query is rejected, always with the same
message. The secret comes from the store, so that every replica accepts every cursor.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.core.errors import InvalidInput

CURSOR_MAX: Final = 512
_MAC_BYTES = 16


def sign_cursor(secret: bytes, question: Mapping[str, Any], place: Sequence[Any]) -> str:
    """Return the cursor that continues the list `question` after the position `place`."""
    body = json.dumps(list(place), separators=(",", ":")).encode()
    return _text(_mac(secret, question, body) + body)


def verify_cursor(secret: bytes, question: Mapping[str, Any], cursor: object) -> list[Any]:
    """Return the position in a cursor; raise InvalidInput unless it was issued for `question`."""
    expected = "the next_cursor of an earlier page of this same list"
    if not isinstance(cursor, str) or not 0 < len(cursor) <= CURSOR_MAX:
        raise InvalidInput("cursor", expected, "an invalid cursor")
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("cursor", expected, "an invalid cursor") from None
    mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    is_ours = hmac.compare_digest(mac, _mac(secret, question, body)) and _text(raw) == cursor
    if not is_ours:
        raise InvalidInput("cursor", expected, "an invalid cursor")
    place = json.loads(body)
    assert isinstance(place, list)
    return place


def _mac(secret: bytes, question: Mapping[str, Any], body: bytes) -> bytes:
    text = json.dumps(question, sort_keys=True, separators=(",", ":")).encode()
    return hmac.digest(secret, b"%d:%b%b" % (len(text), text, body), hashlib.sha256)[:_MAC_BYTES]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
