"""Routes of dead letters: runs and deliveries that are not retried automatically."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import Depends, Path, Query, Request
from starlette.responses import Response

from penstock.bus.client.requests import bytes_of
from penstock.core.errors import NotFound
from penstock.core.ids import decode, encode
from penstock.dead_letters.api_models import (
    DeadLetterDetailOut,
    DeadLetterGroupsOut,
    DeadLetterOut,
    DiscardIn,
    ReplayIn,
    ReplayManyIn,
    ReplayManyOut,
    ReplayOut,
)
from penstock.dead_letters.client.dead_letters import FAR, DeadLetterFilter, Edit
from penstock.dead_letters.shapes import (
    dead_letter_detail_shape,
    dead_letter_group_shape,
    dead_letter_shape,
    replay_shape,
)
from penstock.runs.api_models import DoneOut
from penstock.server.auth import Caller
from penstock.server.models import PageModel
from penstock.server.openapi import texts
from penstock.server.params import (
    CurrentCaller,
    Cursor,
    IdempotencyKey,
    Limit,
    decode_path_id,
    parse_time,
    router,
)
from penstock.server.responses import Pagination, idempotent_write, json_response

routes = router("dead_letters")
DeadLetterId = Annotated[
    str,
    Path(
        description="Id of the dead letter (`dl_…`) or of its run (`run_…`).",
        examples=["dl_5m7t0c2d"],
        max_length=64,
    ),
]
Text = Annotated[str | None, Query(max_length=255)]


@dataclass(frozen=True, slots=True)
class DeadLetterFilterQuery:
    """Query parameters that filter a list of dead letters."""

    status: Annotated[
        Literal["open", "replayed", "discarded", "all"],
        Query(description="Return only dead letters of this status."),
    ] = "open"
    kind: Annotated[
        Literal["run", "delivery"] | None,
        Query(description="Return only runs, or only deliveries."),
    ] = None
    customer_id: Annotated[str | None, Query(description=texts.CUSTOMER_FILTER, max_length=200)] = (
        None
    )
    subscription: Annotated[
        Text, Query(description="Return only deliveries of this subscription.")
    ] = None
    topic: Annotated[Text, Query(description="Return only messages of this topic.")] = None
    pipeline_template: Annotated[Text, Query(description=texts.PIPELINE_FILTER)] = None
    processor: Annotated[Text, Query(description="Return only runs of this processor.")] = None
    partition: Annotated[Text, Query(description=texts.PARTITION_FILTER)] = None
    correlation_id: Annotated[Text, Query(description=texts.CAUSE_FILTER)] = None
    error_type: Annotated[Text, Query(description="Return only rows with this error type.")] = None
    since: Annotated[str | None, Query(description=texts.DIED_SINCE, max_length=64)] = None
    until: Annotated[str | None, Query(description=texts.DIED_BEFORE, max_length=64)] = None

    def asked(self, by: Caller) -> DeadLetterFilter:
        """Return the filter for the client."""
        return DeadLetterFilter(
            status=None if self.status == "all" else self.status,
            kind=self.kind,
            customer=by.customer if self.customer_id is None else self.customer_id,
            subscription=self.subscription,
            topic=self.topic,
            pipeline=self.pipeline_template,
            processor=self.processor,
            partition=self.partition,
            correlation_id=self.correlation_id,
            error_type=self.error_type,
            since=parse_time(self.since, "since"),
            until=parse_time(self.until, "until"),
        )


Narrowed = Annotated[DeadLetterFilterQuery, Depends()]


@routes.get("/dead-letters", response_model=PageModel[DeadLetterOut])
def list_dead_letters(
    request: Request, by: CurrentCaller, narrow: Narrowed, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List dead letters, newest first."""
    asked = narrow.asked(by)
    pages = Pagination(request, by, **{name: getattr(asked, name) for name in asked.__slots__})
    position = pages.position(cursor, 1)
    found = by.client.dead_letters.find(
        asked, before=FAR if position is None else position[0], limit=limit
    )
    return pages.page(found, limit, lambda row: [row.dead_letter_id], dead_letter_shape)


