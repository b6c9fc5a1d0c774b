"""JSON responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a value as a JSON response."""
    return Response(msgspec.json.encode(value), status, dict(headers or {}), "application/json")
