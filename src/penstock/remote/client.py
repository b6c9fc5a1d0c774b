"""The client over HTTP: the same classes, methods and records as the local client.

A method of a group that has a route sends a request and returns the record in its response. The
routes are the API's own declarations, so they exist only once. A method without a route raises an
error that says so.

    with connect("https://penstock.example", key=key) as client:
        client.limits.declare("crm", capacity=10)
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, TypeVar, cast

import msgspec

from penstock.client import UseCaseGroups
from penstock.core.clock import MINUTE, SECOND, from_datetime
from penstock.core.errors import ApiError, InvalidInput
from penstock.core.records.record import decode_record, encode_record, to_json_value
from penstock.core.records.remotely import REMOTELY
from penstock.remote.transport import Transport
from penstock.server.routing.declare import ApiRoute, RouteList

P = ParamSpec("P")
G = TypeVar("G")

API_MODULES: Final[Mapping[str, str | tuple[str, ...]]] = {
    "Breakers": "penstock.flows.breakers.api",
    "AuditSinks": "penstock.shipping.api",
    "Anomalies": "penstock.usage.api",
    "Backfills": "penstock.recovery.api",
    "Budgets": "penstock.usage.api",
    "Alerts": "penstock.alerts.api",
    "Analytics": "penstock.analytics.api",
    "Configs": "penstock.schedules.api.configs",
    "Customers": "penstock.access.api.customers",
    "DeadLetters": "penstock.dead_letters.api",
    "Detections": "penstock.detection.api",
    "Diagnostics": "penstock.flows.api",
    "Exports": "penstock.monitoring.exports.api",
    "Flows": "penstock.flows.api",
    "Gates": "penstock.flows.gates.api",
    "Interventions": "penstock.flows.gates.api",
    "Items": "penstock.flows.items.api",
    "Keys": "penstock.access.api.keys",
    "Limits": "penstock.limits.api",
    "Overrides": "penstock.flows.gates.api",
    "Pauses": "penstock.schedules.api.pauses",
    "Pools": "penstock.usage.api",
    "Previews": "penstock.flows.api",
    "Recovery": "penstock.recovery.api",
    "Reviews": "penstock.analytics.review.api",
    "Runs": "penstock.runs.api",
    "Schedules": "penstock.schedules.api.load_map",
    "Schemas": "penstock.bus.api.schemas",
    "Slos": "penstock.slos.api",
    "Snapshots": "penstock.bus.api.snapshots",
    "Subscriptions": ("penstock.bus.api.subscriptions", "penstock.bus.api.deliveries"),
    "Topics": "penstock.bus.api.topics",
    "Tracking": "penstock.tracking.api",
    "Views": "penstock.monitoring.api",
    "Workers": "penstock.runs.external.api",
}
"""Modules that declare the routes of each class of use cases."""


class RemoteClient(UseCaseGroups):
    """The use cases of Penstock over HTTP."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.actor = self._key = ""
        unused = cast("Any", None)  # the server stores them
        self._store = self._names = self._probe = unused

    def _group(self, kind: Callable[P, G], *_: P.args, **__: P.kwargs) -> G:
        assert isinstance(kind, type)
        base = next(one for one in kind.__mro__ if one.__name__ in API_MODULES)
        group = object.__new__(_remote_class(base))
        group.__dict__["transport"] = self.transport
        return cast("G", group)

    def dry_run(self) -> RemoteClient:
        """Return the same use cases for a dry run: the server rolls every change back."""
        return RemoteClient(self.transport.dry_run())

    def now(self) -> int:
        """Return the server's time in microseconds, to the second."""
        if self.transport.server_now is None:
            self.transport.call("GET", "/healthz")
        if self.transport.server_now is None:
            raise ApiError(f"{self.transport.url} sends no valid Date. Is it a Penstock API?")
        return self.transport.server_now


