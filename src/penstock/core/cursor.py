"""Cursors: where a list goes on, as an opaque text that its reader can neither make nor bend.

Pure. A cursor is a position and a signature over (what list, for whom, under which filters, where);
anything else than the exact text that was handed out for the same question is refused in the same
words. The secret comes from the store, so that every replica reads every cursor.
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


def seal(secret: bytes, question: Mapping[str, Any], place: Sequence[Any]) -> str:
    """The cursor for going on behind `place` in the answer to `question`."""
    body = json.dumps(list(place), separators=(",", ":")).encode()
    return _text(_mac(secret, question, body) + body)


def unseal(secret: bytes, question: Mapping[str, Any], cursor: object) -> list[Any]:
    """The place behind which to go on; InvalidInput unless it was sealed for this very question."""
    expected = "the next_cursor of an earlier page of this same list"
    if not isinstance(cursor, str) or not 0 < len(cursor) <= CURSOR_MAX:
        raise InvalidInput("cursor", expected, "something else")
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("cursor", expected, "something else") from None
    mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    is_ours = hmac.compare_digest(mac, _mac(secret, question, body)) and _text(raw) == cursor
    if not is_ours:
        raise InvalidInput("cursor", expected, "something else")
    place = json.loads(body)
    assert isinstance(place, list)
    return place


def _mac(secret: bytes, question: Mapping[str, Any], body: bytes) -> bytes:
    asked = json.dumps(question, sort_keys=True, separators=(",", ":")).encode()
    return hmac.digest(secret, b"%d:%b%b" % (len(asked), asked, body), hashlib.sha256)[:_MAC_BYTES]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
