"""Avro and Protobuf schemas: validates definitions, and messages against them.

Avro is checked in full. Protobuf definitions are kept, but messages are not checked against them:
that needs a Protobuf compiler.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from penstock.bus.schemas import avro
from penstock.bus.schemas.avro import DEFINITION_MAX, AvroMismatch
from penstock.core.errors import InvalidInput

SchemaKind: TypeAlias = Literal["avro", "protobuf"]
ENCODING_ATTRIBUTE: Final = "googclient_schemaencoding"
NAME_ATTRIBUTE: Final = "googclient_schemaname"
REVISION_ATTRIBUTE: Final = "googclient_schemarevisionid"
_MESSAGE = re.compile(r"^\s*message\s+[A-Za-z_][A-Za-z0-9_]*\s*\{", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def check_definition(kind: str, definition: str, field: str = "definition") -> None:
    """Raise InvalidInput unless the definition is valid."""
    if kind == "avro":
        avro.parse(definition, field)
        return
    plain = _COMMENT.sub("", definition)
    if len(definition.encode("utf-8", "replace")) > DEFINITION_MAX:
        raise InvalidInput(field, f"at most {DEFINITION_MAX} bytes", "a longer definition")
    if not _MESSAGE.search(plain) or plain.count("{") != plain.count("}"):
        raise InvalidInput(field, "a Protobuf file with one message type", definition)


def mismatch(kind: str, definition: str, data: bytes, encoding: str) -> str | None:
    """Return why a message does not match the schema; None if it does, or cannot be checked."""
    if kind != "avro":
        return None
    try:
        avro.check_message(avro.parse(definition), data, encoding)
    except AvroMismatch as error:
        return str(error)
    except RecursionError:
        return "the message is nested too deeply"
    return None
