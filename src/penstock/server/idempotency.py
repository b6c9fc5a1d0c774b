"""Idempotent requests: the request key, the work and the response commit in one transaction.

The caller names its request by a key. The first call does the work and stores its response; a
repeat with the same body gets the stored response, one with another body is refused. A crash leaves
either all of it or nothing. This works because every use case that writes is one `store.write`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.audit.store.alerts import request_answer, request_begin
from penstock.db.store import Capabilities, Store, Tx, Waiter

T = TypeVar("T")


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
    """A store whose first write also stores a request's key and its rendered response."""

    def __init__(self, store: Store, request: RequestKey, render: Callable[[Any], Any]) -> None:
        self._store = store
        self._request: RequestKey | None = request
        self._render = render
        self.response: Any = None

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the underlying engine."""
        return self._store.capabilities

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
            request_answer(tx, request.scope, request.key, self.response)
            return value

        value = self._store.write(marked)
        self._request = None
        return value

    def reserved(self) -> Store:
        """Return the underlying store's reserved connection."""
        return self._store.reserved()

    def scoped(self, customer: int) -> Store:
        """Not supported: scope the store before wrapping it."""
        raise AssertionError(f"scope the store before wrapping it (customer {customer})")

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters on the channels."""
        self._store.wake(channels)

    def listen(self, channels: Iterable[str]) -> Waiter:
        """Return a waiter for wakeups on the channels."""
        return self._store.listen(channels)

    def migrate(self) -> list[str]:
        """Not supported: this store serves one request."""
        raise AssertionError("a store for one request does not migrate")

    def verify(self) -> list[str]:
        """Return the names of missing migrations."""
        return self._store.verify()

    def before_close(self, call: Callable[[], None]) -> None:
        """Register a call to run before the underlying store closes."""
        self._store.before_close(call)

    def close(self) -> None:
        """Do nothing: the underlying store outlives the request."""


def stored_response(store: Store, request: RequestKey) -> Any | None:
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
