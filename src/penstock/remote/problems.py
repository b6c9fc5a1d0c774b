"""Conversion of problem documents (RFC 9457) to the errors that the server raised.

The class, code, message and detail are the same: `except Conflict` works for a database and for a
URL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.errors import ApiError, InvalidInput, NotFound, PenstockError, ProcessorError

# Attributes of errors that have a different name in their detail.
_RENAMED: Final = {"from": "from_state", "to": "to_state"}


def error_of(status: int, body: bytes, where: str) -> PenstockError:
    """Return the error of a response; `where` names the server in messages."""
    problem = _parsed(body)
    if problem is None:
        return ApiError(
            f"{where} returned {status} without a problem document. Is it a Penstock API?"
        )
    message = str(problem.get("detail") or f"{where} returned {status}.")
    return error_from_code(str(problem["code"]), message, _about(problem))


def error_from_code(code: str, message: str, detail: dict[str, Any]) -> PenstockError:
    """Return the error of a code; an unknown code becomes an ApiError that keeps it."""
    kind = _kinds().get(code)
    if kind is None:
        return ApiError(message, code=code, detail=detail)
    # Constructors differ and would build their own message, so the attributes are set directly.
    error = kind.__new__(kind, message)
    error.args = (message,)
    vars(error).update({_RENAMED.get(name, name): value for name, value in detail.items()})
    if isinstance(error, InvalidInput):
        for name in ("field", "expected", "got"):
            vars(error).setdefault(name, "")
    if isinstance(error, InvalidInput | NotFound):
        vars(error).setdefault("fix", None)
    error.detail = detail
    return error


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "code" in found else None


def _about(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Return the detail of the error: the first invalid field, or `about`."""
    errors = problem.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        return dict(errors[0])
    about = problem.get("about")
    return dict(about) if isinstance(about, dict) else {}


def _kinds() -> dict[str, type[PenstockError]]:
    """Return the error classes that a server can send, by code."""
    found: dict[str, type[PenstockError]] = {}
    waiting: list[type[PenstockError]] = [PenstockError]
    while waiting:
        kind = waiting.pop(0)
        if not issubclass(kind, ProcessorError) and kind.__module__ == PenstockError.__module__:
            found.setdefault(kind.code, kind)
            waiting += kind.__subclasses__()
    return found
