"""The route class that enforces key, role, rate and query parameters before reading the body.

Bodies are parsed under the strict JSON profile. Every route of the API is a `StrictRoute`. The
required power is looked up in `server.access.ROUTES` when the app is built; a route that is not
listed there prevents the app from starting.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.core import json_profile
from penstock.core.errors import InvalidInput
from penstock.server.access import ALL_CUSTOMERS, ROUTES, forbidden
from penstock.server.auth import Caller, KeyCache, bearer, is_scheduler
from penstock.server.overload.middleware import AccessRecord
from penstock.server.problems import Refused

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
TRIGGER = "POST /api/v1/scheduler/trigger"
INLINE_MAX = 65_536


class StrictRoute(APIRoute):
    """A route that checks the caller before its handler runs."""

    def get_route_handler(self) -> Handler:
        """Return the handler, wrapped in the checks."""
        handle = super().get_route_handler()
        (method,) = self.methods or set()
        name = f"{method} {self.path}"
        power = ROUTES[name]
        has_body = self.body_field is not None
        known = frozenset(_query_names(self.dependant))

        async def checked(request: Request) -> Response:
            access: AccessRecord = request.scope["penstock.access"]
            access.route = self.path
            caller = await _caller(request, name)
            access.key = caller.principal.name
            access.customer = caller.customer
            if not caller.principal.role.has_permission(power):
                raise Refused(403, forbidden(caller.principal.role, power))
            if caller.customer is not None and name in ALL_CUSTOMERS:
                raise Refused(
                    403,
                    "This operation covers all customers: use a key that is not restricted to one.",
                )
            request.state.caller = caller
            _check_query(request, known)
            if has_body:
                await _read_json(request)
            return await handle(request)

        return checked


async def caller_of(request: Request) -> Caller:
    """Return the authenticated caller; a dependency of routes."""
    caller: Caller = request.state.caller
    return caller


async def _caller(request: Request, name: str) -> Caller:
    keyring: KeyCache = request.app.state.keyring
    if name == TRIGGER and "x-scheduler-token" in request.headers:
        token: str = request.app.state.scheduler_token
        if not is_scheduler(request.headers["x-scheduler-token"], token):
            raise Refused(401, "X-Scheduler-Token: expected the configured token.")
        scheduler: Caller = request.app.state.scheduler
        return scheduler
    text = bearer(request.headers.get("authorization"))
    known = keyring.cached(text)
    if known is None:
        known = await run_in_threadpool(keyring.look_up, text)
    return keyring.admit(known)


async def _read_json(request: Request) -> None:
    body = await request.body()
    if not body:
        return
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "Content-Type: expected application/json.")
    # Starlette caches the parsed body in this attribute; it is set from the strict parser here. A
    # large body is parsed in a thread, so that it does not block other requests.
    if len(body) > INLINE_MAX:
        request._json = await run_in_threadpool(json_profile.parse_json, body)
    else:
        request._json = json_profile.parse_json(body)


def _query_names(needs: Dependant) -> Iterator[str]:
    """Yield the names of a route's query parameters."""
    for field in needs.query_params:
        yield field.alias
    for part in needs.dependencies:
        yield from _query_names(part)


def _check_query(request: Request, known: frozenset[str]) -> None:
    """Check that each parameter is known, occurs once, and is text that every engine can store."""
    given = request.query_params.multi_items()
    if len(given) > len(known) or len({name for name, _ in given}) < len(given):
        names = ", ".join(sorted(known)) or "none"
        raise InvalidInput("query", f"each of these at most once: {names}", "more")
    for name, value in given:
        if name not in known:
            expected = f"one of {', '.join(sorted(known))}" if known else "no parameters"
            raise InvalidInput("query", expected, name)
        if "\x00" in value or "\ufffd" in value:
            raise InvalidInput(name, "UTF-8 text without NUL characters", "other bytes")
