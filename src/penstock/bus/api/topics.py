"""Routes of topics and messages: create, list, publish, find a message."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.bus.client.topics import Topics
from penstock.server.routing.declare import RouteList

routes = RouteList("topics", "Topics and messages: create, publish, find a message.")

routes.post("/topics", Permission.OPERATE, Topics.create, status=201, example={"name": "rosters"})
routes.get("/topics", Permission.READ, Topics.list)
routes.get("/topics/{topic}", Permission.READ, Topics.get)
routes.delete("/topics/{topic}", Permission.OPERATE, Topics.delete)
routes.post(
    "/topics/{topic}/publish",
    Permission.WORK,
    Topics.publish,
    query=("customer",),
    example={
        "messages": [
            {"data": "eyJ0ZWFtIjogIkFUTCJ9", "attributes": {"league": "nba"}, "dedupe_id": "atl-1"}
        ]
    },
)
routes.get("/messages/{message_id}", Permission.READ, Topics.message)
routes.get("/messages/{message_id}/why", Permission.READ, Topics.why)
