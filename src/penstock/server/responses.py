"""Responses: JSON bodies, pages with cursors, and idempotent requests.

Routes build plain values; this module turns them into responses. Every POST uses `idempotent_write`
or `idempotent_action`: with an Idempotency-Key the response is stored and returned verbatim to a
repeat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.responses import Response

from penstock.client import UseCaseGroups
from penstock.core import cursor
from penstock.core.errors import InvalidInput
from penstock.server.auth import Caller
from penstock.server.idempotency import (
    AlreadyExecuted,
    IdempotentStore,
    RequestKey,
    stored_response,
)

T = TypeVar("T")
KEY_MAX = 255


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a value as a JSON response."""
    return Response(msgspec.json.encode(value), status, dict(headers or {}), "application/json")


def idempotent_write(
    request: Request,
    caller: Caller,
    act: Callable[[UseCaseGroups], T],
    render: Callable[[T], Any],
    status: int = 200,
    *,
    kept: Callable[[T], Any] | None = None,
) -> Response:
    """Execute a POST in one write; with an Idempotency-Key at most once.

    A repeat gets the stored response. `kept` renders the stored form of a response with a secret.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return json_response(render(act(caller.client)), status)
    mark = request_key(request, caller, key)

    def rendered(value: T) -> dict[str, Any]:
        return {"status": status, "body": (kept or render)(value)}

    store = IdempotentStore(caller.client.store, mark, rendered)
    try:
        value = act(caller.client.with_store(store))
    except AlreadyExecuted as before:
        stored = before.response
        return json_response(stored["body"], stored["status"], {"Idempotency-Replayed": "true"})
    assert store.response is not None, f"{request.url.path} is not one write"
    return json_response(store.response["body"] if kept is None else render(value), status)


def idempotent_action(
    request: Request, caller: Caller, act: Callable[[], T], render: Callable[[T], Any]
) -> Response:
    """Like `idempotent_write`, for a repeatable action of several writes; stored afterwards."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return json_response(render(act()))
    mark = request_key(request, caller, key)
    before = stored_response(caller.client.store, mark)
    if before is None:
        value = act()
        store = IdempotentStore(caller.client.store, mark, render)
        try:
            store.write(lambda _: value)
        except AlreadyExecuted as other:
            before = other.response
        else:
            return json_response(store.response)
    return json_response(before, headers={"Idempotency-Replayed": "true"})


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


class Pagination:
    """Pages of a list; cursors are valid only for the same list, filters and customer."""

    def __init__(self, request: Request, caller: Caller, **filters: Any) -> None:
        self._secret: bytes = request.app.state.cursor_secret
        self._question = {
            "list": request.url.path,
            "for": caller.customer,
            "filters": {name: value for name, value in filters.items() if value is not None},
        }

    def position(self, given: str | None, parts: int) -> list[Any] | None:
        """Return the position of a cursor; None for the first page."""
        if given is None:
            return None
        place = cursor.verify_cursor(self._secret, self._question, given)
        assert len(place) == parts, place
        return place

    def page(
        self, items: Sequence[Any], limit: int, place_of: Callable[[Any], Sequence[Any]],
        render: Callable[[Any], Any],
    ) -> Response:  # fmt: skip
        """Return a page, with a cursor if there may be another one."""
        more = len(items) >= limit
        following = (
            cursor.sign_cursor(self._secret, self._question, place_of(items[-1])) if more else None
        )
        return json_response({"items": [render(item) for item in items], "next_cursor": following})
