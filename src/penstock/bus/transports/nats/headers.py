"""Headers of a message on NATS: its attributes, its ordering key and its dedupe id. Pure.

An attribute whose name and value fit is a header of that name, so that other NATS clients can read
and write attributes as usual. Other attributes, and an ordering key that does not fit, are JSON in
`Penstock-Attributes` and `Penstock-Ordering-Key`, encoded in base64.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from penstock.bus.message import NewMessage
from penstock.bus.rules import body_hash, check_text

MESSAGE_ID: Final = "Nats-Msg-Id"
EXPECTED_LAST: Final = "Nats-Expected-Last-Subject-Sequence"
OTHER_ATTRIBUTES: Final = "Penstock-Attributes"
ORDERING_KEY: Final = "Penstock-Ordering-Key"
BODY_HASH: Final = "Penstock-Body-Hash"
_OURS: Final = ("nats-", "penstock-")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


class Received(NamedTuple):
    """Attributes and ordering key of a received message."""

    attributes: dict[str, str]
    ordering_key: str | None


def headers_of(message: NewMessage, message_id: str) -> dict[str, str]:
    """Return the headers to publish a message with."""
    headers = {MESSAGE_ID: message_id}
    if message.dedupe_id is not None:
        headers[BODY_HASH] = body_hash(message)
    if message.ordering_key is not None:
        headers[ORDERING_KEY] = _encoded(message.ordering_key)
    return headers | attribute_headers(message.attributes)


def attribute_headers(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of attributes."""
    plain = {name: value for name, value in attributes.items() if _fits(name, value)}
    others = {name: value for name, value in attributes.items() if name not in plain}
    return plain | ({OTHER_ATTRIBUTES: _encoded(others)} if others else {})


def read_headers(headers: Mapping[str, str] | None) -> Received:
    """Return the values of the headers; raise ValueError if Penstock's are malformed."""
    attributes: dict[str, str] = {}
    ordering_key: str | None = None
    for name, value in (headers or {}).items():
        if name == OTHER_ATTRIBUTES:
            attributes |= msgspec.convert(_decoded(value), dict[str, str])
        elif name == ORDERING_KEY:
            ordering_key = check_text(msgspec.convert(_decoded(value), str), ORDERING_KEY, 1024)
        elif not name.lower().startswith(_OURS) or _is_ours(name):
            attributes[str(name)] = str(value)
    return Received(attributes, ordering_key)


def _is_ours(name: str) -> bool:
    """Whether a reserved name is an attribute of a dead letter, not a header of the protocol."""
    return name.startswith("penstock-")


def _fits(name: str, value: str) -> bool:
    is_protocol = name.lower().startswith(_OURS) and not _is_ours(name)
    return bool(not is_protocol and _NAME.fullmatch(name) and _VALUE.fullmatch(value))


def _encoded(value: object) -> str:
    return b64encode(msgspec.json.encode(value)).decode("ascii")


def _decoded(text: str) -> object:
    return msgspec.json.decode(b64decode(text, validate=True))
