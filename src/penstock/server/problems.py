"""Errors as problem documents (RFC 9457) with stable codes, the invalid field and a fix.

Every error response is built here. A document never contains a traceback, an SQL statement or a
secret; `request_id` refers to the log entry with the details.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from penstock.core.errors import (
    InvalidInput,
    PenstockError,
    SchemaMismatch,
    StoreBusy,
    StoreUnavailable,
)
from penstock.core.redact import redact, redact_text
from penstock.server.openapi.problems import MEDIA_TYPE

log = logging.getLogger(__name__)

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
"""Codes of HTTP-level rejections, which have no PenstockError."""


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


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    response, site = error_response(error, request_id_of(request)), request.app.state.site
    is_temporary = isinstance(error, StoreUnavailable | StoreBusy)
    if is_temporary and site is not None and _is_person(request, "GET", "POST"):
        shown: Response = site.unavailable(request, is_busy=isinstance(error, StoreBusy))
        return shown
    return response


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal_response(error, request_id_of(request))


def refusal_response(error: Refused, request_id: str | None) -> Response:
    """Return the response to a refusal by the HTTP layer."""
    code = CODES.get(error.status, "refused")
    return problem(error.status, code, error.detail, request_id=request_id, headers=error.headers)


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and _is_person(request) and request.app.state.site is not None:
        return await _absent_page(request)
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


async def _absent_page(request: Request) -> Response:
    """Return the "not found" page, which needs the session of the person."""
    try:
        shown: Response = await request.app.state.site.absent(request)
    except PenstockError as error:  # an error handler's own errors are not handled
        return await _ours(request, error)
    except Refused as error:
        return await _refused(request, error)
    return shown


def _is_person(request: Request, *methods: str) -> bool:
    """Return whether a browser requests a page, not the API, and does not prefer JSON.

    methods: those that count, by default only GET; a POST sends a form of the dashboard.
    """
    is_page = request.method in (methods or ("GET",)) and not request.url.path.startswith("/api/")
    preferred, is_html, _ = request.headers.get("accept", "").partition("text/html")
    return is_page and bool(is_html) and "json" not in preferred


def _methods_of(request: Request) -> str:
    """Return the methods of a path as the value of an Allow header."""
    path, found = request.url.path, set[str]()
    for route in request.app.routes:
        if route.path_regex.match(path):
            found |= route.methods
    return ", ".join(sorted(found)) or "GET"


async def _gone(request: Request, _: Exception) -> Response:
    """Respond to a request whose client disconnected while sending the body; nothing was done."""
    return problem(
        400, "request.broken", "The request body is incomplete.", request_id=request_id_of(request)
    )


async def _unexpected(request: Request, error: Exception) -> Response:
    request_id = request_id_of(request)
    log.error("request %s failed", request_id, exc_info=error)
    return problem(
        500, "internal", "An unexpected error occurred; it was logged.", request_id=request_id
    )


def _error(field: str, expected: str, got: str, fix: str | None = None) -> dict[str, Any]:
    made = {"field": redact_text(field), "expected": expected, "got": redact_text(got)}
    return made if fix is None else {**made, "fix": fix}


HANDLERS: Final = {
    PenstockError: _ours,
    Refused: _refused,
    HTTPException: _plain,
    ClientDisconnect: _gone,
    Exception: _unexpected,
}
"""Turns every error into a problem document."""