@functools.cache
def _remote_class(kind: type[Any]) -> type[Any]:
    """Return a subclass whose methods send requests."""
    modules = API_MODULES[kind.__name__]
    lists: list[RouteList] = [
        importlib.import_module(module).routes
        for module in ((modules,) if isinstance(modules, str) else modules)
    ]
    classes = {one.__name__ for one in kind.__mro__}
    declared: dict[str, list[ApiRoute]] = {}
    for route in [route for routes in lists for route in routes.routes]:
        method = route.use_case
        if method.__qualname__.rpartition(".")[0] in classes:
            declared.setdefault(method.__name__, []).append(route)
    methods: dict[str, Any] = {}
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        if name in declared:
            methods[name] = _sending(function, declared[name])
        elif not name.startswith("_"):
            methods[name] = getattr(function, REMOTELY, None) or _refusing(function)
    return type(f"Remote{kind.__name__}", (kind,), methods)


def _sending(use_case: Callable[..., Any], routes: Sequence[ApiRoute]) -> Callable[..., Any]:
    """Return a method that sends a request and returns the record in the response.

    If there are several routes, the first one whose path parameters are all given is used.
    """
    signature = inspect.signature(use_case)

    @functools.wraps(use_case)
    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        signature.bind(self, *args, **kwargs)  # raises TypeError as a local call would
        _check_filters(signature, routes[0], kwargs)
        arguments = dict(signature.bind_partial(self, *args).arguments) | kwargs
        route = next((one for one in routes if one.binding.fits(arguments)), routes[-1])
        return request(self.transport, route, arguments)

    return send


def _check_filters(signature: inspect.Signature, route: ApiRoute, given: Mapping[str, Any]) -> None:
    """Raise TypeError for a filter that the route does not have, because it would be ignored."""
    if all(one.kind is not one.VAR_KEYWORD for one in signature.parameters.values()):
        return
    known = {one.name for one in route.binding.parameters} | set(signature.parameters)
    unknown = sorted(given.keys() - known)
    if unknown:
        raise TypeError(f"unexpected keyword arguments: {', '.join(unknown)}")


def request(transport: Transport, route: ApiRoute, arguments: Mapping[str, Any]) -> Any:
    """Send the request of a route and return the record in its response."""
    binding = route.binding
    body: Any = None
    if binding.body is not None:
        body = to_json_value(arguments.get(binding.body.name))
        for wire in binding.path_fields:
            del body[wire]
    if binding.fields_type is not None:
        fields = {key: _plain(value) for key, value in binding.sent("field", arguments).items()}
        body = {**body, **fields} if body is not None else fields
    if route.ndjson is not None:
        body = arguments[route.ndjson.parameter]
    query = {key: _plain(value) for key, value in binding.sent("query", arguments).items()}
    try:
        response = transport.send(
            route.method,
            binding.target(route.path, arguments),
            query=query,
            body=None if body is None else encode_record(body),
            headers=binding.sent("header", arguments) | binding.sent("key", arguments),
            wait_seconds=_wait_seconds(body, arguments),
        )
    except InvalidInput as error:
        error.rename({wire: name for name, wire in binding.wire_names.items()})
        raise
    if route.ndjson is None and (binding.result is None or binding.result is type(None)):
        return None
    try:
        if route.ndjson is not None:
            return [decode_record(line, route.ndjson.outcome) for line in response.splitlines()]
        result = decode_record(response, binding.result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(
            f"{transport.url} returned a response that is not of this version's API ({error}). "
            "Is it a Penstock API, and of the same version?"
        ) from None
    return getattr(result, binding.result_field) if binding.result_field else result


def _wait_seconds(body: Any, arguments: Mapping[str, Any]) -> float:
    """Return how long the server may wait before it responds."""
    asked = getattr(body, "wait_seconds", None) or arguments.get("wait_seconds")
    return float(asked or 0)


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__qualname__

    @functools.wraps(function)
    def refuse(*_: Any, **__: Any) -> Any:
        raise ApiError(f"{name} is not part of the API: it needs direct access to the database.")

    return refuse


def _plain(value: Any) -> Any:
    """Return an argument as a value for JSON and query strings."""
    if isinstance(value, datetime):
        from_datetime(value)  # raises InvalidInput for a time without a zone
        return value.isoformat()
    if isinstance(value, timedelta):
        unit = MINUTE if getattr(value, "unit", "") == "minutes" else SECOND
        return value / timedelta(microseconds=unit)
    return value