@routes.get("/dead-letters/groups", response_model=DeadLetterGroupsOut)
def group_dead_letters(by: CurrentCaller, narrow: Narrowed, limit: Limit = 50) -> Response:
    """Count dead letters by origin and error type, the largest group first."""
    groups = by.client.dead_letters.groups(narrow.asked(by), limit=limit)
    return json_response({"items": [dead_letter_group_shape(group) for group in groups]})


@routes.post("/dead-letters/replay", response_model=ReplayManyOut)
def replay_dead_letters(
    request: Request, by: CurrentCaller, body: ReplayManyIn, _: IdempotencyKey = None
) -> Response:
    """Replay matching dead letters, newest first, in bounded steps. Use `dry_run` first."""
    asked = DeadLetterFilter(
        kind=body.kind,
        customer=by.customer if body.customer_id is None else body.customer_id,
        subscription=body.subscription,
        topic=body.topic,
        pipeline=body.pipeline_template,
        processor=body.processor,
        partition=body.partition,
        correlation_id=body.correlation_id,
        error_type=body.error_type,
        since=parse_time(body.since, "since"),
        until=parse_time(body.until, "until"),
    )
    before = FAR if body.before is None else decode("dl", body.before, "before")
    start_at = parse_time(body.start_at, "start_at")
    if body.dry_run:
        would = by.client.dead_letters.replay_matching(
            asked, limit=body.limit, before=before, rate=body.rate, is_dry=True
        )
        return json_response(replay_shape(would))
    return idempotent_write(
        request,
        by,
        lambda client: client.dead_letters.replay_matching(
            asked,
            limit=body.limit,
            before=before,
            rate=body.rate,
            start_at=start_at,
            actor=by.actor,
        ),
        replay_shape,
    )


@routes.get("/dead-letters/{dead_letter_id}", response_model=DeadLetterDetailOut)
def get_dead_letter(by: CurrentCaller, dead_letter_id: DeadLetterId) -> Response:
    """Return a dead letter with its run, or with its message and payload."""
    number = _number(by, dead_letter_id)
    return json_response(
        dead_letter_detail_shape(by.client.dead_letters.get(number, customer=by.customer))
    )


@routes.post("/dead-letters/{dead_letter_id}/replay", response_model=ReplayOut)
def replay_dead_letter(
    request: Request, by: CurrentCaller, dead_letter_id: DeadLetterId, body: ReplayIn | None = None,
    _: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Replay one dead letter, unchanged or edited."""
    number = _number(by, dead_letter_id)
    edit = None if body is None else _edit(body)
    return idempotent_write(
        request,
        by,
        lambda client: client.dead_letters.replay(
            number, edit, customer=by.customer, actor=by.actor
        ),
        lambda new: {"dead_letter_id": encode("dl", number), "replayed_as": new},
    )


@routes.post("/dead-letters/{dead_letter_id}/discard", response_model=DoneOut)
def discard_dead_letter(
    request: Request,
    by: CurrentCaller,
    dead_letter_id: DeadLetterId,
    body: DiscardIn,
    _: IdempotencyKey = None,
) -> Response:
    """Discard a dead letter without replaying it."""
    number = _number(by, dead_letter_id)
    return idempotent_write(
        request,
        by,
        lambda client: client.dead_letters.discard(
            [number], body.reason, customer=by.customer, actor=by.actor
        ),
        lambda _: {"status": "done"},
    )


def _number(by: Caller, text: str) -> int:
    """Return the key of a dead letter from its own id or from its run's id."""
    if not text.lower().startswith("run_"):
        return decode_path_id("dl", "dead letter", text)
    dead_letter = by.client.dead_letters.of_run(
        decode_path_id("run", "run", text), customer=by.customer
    )
    if dead_letter is None:
        raise NotFound("dead letter", text)
    return dead_letter.dead_letter_id


def _edit(body: ReplayIn) -> Edit | None:
    edit = Edit(parameters=body.parameters, attributes=body.attributes)
    if body.data is not None:
        edit = replace(edit, data=bytes_of(body.data, "data"))
    return None if edit == Edit() else edit
