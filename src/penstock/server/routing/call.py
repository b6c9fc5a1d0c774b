"""One authenticated request, for routes that are functions instead of use cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.records.record import to_json_value
from penstock.server.idempotency import (
    AlreadyExecuted,
    IdempotentStore,
    request_key,
    stored_response,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from penstock.client import UseCaseGroups
    from penstock.server.auth import Caller

T = TypeVar("T")


class ReplayedRequest(Exception):
    """The request was executed before: `body` is its stored response."""

    def __init__(self, body: Any, status: int) -> None:
        self.body = body
        self.status = status
        super().__init__("the request was executed before")


class Call:
    """One authenticated request."""

    def __init__(
        self, request: Request, caller: Caller, status: int = 200, *, is_dry_run: bool = False
    ) -> None:
        self.request = request
        self.caller = caller
        self.client = caller.client
        self.customer = caller.customer
        self.status = status
        self.is_dry_run = is_dry_run

    @property
    def idempotency_key(self) -> str | None:
        """Value of the header Idempotency-Key; None if it was not sent."""
        return self.request.headers.get("idempotency-key")

    def write(
        self, act: Callable[[UseCaseGroups], T], stored: Callable[[T], Any] | None = None
    ) -> T:
        """Execute a use case with one write; with an Idempotency-Key, at most once.

        Raise ReplayedRequest for a repeat. `stored` returns the result without its secrets.
        """
        key = self.idempotency_key
        if key is None:
            return act(self.client)

        def rendered(value: T) -> dict[str, Any]:
            kept = value if stored is None else stored(value)
            body = {"status": "done"} if kept is None else to_json_value(kept)
            return {"status": self.status, "body": body}

        mark = request_key(self.request, self.caller, key)
        store = IdempotentStore(self.client.store, mark, rendered)
        try:
            value = act(self.client.with_store(store))
        except AlreadyExecuted as before:
            raise ReplayedRequest(before.response["body"], before.response["status"]) from None
        assert store.response is not None, f"{self.request.url.path} is not one write"
        return value

    def action(self, act: Callable[[UseCaseGroups], T]) -> T:
        """Like `write`, for a repeatable use case with several writes; the response is stored
        afterwards.
        """
        key = self.idempotency_key
        if key is None:
            return act(self.client)
        mark = request_key(self.request, self.caller, key)
        before = stored_response(self.client.store, mark)
        if before is None:
            value = act(self.client)
            try:
                IdempotentStore(self.client.store, mark, to_json_value).write(lambda _: value)
            except AlreadyExecuted as other:
                before = other.response
            else:
                return value
        raise ReplayedRequest(before, self.status)
