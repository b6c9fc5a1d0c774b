"""The endpoint of a declared route: key, role, rate and parameters are checked before the body.

The request is admitted when its body has arrived (`overload.admission`). The body is parsed under
the strict JSON profile, then converted to the record of the route. Use cases run in a thread;
functions that are coroutines run on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from penstock.core import json_profile
from penstock.core.errors import InvalidInput
from penstock.core.records.record import encode_record
from penstock.server.access import forbidden
from penstock.server.auth import Caller, KeyCache, bearer, is_scheduler
from penstock.server.overload.admission import RequestAdmission
from penstock.server.overload.middleware import AccessRecord
from penstock.server.problems import Refused
from penstock.server.routing.call import Call, ReplayedRequest
from penstock.server.routing.declare import ApiRoute, Idempotency

INLINE_MAX: Final = 65_536
DONE: Final = b'{"status":"done"}'
NO_CONTENT: Final = 204
NOT_MODIFIED: Final = 304
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


def starlette_route(route: ApiRoute) -> StarletteRoute:
    """Return the route for Starlette's router."""
    made = StarletteRoute(
        route.path, endpoint(route), methods=[route.method], name=route.operation_id
    )
    made.methods = {route.method}  # Starlette adds HEAD to GET
    return made


def endpoint(route: ApiRoute) -> Endpoint:
    """Return the coroutine that serves a route."""
    binding = route.binding

    async def serve(request: Request) -> Response:
        access: AccessRecord = request.scope["penstock.access"]
        access.route = route.path
        caller = await authenticate(request, route)
        access.key = caller.principal.name
        access.customer = caller.customer
        authorize(route, caller)
        is_dry_run = reads_dry_run(request, route)
        arguments = binding.arguments(
            request.path_params, request.query_params.multi_items(), request.headers
        )
        admission: RequestAdmission = request.scope["penstock.admission"]
        admission.identify(caller.key)
        if binding.body_type is not None or route.ndjson is not None:
            await request.body()
        call = Call(request, caller, route.status, is_dry_run=is_dry_run)
        body, is_absent = None, True
        if route.is_slow:
            if binding.body_type is not None:
                body, is_absent = await read_json(request)
            return await admission.run_slowly(
                caller.key, partial(_execute, route, call, arguments, body, is_absent=is_absent)
            )
        await admission.enter()
        if binding.body_type is not None:
            body, is_absent = await read_json(request)
        if route.is_async:
            arguments |= binding.body_arguments(body, request.path_params, is_absent=is_absent)
            served = route.serve or route.use_case
            return _response(route, call, await served(call, **arguments))
        return await run_in_threadpool(
            partial(_execute, route, call, arguments, body, is_absent=is_absent)
        )

    async def serve_or_replay(request: Request) -> Response:
        try:
            return await serve(request)
        except ReplayedRequest as before:
            body = DONE if before.body is None else encode_record(before.body)
            headers = {"Idempotency-Replayed": "true", **_etag(route, before.body)}
            return Response(body, before.status, headers, "application/json")

    return serve_or_replay


async def authenticate(request: Request, route: ApiRoute) -> Caller:
    """Return the caller of a request; raise Refused for an invalid key or an exceeded rate."""
    keys: KeyCache = request.app.state.keyring
    if route.accepts_token and "x-scheduler-token" in request.headers:
        token: str = request.app.state.scheduler_token
        if not is_scheduler(request.headers["x-scheduler-token"], token):
            keys.count_wrong_token()
            raise Refused(401, "X-Scheduler-Token: expected the configured token.")
        scheduler: Caller = request.app.state.scheduler
        return scheduler
    text = bearer(request.headers.get("authorization"))
    return keys.admit(await keys.authenticate(text))


def authorize(route: ApiRoute, caller: Caller) -> None:
    """Raise Refused if the caller's role or its restriction to a customer forbids the route."""
    if caller.principal.grant is not None and not route.accepts_grant:
        raise Refused(
            403, "The credential of a run permits only reports on that run: use an API key."
        )
    if not caller.principal.role.has_permission(route.permission):
        raise Refused(403, forbidden(caller.principal.role, route.permission))
    if caller.customer is not None and route.covers_all_customers:
        raise Refused(
            403, "This operation covers all customers: use a key that is not restricted to one."
        )


def reads_dry_run(request: Request, route: ApiRoute) -> bool:
    """Return whether the header Dry-Run is true; raise InvalidInput if the route has no dry run."""
    given = request.headers.get("dry-run")
    if given is None or given == "false":
        return False
    if given != "true":
        raise InvalidInput("Dry-Run", "true or false", given)
    if not route.has_dry_run:
        fix = "Nothing was changed. Leave the header out, or use the preview of the operation."
        raise InvalidInput(
            "Dry-Run", "an operation that supports dry runs", route.operation_id, fix
        )
    return True


async def read_json(request: Request) -> tuple[Any, bool]:
    """Return the parsed body, which has arrived, and whether there is none."""
    body = await request.body()
    if not body:
        return None, True
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "Content-Type: expected application/json.")
    # A large body is parsed in a thread, so that it does not block other requests.
    if len(body) > INLINE_MAX:
        return await run_in_threadpool(json_profile.parse_json, body), False
    return json_profile.parse_json(body), False


def _execute(
    route: ApiRoute, call: Call, arguments: dict[str, Any], body: Any, *, is_absent: bool
) -> Response:
    path = call.request.path_params
    arguments |= route.binding.body_arguments(body, path, is_absent=is_absent)
    try:
        return _response(route, call, _result(route, call, arguments))
    except InvalidInput as error:
        error.rename(route.binding.wire_names)
        raise


def _result(route: ApiRoute, call: Call, arguments: dict[str, Any]) -> Any:
    if route.serve is not None or not route.group:
        return (route.serve or route.use_case)(call, **arguments)

    def act(client: Any) -> Any:
        return getattr(getattr(client, route.group), route.use_case.__name__)(**arguments)

    response = route.binding.response
    if call.is_dry_run:
        return response(act(call.client.dry_run()))
    if route.idempotency is Idempotency.WRITE:
        return response(call.write(act, route.stored or response))
    if route.idempotency is Idempotency.ACTION:
        return call.action(lambda client: response(act(client)))
    return response(act(call.client))


def _response(route: ApiRoute, call: Call, value: Any) -> Response:
    if isinstance(value, Response):
        return value
    if route.status == NO_CONTENT:
        return Response(status_code=NO_CONTENT)
    headers = _etag(route, value)
    if headers and route.method == "GET":
        given = call.request.headers.get("if-none-match", "")
        held = {part.strip().removeprefix("W/") for part in given.split(",")}
        if held & {headers["ETag"], "*"}:
            return Response(status_code=NOT_MODIFIED, headers=headers)
    body = DONE if value is None else encode_record(value)
    return Response(body, route.status, headers, "application/json")


def _etag(route: ApiRoute, value: Any) -> dict[str, str]:
    """Return the header ETag for a record, or for the stored JSON of one."""
    if route.etag is None:
        return {}
    field = value[route.etag] if isinstance(value, dict) else getattr(value, route.etag)
    return {"ETag": f'"{field}"'}
