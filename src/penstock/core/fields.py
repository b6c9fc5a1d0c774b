"""Checks of single input fields, shared by several subjects."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping

from penstock.core.errors import InvalidInput
from penstock.core.redact import reject_literal_secrets

TEXT_MAX = 200
KEY_MAX = 255


JSON_BYTES_MAX = 65_536


JSON_DEPTH_MAX = 32


CUSTOMER_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")


def check_customer(value: object, field: str = "customer_id") -> str:
    """Validate a customer id and return it."""
    if not isinstance(value, str) or not CUSTOMER_PATTERN.fullmatch(value):
        raise InvalidInput(
            field, "1 to 128 letters, digits or . _ : @ -, starting with a letter or digit", value
        )
    return value


def did_you_mean(name: str, known: Collection[str]) -> str | None:
    """Return a question that names the known word closest to an unknown one; None if none is."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else None


def parameters_json(value: object, field: str = "parameters") -> str:
    """Return the canonical JSON of parameters; reject literal secrets, allow references to them."""
    text = canonical_json_object(value, field)
    reject_literal_secrets(value, field)
    return text


def canonical_json_object(value: object, field: str = "parameters") -> str:
    """Return the canonical text of a JSON object that both engines and the audit can store."""
    if not isinstance(value, Mapping):
        raise InvalidInput(field, "an object", value)
    _check_json(value, field, 1)
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False, ensure_ascii=False)
        size = len(text.encode("utf-8"))
    except (TypeError, ValueError) as error:  # also lone surrogates
        raise InvalidInput(field, "plain JSON values", type(value).__name__, str(error)) from None
    if size > JSON_BYTES_MAX:
        raise InvalidInput(field, "at most 64 KiB of JSON", f"{size} bytes")
    return text


def check_json(value: object, field: str) -> None:
    """Reject values that JSON, PostgreSQL or 64-bit integers cannot represent; errors name the
    path.
    """
    _check_json(value, field, 1)


def _check_json(value: object, field: str, depth: int) -> None:
    if depth > JSON_DEPTH_MAX:
        raise InvalidInput(field[:TEXT_MAX], f"at most {JSON_DEPTH_MAX} levels", "more")
    if isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(name, str):
                raise InvalidInput(field[:TEXT_MAX], "string keys", name)
            _check_json(name, field, depth)
            _check_json(part, f"{field}.{name}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            _check_json(part, f"{field}[{index}]", depth + 1)
    elif isinstance(value, str) and "\x00" in value:
        raise InvalidInput(field[:TEXT_MAX], "text without NUL characters", "a NUL character")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidInput(field[:TEXT_MAX], "whole numbers of at most 64 bits", value)


def check_text(field: str, value: object) -> None:
    """Raise InvalidInput for a name or key that cannot be stored."""
    if not isinstance(value, str) or not 0 < len(value) <= KEY_MAX or not value.isprintable():
        raise InvalidInput(field, f"1 to {KEY_MAX} printable characters", value)
