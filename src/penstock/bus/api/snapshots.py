"""Routes of snapshots: take, list, delete, seek."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.bus.client.snapshots import Snapshots
from penstock.server.routing.declare import Idempotency, RouteList

routes = RouteList("snapshots", "Snapshots of subscriptions: take, list, seek.")

routes.post(
    "/snapshots",
    Permission.OPERATE,
    Snapshots.create,
    status=201,
    example={"name": "before-deploy", "subscription": "rosters-to-table"},
)
routes.get("/snapshots", Permission.READ, Snapshots.list)
routes.get("/snapshots/{name}", Permission.READ, Snapshots.get)
routes.delete("/snapshots/{name}", Permission.OPERATE, Snapshots.delete)
routes.post(
    "/snapshots/{name}/seek",
    Permission.OPERATE,
    Snapshots.seek,
    query=("customer",),
    idempotency=Idempotency.ACTION,
    counts_dry=True,
    example={"subscription": "rosters-to-table"},
)
