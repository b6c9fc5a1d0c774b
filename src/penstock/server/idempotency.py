"""Requests that may be repeated: the mark, the work and the answer commit in one transaction.

A caller names its request by a key. The first call does the work and remembers its answer; a repeat
with the same body gets that very answer, one with another body is refused. A crash leaves either
all of it or nothing. This works because a use case that changes something is one `store.write`.
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
    """Whose request it is, how the caller calls it, and what it asks for."""

    scope: str
    key: str
    body: bytes


class Answered(Exception):
    """The request was answered before; `answer` is what was said."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        super().__init__("answered before")


class MarkedStore:
    """A store whose first write carries the mark of a request and its rendered answer."""

    def __init__(self, store: Store, request: RequestKey, render: Callable[[Any], Any]) -> None:
        self._store = store
        self._request: RequestKey | None = request
        self._render = render
        self.answer: Any = None

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return self._store.capabilities

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction."""
        return self._store.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction, together with the mark and the answer."""
        request = self._request
        if request is None:
            return self._store.write(body)

        def marked(tx: Tx) -> T:
            earlier = request_begin(tx, request.scope, request.key, request.body)
            if earlier is not None:
                raise Answered(earlier)
            value = body(tx)
            self.answer = self._render(value)
            request_answer(tx, request.scope, request.key, self.answer)
            return value

        value = self._store.write(marked)
        self._request = None
        return value

    def reserved(self) -> Store:
        """The store's own reserved connection."""
        return self._store.reserved()

    def scoped(self, customer: int) -> Store:
        """Marks are made on a store that is confined already."""
        raise AssertionError(f"a marked store is confined before it is marked ({customer})")

    def wake(self, channels: Iterable[str]) -> None:
        """Tell waiters that there may be work."""
        self._store.wake(channels)

    def listen(self, channels: Iterable[str]) -> Waiter:
        """A waiter for wake-ups on the channels."""
        return self._store.listen(channels)

    def migrate(self) -> list[str]:
        """Not through here."""
        raise AssertionError("a marked store is for one request")

    def verify(self) -> list[str]:
        """Names of missing migrations."""
        return self._store.verify()

    def before_close(self, call: Callable[[], None]) -> None:
        """Call before the store itself is closed."""
        self._store.before_close(call)

    def close(self) -> None:
        """The store outlives the request."""


def earlier(store: Store, request: RequestKey) -> Any | None:
    """The answer a request got before, if any; marks nothing.

    For work of many transactions that is harmless to repeat: look first, do it, then store the
    answer through a `MarkedStore`.
    """

    def look(tx: Tx) -> None:
        raise Answered(request_begin(tx, request.scope, request.key, request.body))

    try:
        store.write(look)
    except Answered as before:
        return before.answer
    raise AssertionError("unreachable")
