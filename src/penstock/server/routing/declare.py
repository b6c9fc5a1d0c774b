"""The declaration of routes: method, path, permission, use case, example.

A use case is a method of the client: its parameters are those of the route, its docstring is the
description, and its annotations are the records of request and response. The API, the access table,
the OpenAPI document and the remote client are derived from these declarations.

    routes = RouteList("limits", "Shared capacity and rates.")
    routes.get("/limits", READ, Limits.list)
    routes.post("/limits", OPERATE, Limits.declare, example={"name": "crm", "capacity": 10})

A function whose first parameter is a `Call` is a route without a matching use case. With `serve`
such a function serves the route of a use case: it has the same parameters, and the remote client
still offers the use case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from inspect import cleandoc, iscoroutinefunction
from typing import Any, Final

from penstock.access.api_keys import Permission
from penstock.server.routing.binding import RouteBinding, bind

PREFIX: Final = "/api/v1"


class Idempotency(Enum):
    """How a route treats an Idempotency-Key."""

    NONE = "none"
    """The route changes nothing, or handles the key itself."""
    WRITE = "write"
    """The use case is one transaction; key and response are stored in it."""
    ACTION = "action"
    """The use case is repeatable and has several transactions; the response is stored after it."""
    FUNCTION = "function"
    """The function that serves the route handles the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ndjson:
    """A request of many records, as a JSON array or one per line, with one outcome per line."""

    parameter: str
    """Parameter of the client's method that has the records."""
    item: Any
    outcome: Any
    items_max: int
    example: Mapping[str, Any]
    """Example of a record."""


@dataclass(frozen=True, kw_only=True)
class ApiRoute:
    """One route of the API."""

    method: str
    path: str
    permission: Permission
    use_case: Callable[..., Any]
    tag: str
    group: str
    """Name of the client's group of use cases; empty for a function."""
    status: int = 200
    example: Mapping[str, Any] | None = None
    """Example of the request body."""
    idempotency: Idempotency = Idempotency.NONE
    covers_all_customers: bool = False
    """Whether keys that are restricted to a customer are rejected."""
    query: tuple[str, ...] = ()
    """Parameters of a POST that are in the query although the route has no other body."""
    stored: Callable[[Any], Any] | None = None
    """Function that removes secrets from a result before it is stored for repeats."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the use case that are not part of the request."""
    operation: str = ""
    """Name of the operation if it is not that of the use case, which has another route."""
    is_slow: bool = False
    """Whether it may take minutes; it then runs on separate threads, and each caller may have only
    one in progress."""
    accepts_grant: bool = False
    """Whether the credential of a run is accepted instead of a key, for that run."""
    accepts_token: bool = False
    """Whether the header X-Scheduler-Token is accepted instead of a key."""
    media: str = "application/json"
    """Media type of the response."""
    etag: str | None = None
    """Field of the result whose value is the ETag; a GET then accepts If-None-Match."""
    counts_dry: bool = False
    """Whether the use case has several writes and only counts its changes in a dry run."""
    ndjson: Ndjson | None = None
    result_field: str = ""
    """Field of the response that has the result; empty if the result is the whole response."""
    serve: Callable[..., Any] | None = None
    """Function that serves the route instead of the use case, such as a long poll; it takes a
    `Call` and the arguments of the use case."""

    @property
    def name(self) -> str:
        """Method and path, as in the access table."""
        return f"{self.method} {self.path}"

    @property
    def operation_id(self) -> str:
        """Name of the operation in the OpenAPI document, such as `limits.list`."""
        name = self.operation or self.use_case.__name__.rstrip("_")
        return f"{self.group}.{name}" if self.group else name

    @property
    def is_async(self) -> bool:
        """Whether the route runs on the event loop."""
        return iscoroutinefunction(self.serve or self.use_case)

    @property
    def has_dry_run(self) -> bool:
        """Whether the header Dry-Run is accepted: the use case has one write, or counts its
        changes.
        """
        is_use_case = bool(self.group) and self.serve is None and self.ndjson is None
        is_one_write = self.idempotency in (Idempotency.WRITE, Idempotency.NONE)
        return self.method != "GET" and is_use_case and (is_one_write or self.counts_dry)

    @property
    def description(self) -> str:
        """The docstring of the use case."""
        return cleandoc(self.use_case.__doc__ or "")

    @cached_property
    def binding(self) -> RouteBinding:
        """The mapping between the request and the arguments."""
        # The function that serves NDJSON reads the items itself.
        without = {} if self.ndjson is None else {self.ndjson.parameter: None}
        given = {**self.fixed, **without}
        made = bind(self.use_case, self.method, self.path, self.query, given, self.result_field)
        return replace(made, fixed=self.fixed)


class RouteList:
    """The routes of a subject."""

    def __init__(
        self, tag: str, description: str, *, group: str | None = None, prefix: str = PREFIX
    ) -> None:
        """`group` is the client's attribute with the use cases, by default the tag.

        A route whose use case is in another group names it with `group` as well.
        """
        self.prefix = prefix
        self.tag = tag
        self.description = description
        self.group = tag if group is None else group
        self.routes: list[ApiRoute] = []

    def get(
        self, path: str, permission: Permission, use_case: Callable[..., Any], **more: Any
    ) -> None:
        """Declare a route that reads."""
        self._add("GET", path, permission, use_case, more)

    def post(
        self, path: str, permission: Permission, use_case: Callable[..., Any], **more: Any
    ) -> None:
        """Declare a POST; it accepts an Idempotency-Key unless it is a function."""
        if "." in use_case.__qualname__:
            is_read = permission in (Permission.READ, Permission.READ_RUNS)
            kind = Idempotency.ACTION if is_read else Idempotency.WRITE
            more.setdefault("idempotency", kind)
        self._add("POST", path, permission, use_case, more)

    def patch(
        self, path: str, permission: Permission, use_case: Callable[..., Any], **more: Any
    ) -> None:
        """Declare a route that changes a resource."""
        self._add("PATCH", path, permission, use_case, more)

    def delete(
        self, path: str, permission: Permission, use_case: Callable[..., Any], **more: Any
    ) -> None:
        """Declare a route that deletes a resource."""
        self._add("DELETE", path, permission, use_case, more)

    def _add(
        self,
        method: str,
        path: str,
        permission: Permission,
        use_case: Callable[..., Any],
        more: Mapping[str, Any],
    ) -> None:
        is_use_case = "." in use_case.__qualname__
        group = more.get("group", self.group)
        more = {name: value for name, value in more.items() if name != "group"}
        self.routes.append(
            ApiRoute(
                method=method,
                path=f"{self.prefix}{path}",
                permission=permission,
                use_case=use_case,
                tag=self.tag,
                group=group if is_use_case else "",
                **more,
            )
        )
