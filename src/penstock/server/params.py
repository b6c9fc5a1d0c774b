"""Shared parts of routes: described parameters, ids from paths, the router."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Depends, Header, Path, Query
from pydantic import Field

from penstock.core.clock import parse_iso
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import decode
from penstock.server.auth import Caller
from penstock.server.openapi import texts
from penstock.server.problems import MEDIA_TYPE
from penstock.server.route import StrictRoute, caller_of

LIMIT_MAX: Final = 1_000
OFFSET_MAX: Final = 9_000

CurrentCaller: TypeAlias = Annotated[Caller, Depends(caller_of)]
CustomerId: TypeAlias = Annotated[
    str, Path(description="Name of the customer.", examples=["acme"], max_length=200)
]
ConfigId: TypeAlias = Annotated[
    str, Path(description=texts.CONFIG_ID, examples=["cfg_5m7t0c2d"], max_length=64)
]
RunId: TypeAlias = Annotated[
    str, Path(description=texts.RUN_ID, examples=["run_7h2kq0v3"], max_length=64)
]
Limit: TypeAlias = Annotated[
    int, Query(description="Maximum number of rows to return.", ge=1, le=LIMIT_MAX)
]
Offset: TypeAlias = Annotated[
    int,
    Query(description="Number of rows to skip; use a cursor for deep pages.", ge=0, le=OFFSET_MAX),
]
Cursor: TypeAlias = Annotated[
    str | None,
    Query(
        description="`next_cursor` of the previous page; the first page when omitted.",
        max_length=512,
    ),
]
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Makes the request safe to repeat for 24 hours. The same key and body get "
        "the same response; a different body is refused.",
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
    ),
]
TimeText: TypeAlias = Annotated[str | None, Field(max_length=64)]

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
# A reference instead of the model: FastAPI would build a validator per response on every route.
_PROBLEM: Final = {"schema": {"$ref": "#/components/schemas/Problem"}}
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": meaning, "content": {MEDIA_TYPE: _PROBLEM}}
    for status, meaning in _MEANINGS.items()
}


def router(tag: str) -> APIRouter:
    """Return a router whose routes are `StrictRoute`s under the API's prefix."""
    return APIRouter(
        prefix="/api/v1",
        route_class=StrictRoute,
        tags=[tag],
        responses=PROBLEMS,
        strict_content_type=False,
    )


def decode_path_id(kind: str, name: str, text: str) -> int:
    """Decode an id of a path; raise NotFound if it is malformed."""
    try:
        return decode(kind, text)
    except InvalidInput:
        raise NotFound(name, text) from None


@contextlib.contextmanager
def renaming_field(field: str, inside: Sequence[str]) -> Iterator[None]:
    """Rename the field of InvalidInput from an internal name to the name in the request."""
    try:
        yield
    except InvalidInput as error:
        if error.field not in inside:
            raise
        error.args = (error.message.replace(error.field, field, 1),)
        error.field = field
        raise


def parse_time(text: str | None, field: str) -> int | None:
    """Parse a time parameter; a plain date means midnight UTC of that day."""
    if text is None:
        return None
    return parse_iso(f"{text}T00:00:00Z" if len(text) == 10 else text, field)
