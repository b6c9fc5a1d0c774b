"""Idempotent requests: the request key, the work and the response commit in one transaction.

The caller identifies its request by a key. The first call does the work and stores its response; a
repeat with the same body gets the stored response, one with another body is rejected. After a
crash, either everything is stored or nothing. This works because every use case that writes is one
`store.write`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.audit.store.alerts import request_begin, request_finish
from penstock.core.errors import InvalidInput
from penstock.db.store import Transactions, Tx

if TYPE_CHECKING:
    from starlette.requests import Request

    from penstock.server.auth import Caller

T = TypeVar("T")
KEY_MAX: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """Identity of a request: the caller's scope, the caller's key, and the request body."""

    scope: str
    key: str
    body: bytes


class AlreadyExecuted(Exception):
    """The request was executed before; `response` is the stored response."""

    def __init__(self, response: Any) -> None:
        self.response = response
        super().__init__("the request was executed before")


class IdempotentStore:
    """Transactions of one request: the first write also stores its key and its response."""

    def __init__(
        self, store: Transactions, request: RequestKey, render: Callable[[Any], Any]
    ) -> None:
        self._store = store
        self._request: RequestKey | None = request
        self._render = render
        self.response: Any = None

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction."""
        return self._store.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction that also stores the key and the response."""
        request = self._request
        if request is None:
            return self._store.write(body)

        def marked(tx: Tx) -> T:
            earlier = request_begin(tx, request.scope, request.key, request.body)
            if earlier is not None:
                raise AlreadyExecuted(earlier)
            value = body(tx)
            self.response = self._render(value)
            request_finish(tx, request.scope, request.key, self.response)
            return value

        value = self._store.write(marked)
        self._request = None
        return value

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters on the channels."""
        self._store.wake(channels)


def stored_response(store: Transactions, request: RequestKey) -> Any | None:
    """Return the stored response of a request, or None; the request is not recorded.

    For idempotent work that spans several transactions: check first, do the work, then store the
    response through an `IdempotentStore`.
    """

    def check(tx: Tx) -> None:
        raise AlreadyExecuted(request_begin(tx, request.scope, request.key, request.body))

    try:
        store.write(check)
    except AlreadyExecuted as before:
        return before.response
    raise AssertionError("unreachable")


def request_key(request: Request, caller: Caller, key: str, part: str = "") -> RequestKey:
    """Return the idempotency record of a request: caller, key, and hash of path and body."""
    if not 0 < len(key) <= KEY_MAX or not key.isprintable() or not key.isascii():
        raise InvalidInput("Idempotency-Key", f"1 to {KEY_MAX} printable characters", "other")
    body = getattr(request.state, "raw_body", None)
    raw = body if body is not None else getattr(request, "_body", b"")
    asked = f"{request.method} {request.url.path}?{request.url.query}\n".encode() + raw
    return RequestKey(
        scope=caller.client.request_scope(caller.principal.request_scope),
        key=key + part,
        body=hashlib.sha256(asked).digest(),
    )
