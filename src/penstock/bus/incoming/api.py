"""Routes for incoming pushes, and the public keys that outgoing pushes are signed with.

The response is a 2xx once the message is stored. These routes are outside the API's prefix because
senders and token verifiers expect these paths.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from penstock.audit.telemetry import Events, PushAccepted, PushRefused
from penstock.bus.incoming.client import PushOutcome, accept
from penstock.bus.incoming.records import PushEnvelope
from penstock.server.openapi.declared import schemas_of
from penstock.server.openapi.problems import PROBLEMS
from penstock.server.overload.admission import BoundedThreads, RequestAdmission
from penstock.server.overload.middleware import AccessRecord
from penstock.server.problems import Refused, problem, request_id_of
from penstock.server.push_auth import PushAuth, authenticate_push
from penstock.server.responses import SharedResult, json_response, prepared_response
from penstock.server.routing.plain import PlainRoute

__all__ = ["plain_routes"]


async def receive_push(request: Request) -> Response:
    """Receive a message pushed by an external subscription, in the envelope of Google Pub/Sub."""
    subscription: str = request.path_params["subscription"]
    access: AccessRecord = request.scope["penstock.access"]
    access.route = PATH
    receiving: PushAuth = request.app.state.receiving
    events: Events = request.app.state.events
    token = request.headers.get("authorization", "")
    threads: BoundedThreads = request.app.state.push_tokens
    row = await authenticate_push(receiving, events, subscription, token, threads)
    request.app.state.recognise.add_sender(token)
    access.key = row.email
    access.customer = row.customer
    admission: RequestAdmission = request.scope["penstock.admission"]
    admission.identify(f"push {row.name}")
    body = await request.body()
    await admission.enter()
    store = request.app.state.client.store
    done: PushOutcome = await run_in_threadpool(accept, store, row, body)
    if done.outcome == "refused":
        events.emit(PushRefused(subscription=row.name, status=400, reason=done.reason))
        errors = [{"field": done.field, "expected": "a push envelope", "got": "another document"}]
        return problem(
            400,
            "input.invalid",
            done.reason,
            request_id=request_id_of(request),
            errors=errors,
        )
    events.emit(
        PushAccepted(subscription=row.name, message_id=done.message_id, outcome=done.outcome)
    )
    return Response(status_code=204)


async def jwks(request: Request) -> Response:
    """Return the public keys of the tokens in outgoing pushes."""
    public_keys: SharedResult[bytes] = request.app.state.public_keys
    return prepared_response(await public_keys.get())


async def openid_configuration(request: Request) -> Response:
    """Return the issuer of the tokens in outgoing pushes, and the URL of its public keys."""
    issuer = request.app.state.receiving.issuer
    if not issuer:
        raise Refused(404, "This server issues no tokens: the setting public_url is not set.")
    return json_response(
        {
            "issuer": issuer,
            "jwks_uri": f"{issuer.rstrip('/')}/.well-known/jwks.json",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
    )


PATH: Final = "/pubsub/push/{subscription}"
_ENVELOPE, _SCHEMAS = schemas_of(PushEnvelope)
_SCHEMAS["PushEnvelope"]["examples"] = [
    {
        "message": {
            "messageId": "136969346945",
            "data": "aGVsbG8=",
            "attributes": {"kind": "order"},
            "publishTime": "2026-11-15T16:00:00.123Z",
        },
        "subscription": "projects/my-project/subscriptions/orders",
    }
]
_NAME: Final = {
    "name": "subscription",
    "in": "path",
    "required": True,
    "description": "Name of the external subscription, as in the setting `incoming_push`.",
    "schema": {"type": "string", "maxLength": 255, "examples": ["orders"]},
}
_OPERATION: Final[dict[str, Any]] = {
    "tags": ["push"],
    "operationId": "receive_push",
    "summary": "Receive a message pushed by an external subscription, in the envelope of Google "
    "Pub/Sub",
    "description": receive_push.__doc__,
    "parameters": [_NAME],
    "requestBody": {
        "required": True,
        "description": "The push envelope of Google Cloud Pub/Sub.",
        "content": {"application/json": {"schema": _ENVELOPE}},
    },
    "responses": {
        "204": {"description": "The message is stored."},
        **{str(status): PROBLEMS[status] for status in (400, 401, 403, 404, 408, 413, 415, 503)},
    },
    "security": [{"oidc": []}],
}
plain_routes: Final = (
    PlainRoute(
        method="POST",
        path=PATH,
        endpoint=receive_push,
        operation=_OPERATION,
        schemas=_SCHEMAS,
        is_public=False,
    ),
    PlainRoute(method="GET", path="/.well-known/jwks.json", endpoint=jwks),
    PlainRoute(
        method="GET", path="/.well-known/openid-configuration", endpoint=openid_configuration
    ),
)
