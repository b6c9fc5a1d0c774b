"""Routes that cannot be reached unchecked: key, role, rate and JSON profile come before the body.

Every route of the API is a `StrictRoute`. Which power it takes is looked up in `access.ROUTES` when
the app is built; a route that is not listed stops the app from starting.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.core import strictjson
from penstock.http.access import EVERYBODY, ROUTES
from penstock.http.auth import Caller, Keyring, bearer, is_scheduler
from penstock.http.guard import Access
from penstock.http.problems import Refused

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
TRIGGER = "POST /api/v1/scheduler/trigger"


class StrictRoute(APIRoute):
    """A route behind the wall."""

    def get_route_handler(self) -> Handler:
        """The handler, with everything that comes before it."""
        handle = super().get_route_handler()
        (method,) = self.methods or set()
        name = f"{method} {self.path}"
        power = ROUTES[name]
        has_body = self.body_field is not None

        async def checked(request: Request) -> Response:
            access: Access = request.scope["penstock.access"]
            access.route = self.path
            caller = await _caller(request, name)
            access.key = caller.principal.name
            access.customer = caller.customer
            if not caller.principal.role.may(power):
                raise Refused(403, f"A key of role {caller.principal.role} may not do this.")
            if caller.customer is not None and name in EVERYBODY:
                raise Refused(403, "This looks across customers: it takes a key without one.")
            request.state.caller = caller
            if has_body:
                await _read_json(request)
            return await handle(request)

        return checked


async def caller_of(request: Request) -> Caller:
    """The caller that the wall let through; a dependency of routes."""
    caller: Caller = request.state.caller
    return caller


async def _caller(request: Request, name: str) -> Caller:
    keyring: Keyring = request.app.state.keyring
    if name == TRIGGER and "x-scheduler-token" in request.headers:
        token: str = request.app.state.scheduler_token
        if not is_scheduler(request.headers["x-scheduler-token"], token):
            raise Refused(401, "X-Scheduler-Token: not the configured token.")
        scheduler: Caller = request.app.state.scheduler
        return scheduler
    text = bearer(request.headers.get("authorization"))
    known = keyring.remembered(text)
    if known is None:
        known = await run_in_threadpool(keyring.learn, text)
    return keyring.admit(known)


async def _read_json(request: Request) -> None:
    body = await request.body()
    if not body:
        return
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "Content-Type: expected application/json.")
    # Starlette remembers a parsed body here; ours is parsed under the strict profile.
    request._json = strictjson.parse(body)
