"""Routes of API keys: create, list, rotate, revoke. A secret is returned only once."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.access.api_keys import Permission
from penstock.access.client.keys import Keys
from penstock.access.records import IssuedKey
from penstock.server.routing.declare import RouteList

routes = RouteList("keys", "API keys: create, rotate, revoke.")


def _without_secret(made: IssuedKey) -> IssuedKey:
    return replace(made, key=None)


routes.get("/keys", Permission.ADMINISTER, Keys.list)
routes.post(
    "/keys",
    Permission.ADMINISTER,
    Keys.create,
    status=201,
    stored=_without_secret,
    example={"name": "nightly-worker", "role": "worker", "expires": "90d"},
)
routes.post(
    "/keys/{key_id}/rotate",
    Permission.ADMINISTER,
    Keys.rotate,
    stored=_without_secret,
    example={"overlap": "24h"},
)
routes.post(
    "/keys/{key_id}/revoke",
    Permission.ADMINISTER,
    Keys.revoke,
    example={"reason": "it was in a log"},
)
