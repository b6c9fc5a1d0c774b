"""Pushes from elsewhere, taken in; and the keys that our own pushes are signed with.

A 2xx is given once the message is stored. These routes are no part of the API's prefix: their paths
are what senders and verifiers of tokens expect.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from penstock.audit.telemetry import Events, PushAccepted, PushRefused
from penstock.bus.incoming.client import Accepted, accept
from penstock.server.overload.middleware import Access
from penstock.server.params import PROBLEMS
from penstock.server.problems import Refused, problem, request_id_of
from penstock.server.push_auth import Receiving, checked
from penstock.server.responses import answer

__all__ = ["routes"]

routes = APIRouter(tags=["push"])

_BODY: Final[dict[str, Any]] = {
    "required": True,
    "description": "Google's push envelope.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/PushEnvelopeIn"}}},
}


@routes.post(
    "/pubsub/push/{subscription}",
    status_code=204,
    response_class=Response,
    responses={
        **{status: PROBLEMS[status] for status in (400, 401, 403, 404, 408, 413, 415, 503)},
        204: {"description": "It is stored."},
    },
    openapi_extra={"requestBody": _BODY},
)
async def receive_push(
    request: Request,
    subscription: Annotated[
        str,
        Path(description="The subscription elsewhere.", max_length=255, examples=["orders"]),
    ],
) -> Response:
    """Take in a message that a subscription elsewhere pushes, in Google's envelope."""
    access: Access = request.scope["penstock.access"]
    access.route = "/pubsub/push/{subscription}"
    receiving: Receiving = request.app.state.receiving
    events: Events = request.app.state.events
    token = request.headers.get("authorization", "")
    row = await run_in_threadpool(checked, receiving, events, subscription, token)
    access.key = row.email
    access.customer = row.customer
    body = await request.body()
    store = request.app.state.client.store
    done: Accepted = await run_in_threadpool(accept, store, row, body)
    if done.outcome == "refused":
        events.emit(PushRefused(subscription=row.name, status=400, reason=done.reason))
        errors = [{"field": done.field, "expected": "a push envelope", "got": "something else"}]
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


@routes.get("/.well-known/jwks.json", include_in_schema=False)
def jwks(request: Request) -> Response:
    """The public keys of the tokens that go along with our own pushes."""
    receiving: Receiving = request.app.state.receiving
    return answer({"keys": receiving.keys()})


@routes.get("/.well-known/openid-configuration", include_in_schema=False)
def openid_configuration(request: Request) -> Response:
    """Who issues those tokens, and where the keys are."""
    issuer = request.app.state.receiving.issuer
    if not issuer:
        raise Refused(404, "No tokens are issued here: the setting public_url is not set.")
    return answer(
        {
            "issuer": issuer,
            "jwks_uri": f"{issuer.rstrip('/')}/.well-known/jwks.json",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
    )
