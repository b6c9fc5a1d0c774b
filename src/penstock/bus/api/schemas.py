"""Routes of schemas: create, add revisions, list, delete."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.bus.client.schemas import Schemas
from penstock.server.routing.declare import RouteList

routes = RouteList("schemas", "Schemas of messages and their revisions.")

_AVRO = '{"type": "record", "name": "Roster", "fields": [{"name": "team", "type": "string"}]}'

routes.post(
    "/schemas",
    Permission.OPERATE,
    Schemas.create,
    status=201,
    example={"name": "roster", "definition": _AVRO},
)
routes.get("/schemas", Permission.READ, Schemas.list)
routes.get("/schemas/{name}", Permission.READ, Schemas.get)
routes.delete("/schemas/{name}", Permission.OPERATE, Schemas.delete)
routes.get("/schemas/{name}/revisions", Permission.READ, Schemas.revisions)
routes.post(
    "/schemas/{name}/revisions",
    Permission.OPERATE,
    Schemas.commit,
    status=201,
    query=("customer",),
    example={"definition": _AVRO},
)
routes.post(
    "/schemas/{name}/rollback",
    Permission.OPERATE,
    Schemas.rollback,
    status=201,
    query=("customer",),
    example={"revision_id": "5f0c9a31"},
)
