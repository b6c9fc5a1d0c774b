"""Routing of messages to handlers: by event type first, then by predicates in declared order."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from penstock.consumer.failure import Reject
from penstock.consumer.message import Message
from penstock.core.error_classification import classify
from penstock.core.errors import DeclarationError, PenstockError
from penstock.core.retry import ErrorType
from penstock.pipelines.declare.collect import Collect
from penstock.sinks.protocol import SinkTx, Upsert, Version

Predicate: TypeAlias = Callable[[Message], bool]
Guard: TypeAlias = Callable[[Message], tuple[str, Version]]
Gate: TypeAlias = Callable[[Message], Any]
Shape: TypeAlias = Callable[[Any], Any]
Writes: TypeAlias = Upsert | list[Upsert] | tuple[Upsert, ...] | None
"""Return value of a handler."""
Handler: TypeAlias = (
    Callable[[Message], Writes | Awaitable[Writes]] | Callable[[Message, SinkTx], Writes]
)
"""A function of a message, sync or async, or of a message and the transaction."""

SHOWN_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A handler and the messages it accepts."""

    name: str
    handler: Callable[..., Any]
    event_types: tuple[str, ...] = ()
    when: Predicate | None = None
    schema: str | None = None
    shape: Shape | None = None
    newer: Guard | None = None
    gate: Gate | None = None
    collect: Collect | None = None
    is_async: bool = field(init=False)
    takes_tx: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.handler))
        object.__setattr__(self, "takes_tx", _takes_two(self.handler))
        if self.is_async and self.takes_tx:
            raise DeclarationError(
                f"handler {self.name} is async and takes a transaction: a transaction belongs to "
                "one thread; declare it with def, or return the writes"
            )

    def prepare(self, message: Message) -> None:
        """Check the schema version and shape the payload; raise Reject if they do not match."""
        if self.schema is not None and message.schema_version != self.schema:
            got = message.schema_version
            shown = "none" if got is None else repr(got[:SHOWN_MAX])
            raise Reject(f"schema version: expected {self.schema!r}, got {shown}")
        if self.shape is not None:
            try:
                message.value = self.shape(message.json)
            except PenstockError:
                raise
            except Exception as error:
                # A shape depends only on the payload, so its error means poison, unless the error
                # is clearly about something else (e.g. an unreachable schema registry).
                known = classify(error)
                if known not in (ErrorType.UNKNOWN, ErrorType.VALIDATION_ERROR):
                    raise
                raise Reject(f"payload: {type(error).__name__}: {error}"[:300]) from error


class Router:
    """The handlers of a consumer."""

    def __init__(self) -> None:
        self._by_type: dict[str, Route] = {}
        self._by_predicate: list[Route] = []
        self._rest: Route | None = None

    @property
    def routes(self) -> Mapping[str, Route]:
        """All routes by handler name."""
        rest = () if self._rest is None else (self._rest,)
        return {r.name: r for r in (*self._by_type.values(), *self._by_predicate, *rest)}

    def add(self, route: Route) -> None:
        """Add a route; raise DeclarationError if another route already accepts its messages."""
        for event_type in route.event_types:
            if event_type in self._by_type:
                other = self._by_type[event_type].name
                raise DeclarationError(f"event type {event_type!r} is already handled by {other}")
            self._by_type[event_type] = route
        if route.when is not None:
            self._by_predicate.append(route)
        elif not route.event_types:
            if self._rest is not None:
                raise DeclarationError(
                    f"all other messages are already handled by {self._rest.name}"
                )
            self._rest = route

    def find(self, message: Message) -> Route:
        """Return the route of a message; raise Reject if no route matches."""
        found = self._by_type.get(message.event_type or "")
        if found is not None and (found.when is None or _holds(found.when, message)):
            return found
        for route in self._by_predicate:
            fits = not route.event_types or message.event_type in route.event_types
            if fits and route.when is not None and _holds(route.when, message):
                return route
        if self._rest is not None:
            return self._rest
        got = message.event_type
        shown = "no event type" if got is None else f"event type {got[:SHOWN_MAX]!r}"
        raise Reject(f"no handler matches this message ({shown})")


def _holds(when: Predicate, message: Message) -> bool:
    try:
        return bool(when(message))
    except Exception:  # a predicate that fails does not match
        return False


def _takes_two(handler: Callable[..., Any]) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    if len(needed) not in (1, 2):
        name = getattr(handler, "__name__", "handler")
        raise DeclarationError(f"{name} must take (message) or (message, tx)")
    return len(needed) == 2
