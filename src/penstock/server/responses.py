"""JSON responses, and the identity of an idempotent request."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.core.errors import InvalidInput
from penstock.server.auth import Caller
from penstock.server.idempotency import RequestKey

KEY_MAX = 255


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a value as a JSON response."""
    return Response(msgspec.json.encode(value), status, dict(headers or {}), "application/json")


def request_key(request: Request, caller: Caller, key: str, part: str = "") -> RequestKey:
    """Return the idempotency record of a request: caller, key, and hash of path and body."""
    if not 0 < len(key) <= KEY_MAX or not key.isprintable() or not key.isascii():
        raise InvalidInput("Idempotency-Key", f"1 to {KEY_MAX} printable characters", "other")
    body = getattr(request.state, "raw_body", None)
    raw = body if body is not None else getattr(request, "_body", b"")
    asked = f"{request.method} {request.url.path}?{request.url.query}\n".encode() + raw
    return RequestKey(
        scope=caller.client.request_scope(f"{caller.principal.key_id}"),
        key=key + part,
        body=hashlib.sha256(asked).digest(),
    )
