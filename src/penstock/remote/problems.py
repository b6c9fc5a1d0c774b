"""Problem documents (RFC 9457) as the errors they were on the other side.

An error that crossed the wire has the class, code, message and detail it had: whoever catches
`Conflict` catches it from a database and from a URL alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.errors import ApiError, InvalidInput, PenstockError, ProcessorError

# An attribute of an error that its detail calls otherwise.
_RENAMED: Final = {"from": "from_state", "to": "to_state"}


def error_of(status: int, body: bytes, where: str) -> PenstockError:
    """The error that an answer stands for; `where` names the server in words of our own."""
    problem = _parsed(body)
    if problem is None:
        return ApiError(f"{where} answered {status} and no problem document: is this Penstock?")
    message = str(problem.get("detail") or f"{where} answered {status}.")
    return rebuilt(str(problem["code"]), message, _about(problem))


def rebuilt(code: str, message: str, detail: dict[str, Any]) -> PenstockError:
    """The error of a code; one that is not known here keeps its code."""
    kind = _kinds().get(code)
    if kind is None:
        return ApiError(message, code=code, detail=detail)
    # Constructors differ and would word the message anew: the object is filled in instead.
    error = kind.__new__(kind, message)
    error.args = (message,)
    vars(error).update({_RENAMED.get(name, name): value for name, value in detail.items()})
    if isinstance(error, InvalidInput):
        for name in ("field", "expected", "got"):
            vars(error).setdefault(name, "")
        vars(error).setdefault("fix", None)
    error.detail = detail
    return error


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "code" in found else None


def _about(problem: Mapping[str, Any]) -> dict[str, Any]:
    """What the error's own detail was: the first wrong field, or more about the thing."""
    errors = problem.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        return dict(errors[0])
    about = problem.get("about")
    return dict(about) if isinstance(about, dict) else {}


def _kinds() -> dict[str, type[PenstockError]]:
    """Code → class, of every error that can come over the wire."""
    found: dict[str, type[PenstockError]] = {}
    waiting: list[type[PenstockError]] = [PenstockError]
    while waiting:
        kind = waiting.pop(0)
        if not issubclass(kind, ProcessorError) and kind.__module__ == PenstockError.__module__:
            found.setdefault(kind.code, kind)
            waiting += kind.__subclasses__()
    return found
