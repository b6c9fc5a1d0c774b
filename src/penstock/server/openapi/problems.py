"""Problem documents in the OpenAPI document: one response per status, and their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from penstock.core.records.record import JsonObject, Meta, Record

MEDIA_TYPE: Final = "application/problem+json"

_MEANINGS: Final[Mapping[int, str]] = {
    400: "The input is invalid; `errors` names the fields.",
    401: "The API key is missing or not valid.",
    403: "The role of the API key does not permit the operation.",
    404: "The resource does not exist, or the API key may not access it.",
    408: "The request body took too long to arrive.",
    409: "The state or version of the resource does not permit the operation.",
    413: "The request body is too large.",
    415: "The request body is not JSON.",
    422: "The Idempotency-Key was already used with a different body.",
    429: "The API key exceeded its request rate; see Retry-After.",
    503: "The server is overloaded or the database is unavailable; see Retry-After.",
}
PROBLEMS: Final[dict[int, dict[str, Any]]] = {
    status: {
        "description": meaning,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, meaning in _MEANINGS.items()
}


class FieldError(Record, omit_defaults=True):
    """One invalid field of a request."""

    field: Annotated[str, Meta(examples=["schedule_cron"])]
    """Name of the invalid field; nested names are joined by dots."""
    expected: str
    """Description of the values that the field accepts."""
    got: str
    """Value that was received, shortened."""
    fix: str | None = None
    """Suggested correction; absent if there is none."""


class Problem(Record, omit_defaults=True):
    """A problem document (RFC 9457)."""

    type: Annotated[str, Meta(examples=["urn:penstock:problem:run.illegal_transition"])]
    """URN of the kind of problem, derived from `code`."""
    title: Annotated[str, Meta(examples=["Conflict"])]
    """Reason phrase of the HTTP status."""
    status: Annotated[int, Meta(examples=[409])]
    """HTTP status code of the response."""
    code: Annotated[str, Meta(examples=["run.illegal_transition"])]
    """Stable, machine-readable code of the problem."""
    detail: str
    """Explanation of this occurrence in one or two sentences."""
    request_id: str | None
    """Id of the request, as in `X-Request-Id` and the server's log."""
    errors: list[FieldError] | None = None
    """Invalid fields; absent unless the input was invalid."""
    about: JsonObject | None = None
    """Further facts, such as the states involved; absent if there are none."""
