"""Errors as problem documents (RFC 9457): one shape, stable codes, the field and the fix.

Every refusal leaves through here, whoever raised it. A document never shows a traceback, a
statement or a secret; `request_id` leads to the log line that knows more.
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
    shown,
)
from penstock.core.redact import redact, redact_text
from penstock.server.access import methods_of

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
"""Codes of refusals that no error of ours stands behind."""


class Refused(Exception):
    """The edge itself refuses a request, before any use case."""

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
    """A problem document as a response."""
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
    """Let every error of the app leave as a problem document."""
    app.add_exception_handler(PenstockError, _ours)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


def answer_of(error: PenstockError, request_id: str | None) -> Response:
    """What a caller sees of one of our errors."""
    status, headers = error.http_status, {}
    if isinstance(error, StoreUnavailable | StoreBusy) or error.retryable:
        headers["Retry-After"] = str(RETRY_SECONDS)
    if isinstance(error, SchemaMismatch):
        status = 503
    if status >= 500:
        log.warning("%s: %s", error.code, error.message)
        # Where the store is and what it said is for the log.
        return problem(
            status,
            error.code,
            "The store cannot be reached or is busy: nothing was changed; try again."
            if not getattr(error, "ambiguous", False)
            else "The store broke off while it saved: the change may have been made; look, or "
            "repeat with the same Idempotency-Key.",
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
    """The id under which the request is logged."""
    found = request.scope.get("penstock.request_id")
    return found if isinstance(found, str) else None


def invalid(errors: Sequence[Mapping[str, Any]], request_id: str | None) -> Response:
    """A problem that names every field that is wrong."""
    first = errors[0]
    detail = f"{first['field']}: expected {first['expected']}, got {first['got']}."
    if len(errors) > 1:
        detail = f"{detail} ({len(errors)} fields are wrong.)"
    return problem(400, "input.invalid", detail, request_id=request_id, errors=list(errors))


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return answer_of(error, request_id_of(request))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal(error, request_id_of(request))


def refusal(error: Refused, request_id: str | None) -> Response:
    """What a caller sees of a refusal at the edge."""
    code = CODES.get(error.status, "refused")
    return problem(error.status, code, error.detail, request_id=request_id, headers=error.headers)


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = CODES.get(error.status_code, "refused")
    texts = {
        404: "There is nothing under this path.",
        405: "This path does not know this method.",
    }
    detail = texts.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = methods_of(request.url.path)
    return problem(
        error.status_code, code, detail, request_id=request_id_of(request), headers=headers
    )


async def _gone(request: Request, _: Exception) -> Response:
    """The caller hung up before its body was whole: nothing was done, and nobody hears this."""
    return problem(400, "request.broken", "The body broke off.", request_id=request_id_of(request))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    known = _body_fields(request.scope.get("route"))
    return invalid(fields_of(error.errors()[:20], known), request_id_of(request))


async def _unexpected(request: Request, error: Exception) -> Response:
    request_id = request_id_of(request)
    log.error("request %s failed", request_id, exc_info=error)
    return problem(
        500, "internal", "Something went wrong inside; it was logged.", request_id=request_id
    )


def fields_of(
    errors: Sequence[Mapping[str, Any]], known: Collection[str] = ()
) -> list[dict[str, Any]]:
    """What a model found wrong, field by field, in our words; `known` are the body's own fields."""
    return [_from_pydantic(one, known) for one in errors]


def _body_fields(route: object) -> Collection[str]:
    """The fields of the body that a route takes."""
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
        near = difflib.get_close_matches(field, known, n=1)  # a nested one has dots, and no match
        fix = f"Did you mean {near[0]}?" if near else "Check its spelling."
        return _error(field, "no field of this name", "one", fix)
    said = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return _error(field, said, shown(error.get("input")))


def _error(field: str, expected: str, got: str, fix: str | None = None) -> dict[str, Any]:
    made = {"field": redact_text(field), "expected": expected, "got": redact_text(got)}
    return made if fix is None else {**made, "fix": fix}
