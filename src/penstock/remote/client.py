"""The client over HTTP: the same classes, methods and records as the local client.

A method of a group that has a route sends a request and returns the record in its response. The
routes are the API's own declarations, so nothing is written twice. A method without a route raises
an error that says so.

    with connect("https://penstock.example", key=key) as client:
        client.limits.declare("crm", capacity=10)
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, TypeVar, cast

from penstock.client import UseCaseGroups
from penstock.core.clock import MINUTE, SECOND, from_datetime
from penstock.core.errors import ApiError
from penstock.core.records.record import decode_record, encode_record
from penstock.remote.transport import Transport
from penstock.server.routing.declare import ApiRoute, RouteList

P = ParamSpec("P")
G = TypeVar("G")

API_MODULES: Final[Mapping[str, str | tuple[str, ...]]] = {
    "DeadLetters": "penstock.dead_letters.api",
    "Limits": "penstock.limits.api",
    "Subscriptions": ("penstock.bus.api.subscriptions", "penstock.bus.api.deliveries"),
    "Topics": "penstock.bus.api.topics",
}
"""The module, or the modules, that declare the routes of each class of use cases."""


class RemoteClient(UseCaseGroups):
    """The use cases of Penstock over HTTP."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.actor = ""
        unused = cast("Any", None)  # the server has them
        self._store = self._names = self._probe = unused

    def _group(self, kind: Callable[P, G], *_: P.args, **__: P.kwargs) -> G:
        assert isinstance(kind, type)
        base = next(one for one in kind.__mro__ if one.__name__ in API_MODULES)
        group = object.__new__(_remote_class(base))
        group.__dict__["transport"] = self.transport
        return cast("G", group)

    def now(self) -> int:
        """Return the server's time in microseconds, to the second."""
        if self.transport.server_now is None:
            self.transport.call("GET", "/healthz")
        assert self.transport.server_now is not None, "every response has a Date header"
        return self.transport.server_now


@functools.cache
def _remote_class(kind: type[Any]) -> type[Any]:
    """Return a subclass whose methods send requests."""
    modules = API_MODULES[kind.__name__]
    lists: list[RouteList] = [
        importlib.import_module(module).routes
        for module in ((modules,) if isinstance(modules, str) else modules)
    ]
    declared = {
        route.use_case.__name__: route
        for routes in lists
        for route in routes.routes
        if route.use_case.__qualname__.startswith(f"{kind.__name__}.")
    }
    methods: dict[str, Any] = {}
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            methods[name] = _sending(declared[name]) if name in declared else _refusing(function)
    return type(f"Remote{kind.__name__}", (kind,), methods)


def _sending(route: ApiRoute) -> Callable[..., Any]:
    """Return a method that sends a request and returns the record in the response."""
    signature = inspect.signature(route.use_case)

    @functools.wraps(route.use_case)
    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(signature.bind(self, *args, **kwargs).arguments)
        return request(self.transport, route, arguments)

    return send


def request(transport: Transport, route: ApiRoute, arguments: Mapping[str, Any]) -> Any:
    """Send the request of a route and return the record in its response."""
    binding = route.binding
    body: Any = None
    if binding.body is not None:
        body = arguments.get(binding.body.name)
    elif binding.fields_type is not None:
        body = {key: _plain(value) for key, value in binding.sent("field", arguments).items()}
    query = {key: _plain(value) for key, value in binding.sent("query", arguments).items()}
    response = transport.send(
        route.method,
        binding.target(route.path, arguments),
        query=query,
        body=None if body is None else encode_record(body),
        headers=binding.sent("header", arguments),
        wait_seconds=float(arguments.get("wait_seconds") or 0),
    )
    if binding.result is None or binding.result is type(None):
        return None
    result = decode_record(response, binding.result)
    return getattr(result, binding.result_field) if binding.result_field else result


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__qualname__

    @functools.wraps(function)
    def refuse(*_: Any, **__: Any) -> Any:
        raise ApiError(f"{name} is not part of the API: it needs direct access to the database.")

    return refuse


def _plain(value: Any) -> Any:
    """Return an argument as JSON and queries have it."""
    if isinstance(value, datetime):
        from_datetime(value)  # raises InvalidInput for a time without a zone
        return value.isoformat()
    if isinstance(value, timedelta):
        unit = MINUTE if getattr(value, "unit", "") == "minutes" else SECOND
        return value / timedelta(microseconds=unit)
    return value
