"""Routes of dead letters: runs and deliveries that are not retried automatically."""

from __future__ import annotations

from penstock.access.api_keys import Permission
from penstock.dead_letters.client.dead_letters import DeadLetters
from penstock.dead_letters.records import DiscardRequest, DiscardStep, ReplayRequest, ReplayStep
from penstock.server.routing.call import Call
from penstock.server.routing.declare import RouteList

routes = RouteList("dead_letters", "Dead letters of runs and deliveries: list, replay, discard.")


def replay_dead_letters(call: Call, request: ReplayRequest) -> ReplayStep:
    """Replay one step. A dry run writes nothing, so it needs no idempotency key."""
    if request.is_dry_run:
        return call.client.dead_letters.replay_matching(request)
    return call.write(lambda client: client.dead_letters.replay_matching(request))


def discard_dead_letters(call: Call, request: DiscardRequest) -> DiscardStep:
    """Discard one step. A dry run writes nothing, so it needs no idempotency key."""
    if request.is_dry_run:
        return call.client.dead_letters.discard_matching(request)
    return call.write(lambda client: client.dead_letters.discard_matching(request))


routes.get("/dead-letters", Permission.READ, DeadLetters.list)
routes.get("/dead-letters/groups", Permission.READ, DeadLetters.groups, result_field="items")
routes.post(
    "/dead-letters/replay",
    Permission.OPERATE,
    DeadLetters.replay_matching,
    serve=replay_dead_letters,
    example={"subscription": "rosters-to-table", "error_type": "TIMEOUT", "rate": 10},
)
routes.post(
    "/dead-letters/discard",
    Permission.OPERATE,
    DeadLetters.discard_matching,
    serve=discard_dead_letters,
    example={"subscription": "rosters-to-table", "reason": "the source was wrong", "dry_run": True},
)
routes.get("/dead-letters/{dead_letter_id}", Permission.READ, DeadLetters.get)
routes.post(
    "/dead-letters/{dead_letter_id}/replay",
    Permission.OPERATE,
    DeadLetters.replay,
    example={"data": "eyJ0ZWFtIjogIkFUTCJ9"},
)
routes.post(
    "/dead-letters/{dead_letter_id}/discard",
    Permission.OPERATE,
    DeadLetters.discard,
    example={"reason": "the account was closed"},
)
