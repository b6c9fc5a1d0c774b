"""The binding of use cases: which parameters are in path, query, header and body."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.records.parameters import Customer, Since
from penstock.core.records.record import UNSET, InHeader, Meta, Record, UnsetType
from penstock.server.routing.binding import RouteBinding, bind


class Thing(Record):
    """A thing."""

    name: str


Count = Annotated[int, Meta(ge=1, le=10)]


class Things:
    """Use cases."""

    def list(self, customer: Customer, *, since: Since = None, limit: Count = 5) -> None:
        """List things."""

    def create(self, thing: Thing, *, customer: Customer = "a", actor: str = "") -> None:
        """Create a thing."""

    def move(
        self,
        name: str,
        *,
        to: str,
        size: int | UnsetType | None = UNSET,
        tag: Annotated[str | None, InHeader("X-Tag")] = None,
    ) -> None:
        """Move a thing."""


def bound(method: str, path: str, use_case: Any, query: tuple[str, ...] = ()) -> RouteBinding:
    """Return the binding of a use case."""
    return bind(use_case, method, path, query, {})


def places(binding: RouteBinding) -> dict[str, str]:
    """Return the place of each parameter by its name in the request."""
    return {one.wire: one.place for one in binding.parameters}


def test_places() -> None:
    """Path, query, header, body, and the fields of a body."""
    found = bound("GET", "/customers/{customer_id}/things", Things.list)
    assert places(found) == {"customer_id": "path", "since": "query", "limit": "query"}
    found = bound("POST", "/things", Things.create)
    assert places(found) == {"thing": "body", "customer_id": "query"}
    found = bound("POST", "/things/{name}/move", Things.move)
    assert places(found) == {"name": "path", "to": "field", "size": "field", "X-Tag": "header"}
    found = bound("POST", "/things/{name}/move", Things.move, ("to",))
    assert places(found)["to"] == "query"


def test_arguments() -> None:
    """Texts become values; a date is midnight UTC; what is omitted keeps its default."""
    listed = bound("GET", "/customers/{customer_id}/things", Things.list)
    path = {"customer_id": "acme"}
    assert listed.arguments(path, [("limit", "7")], {}) == {"customer": "acme", "limit": 7}
    found = listed.arguments(path, [("since", "2025-12-31")], {})
    assert found["since"] == datetime(2025, 12, 31, tzinfo=UTC)
    moved = bound("POST", "/things/{name}/move", Things.move)
    assert moved.arguments({"name": "n"}, [], {"x-tag": "t"}) == {"name": "n", "tag": "t"}
    assert moved.body_arguments({"to": "b"}, {}, is_absent=False) == {"to": "b"}
    assert moved.body_arguments({"to": "b", "size": None}, {}, is_absent=False) == {
        "to": "b",
        "size": None,
    }


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ([("limit", "0")], "limit: expected an integer at least 1"),
        ([("limit", "x")], "limit: expected an integer"),
        ([("limit", "1"), ("limit", "2")], "query: expected each of these at most once"),
        ([("x", "1")], "query: expected one of limit, since"),
        ([("since", "yesterday")], "since: expected an ISO 8601 time"),
        ([("since", "\x00")], "since: expected text without NUL"),
    ],
)
def test_queries_that_are_refused(query: list[tuple[str, str]], message: str) -> None:
    """Unknown, repeated and invalid parameters are named."""
    listed = bound("GET", "/customers/{customer_id}/things", Things.list)
    with pytest.raises(InvalidInput, match=message):
        listed.arguments({"customer_id": "acme"}, query, {})


def test_bodies_that_are_refused() -> None:
    """A missing body, a missing field and an unknown one are named."""
    made = bound("POST", "/things", Things.create)
    with pytest.raises(InvalidInput, match="body: expected a JSON object"):
        made.body_arguments(None, {}, is_absent=True)
    with pytest.raises(InvalidInput, match="name: expected a value"):
        made.body_arguments({}, {}, is_absent=False)
    moved = bound("POST", "/things/{name}/move", Things.move)
    with pytest.raises(InvalidInput, match=r"too: expected a known field.*mean to"):
        moved.body_arguments({"too": 1}, {}, is_absent=False)


def test_requests() -> None:
    """A client sends every argument that is not the default, quoted in the path."""
    moved = bound("POST", "/things/{name}/move", Things.move)
    arguments = {"name": "a/b", "to": "c", "size": None}
    assert moved.target("/things/{name}/move", arguments) == "/things/a%2Fb/move"
    assert moved.sent("field", arguments) == {"to": "c", "size": None}
    assert moved.sent("header", {**arguments, "tag": "t"}) == {"X-Tag": "t"}
