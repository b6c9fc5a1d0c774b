"""Errors as problem documents (RFC 9457) with stable codes, the invalid field and a fix.

Every error response is built here. A document never contains a traceback, an SQL statement or a
secret; `request_id` refers to the log entry with the details.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from penstock.core.errors import (
    InvalidInput,
    PenstockError,
    SchemaMismatch,
    StoreBusy,
    StoreUnavailable,
    short_repr,
)
from penstock.core.redact import redact, redact_text

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
CODES: Mapping[int, str] = {
    400: "input.invalid",
    401: "auth.required",
    403: "auth.forbidden",
    404: "not_found",
    405: "method.not_allowed",
    408: "request.timeout",
    413: "request.too_large",
    415: "request.media_type",
    429: "rate.exceeded",
    503: "overloaded",
}
"""Codes of HTTP-level refusals, which have no PenstockError."""


class Refused(Exception):
    """A refusal by the HTTP layer, before any use case runs."""

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        super().__init__(detail)


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    request_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Return a problem document as a response."""
    body = {
        "type": f"urn:penstock:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        "request_id": request_id,
        **more,
    }
    return Response(msgspec.json.encode(body), status, dict(headers or {}), MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Install handlers that turn every error into a problem document."""
    app.add_exception_handler(PenstockError, _ours)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


def error_response(error: PenstockError, request_id: str | None) -> Response:
    """Return the response to a PenstockError."""
    status, headers = error.http_status, {}
    if isinstance(error, StoreUnavailable | StoreBusy) or error.retryable:
        headers["Retry-After"] = str(RETRY_SECONDS)
    if isinstance(error, SchemaMismatch):
        status = 503
    if status >= 500:
        log.warning("%s: %s", error.code, error.message)
        # The database's address and message are only logged.
        return problem(
            status,
            error.code,
            "The database is unavailable or busy: nothing was changed; try again."
            if not getattr(error, "ambiguous", False)
            else "The connection to the database was lost during the commit: the change may have "
            "been made; check, or repeat with the same Idempotency-Key.",
            request_id=request_id,
            headers=headers,
        )
    more: dict[str, Any] = {}
    if isinstance(error, InvalidInput):
        more["errors"] = [_error(error.field, error.expected, error.got, error.fix)]
    elif error.detail:
        more["about"] = redact(error.detail)
    return problem(
        status,
        error.code,
        redact_text(error.message),
        request_id=request_id,
        headers=headers,
        **more,
    )


def request_id_of(request: Request) -> str | None:
    """Return the id under which the request is logged."""
    found = request.scope.get("penstock.request_id")
    return found if isinstance(found, str) else None


def invalid_response(errors: Sequence[Mapping[str, Any]], request_id: str | None) -> Response:
    """Return a problem document that names every invalid field."""
    first = errors[0]
    detail = f"{first['field']}: expected {first['expected']}, got {first['got']}."
    if len(errors) > 1:
        detail = f"{detail} ({len(errors)} fields are invalid.)"
    return problem(400, "input.invalid", detail, request_id=request_id, errors=list(errors))


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return error_response(error, request_id_of(request))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal_response(error, request_id_of(request))


def refusal_response(error: Refused, request_id: str | None) -> Response:
    """Return the response to a refusal by the HTTP layer."""
    code = CODES.get(error.status, "refused")
    return problem(error.status, code, error.detail, request_id=request_id, headers=error.headers)


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = CODES.get(error.status_code, "refused")
    texts = {
        404: "No route matches this path.",
        405: "The path does not support this method.",
    }
    detail = texts.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = _methods_of(request)
    return problem(
        error.status_code, code, detail, request_id=request_id_of(request), headers=headers
    )


def _methods_of(request: Request) -> str:
    """Return the methods of a path as the value of an Allow header."""
    path, found = request.url.path, set[str]()
    for route in request.app.routes:
        if route.path_regex.match(path):
            found |= route.methods
    return ", ".join(sorted(found)) or "GET"


async def _gone(request: Request, _: Exception) -> Response:
    """Answer a request whose client disconnected within the body; nothing was done."""
    return problem(
        400, "request.broken", "The request body is incomplete.", request_id=request_id_of(request)
    )


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    known = _body_fields(request.scope.get("route"))
    return invalid_response(field_errors(error.errors()[:20], known), request_id_of(request))


async def _unexpected(request: Request, error: Exception) -> Response:
    request_id = request_id_of(request)
    log.error("request %s failed", request_id, exc_info=error)
    return problem(
        500, "internal", "An unexpected error occurred; it was logged.", request_id=request_id
    )


def field_errors(
    errors: Sequence[Mapping[str, Any]], known: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Convert validation errors of pydantic; `known` are the fields of the body."""
    return [_from_pydantic(one, known) for one in errors]


def _body_fields(route: object) -> Collection[str]:
    """Return the fields of a route's body model."""
    body = route.body_field if isinstance(route, APIRoute) else None
    model = None if body is None else body.field_info.annotation
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model.model_fields
    return ()


def _from_pydantic(error: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    where = [str(part) for part in error["loc"]]
    if len(where) > 1 and where[0] in ("body", "query", "path", "header"):
        where = where[1:]
    field = ".".join(where)[:200]
    kind = error["type"]
    if kind == "missing":
        return _error(field, "a value", "nothing", "This field is required.")
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(
            field, known, n=1
        )  # nested names have dots and never match
        fix = f"Did you mean {near[0]}?" if near else "Check its spelling."
        return _error(field, "no field of this name", "one", fix)
    expected = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return _error(field, expected, short_repr(error.get("input")))


def _error(field: str, expected: str, got: str, fix: str | None = None) -> dict[str, Any]:
    made = {"field": redact_text(field), "expected": expected, "got": redact_text(got)}
    return made if fix is None else {**made, "fix": fix}
