"""Definitions of pipelines for callers, without secrets.

New declarations with secrets are rejected; these functions also mask secrets in older ones. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.redact import MASK, is_reference, is_secret_name, redact_text
from penstock.pipelines.declare.endpoint import shown_url

_USER_INFO: Final = re.compile(r"(://[^:/@\s]*):.*@", re.DOTALL)
"""Matches a password in an address; it may contain any character, even an unencoded `/` or `@`."""


def warehouse_shown(address: str) -> str:
    """Return the name or address of a warehouse without a password."""
    return redact_text(_USER_INFO.sub(rf"\1:{MASK}@", address))


def definition_shown(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a definition without secrets."""
    return {name: _shown(name, value) for name, value in definition.items()}


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, str):
        if name == "url":
            return redact_text(shown_url(value))
        return warehouse_shown(value) if name == "warehouse" else redact_text(value)
    if isinstance(value, list):
        return [_shown(name, part) for part in value]
    if not isinstance(value, Mapping):
        return value
    return {
        word: MASK if word == "default" and _is_literal(name, part) else _shown(word, part)
        for word, part in value.items()
    }


def _is_literal(name: str, default: Any) -> bool:
    """Return whether a default of the parameter `name` is a literal secret."""
    return is_secret_name(name) and default not in (None, "") and not is_reference(default)
