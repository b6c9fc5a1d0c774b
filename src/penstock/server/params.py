"""Parts that routes share: parameters with their descriptions, ids from paths, the router."""

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
from penstock.server.problems import MEDIA_TYPE
from penstock.server.route import StrictRoute, caller_of

LIMIT_MAX: Final = 1_000
OFFSET_MAX: Final = 9_000

By: TypeAlias = Annotated[Caller, Depends(caller_of)]
CustomerId: TypeAlias = Annotated[
    str, Path(description="The customer.", examples=["acme"], max_length=200)
]
ConfigId: TypeAlias = Annotated[
    str, Path(description="The config.", examples=["cfg_5m7t0c2d"], max_length=64)
]
RunId: TypeAlias = Annotated[
    str, Path(description="The run.", examples=["run_7h2kq0v3"], max_length=64)
]
Limit: TypeAlias = Annotated[int, Query(description="Page size.", ge=1, le=LIMIT_MAX)]
Offset: TypeAlias = Annotated[
    int, Query(description="Skip as many; deep pages are for cursors.", ge=0, le=OFFSET_MAX)
]
Cursor: TypeAlias = Annotated[
    str | None, Query(description="The `next_cursor` of the page before.", max_length=512)
]
Repeat: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Makes the request safe to repeat for 24 hours: the same key and body get "
        "the same answer, another body is refused.",
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
    ),
]
Moment: TypeAlias = Annotated[str | None, Field(max_length=64)]

_MEANINGS: Final[Mapping[int, str]] = {
    400: "The input is wrong; `errors` names the fields.",
    401: "No valid API key.",
    403: "The key's role does not allow this.",
    404: "There is no such thing, or not for this key.",
    408: "The body took too long.",
    409: "Its state or version does not allow this.",
    413: "The body is too large.",
    415: "The body is not plain JSON.",
    422: "The Idempotency-Key was used for another body.",
    429: "Too many requests of this key; see Retry-After.",
    503: "Overloaded, or the store is away; see Retry-After.",
}
# A reference instead of the model: FastAPI would build a validator for each of them, on each route.
_PROBLEM: Final = {"schema": {"$ref": "#/components/schemas/Problem"}}
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": meaning, "content": {MEDIA_TYPE: _PROBLEM}}
    for status, meaning in _MEANINGS.items()
}


def router(tag: str) -> APIRouter:
    """A router of strict routes under the API's prefix."""
    return APIRouter(
        prefix="/api/v1",
        route_class=StrictRoute,
        tags=[tag],
        responses=PROBLEMS,
        strict_content_type=False,
    )


def found(kind: str, name: str, text: str) -> int:
    """The number behind an id in a path; one that is none is simply not found."""
    try:
        return decode(kind, text)
    except InvalidInput:
        raise NotFound(name, text) from None


@contextlib.contextmanager
def said(field: str, inside: Sequence[str]) -> Iterator[None]:
    """Name the field as the request does in errors about what it is called inside."""
    try:
        yield
    except InvalidInput as error:
        if error.field not in inside:
            raise
        error.args = (error.message.replace(error.field, field, 1),)
        error.field = field
        raise


def moment(text: str | None, field: str) -> int | None:
    """A time of a query parameter; a plain date means its midnight in UTC."""
    if text is None:
        return None
    return parse_iso(f"{text}T00:00:00Z" if len(text) == 10 else text, field)
