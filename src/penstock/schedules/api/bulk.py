"""Bulk creation of configs: up to 10,000 per request, each with its own outcome.

The body is a JSON array or one object per line (application/x-ndjson). The response is
newline-delimited JSON too and is streamed as the work progresses. Items are created in transactions
of 500. With an Idempotency-Key the result of each such chunk is stored: after an interruption the
client repeats the whole request, and the server continues with the first unfinished chunk. A dry
run validates every item and creates none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request
from pydantic import ValidationError
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.responses import Response, StreamingResponse

from penstock.client import UseCaseGroups
from penstock.core import json_profile
from penstock.core.errors import InvalidInput, NotFound, PenstockError
from penstock.core.fields import check_customer
from penstock.core.ids import encode
from penstock.core.redact import redact_text
from penstock.schedules.api.configs import config_fields
from penstock.schedules.api.models import BulkItem, BulkOutcome
from penstock.schedules.rows import Config
from penstock.schedules.shapes import config_shape
from penstock.server.auth import Caller
from penstock.server.idempotency import AlreadyExecuted, IdempotentStore, RequestKey
from penstock.server.params import CurrentCaller, IdempotencyKey, router
from penstock.server.problems import Refused, field_errors
from penstock.server.responses import request_key

routes = router("configs")
ITEMS_MAX = 10_000
NAMES_MAX = 100 * ITEMS_MAX
PART = 500
NDJSON = "application/x-ndjson"

SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": f"At most {ITEMS_MAX:,} configs, as a JSON array or one per line.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": ITEMS_MAX,
                    "items": {"$ref": "#/components/schemas/BulkItem"},
                }
            },
            NDJSON: {"schema": {"$ref": "#/components/schemas/BulkItem"}},
        },
    }
}


@routes.post(
    "/pipeline-configs/bulk",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "One outcome per line, in the order of the items.",
            "content": {NDJSON: {"schema": {"$ref": "#/components/schemas/BulkOutcome"}}},
        }
    },
    openapi_extra=SCHEMA,
)
async def create_configs_bulk(
    request: Request,
    by: CurrentCaller,
    dry_run: Annotated[bool, Query(description="Validate every item and create none.")] = False,
    with_configs: Annotated[
        bool, Query(description="Return each created config, not only its id.")
    ] = False,
    key: IdempotencyKey = None,
) -> Response:
    """Create many configs. Each item is created or refused independently."""
    kind = request.headers.get("content-type", "")
    items = await run_in_threadpool(_items, kind, await request.body())
    if not items:
        raise InvalidInput("body", "at least one config", "none")
    mark = None if key is None or dry_run else request_key(request, by, key)
    parts = _parts(_BulkRequest(by, mark, is_dry=dry_run, with_configs=with_configs), items)
    # Compute the first chunk before the response starts, so that errors still set its status.
    first = await run_in_threadpool(next, parts, b"")
    lines = iterate_in_threadpool(itertools.chain([first], parts))
    return StreamingResponse(lines, media_type=NDJSON)


@dataclass(frozen=True, slots=True)
class _BulkRequest:
    """The caller and the options of a bulk request."""

    by: Caller
    mark: RequestKey | None
    is_dry: bool
    with_configs: bool


def _items(content_type: str, body: bytes) -> list[Any]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == NDJSON:
        lines = [line for line in body.split(b"\n") if line.strip()]
        if len(lines) > ITEMS_MAX:
            raise _too_many(len(lines))
        return [json_profile.parse_json(line, f"line {n}") for n, line in enumerate(lines, 1)]
    if kind != "application/json":
        raise Refused(415, f"Content-Type: expected application/json or {NDJSON}.")
    items = json_profile.parse_json(body, names_max=NAMES_MAX)
    if not isinstance(items, list):
        raise InvalidInput("body", "an array of configs", type(items).__name__)
    if len(items) > ITEMS_MAX:
        raise _too_many(len(items))
    return items


def _parts(asked: _BulkRequest, items: list[Any]) -> Iterator[bytes]:
    """Yield the outcomes of each chunk as encoded lines."""
    for start in range(0, len(items), PART):
        outcomes = _part(asked, items[start : start + PART], start)
        yield b"".join(msgspec.json.encode(outcome) + b"\n" for outcome in outcomes)


def _part(asked: _BulkRequest, items: list[Any], start: int) -> list[dict[str, Any]]:
    """Create the valid items of one chunk; return one outcome per item."""
    by = asked.by
    outcomes: list[dict[str, Any]] = [{} for _ in items]
    wanted = []
    for place, item in enumerate(items):
        try:
            wanted.append((place, *_check(by, item)))
            outcomes[place] = {"index": start + place, "status": "checked"}
        except (PenstockError, ValidationError) as error:
            outcomes[place] = {"index": start + place, "status": "refused", **_why(error)}
    if not wanted or asked.is_dry:
        return outcomes

    def recorded(made: Sequence[Config | int]) -> list[dict[str, Any]]:
        for (place, _, _, _), one in zip(wanted, made, strict=True):
            outcomes[place] = {"index": start + place, "status": "created", **_made(one)}
        return outcomes

    def create(client: UseCaseGroups) -> Sequence[Config | int]:
        make = client.configs.create_many if asked.with_configs else client.configs.create_ids
        chosen = [(customer, config) for _, customer, config, _ in wanted]
        return make(chosen, reason=[reason for *_, reason in wanted], actor=by.actor)

    if asked.mark is None:
        return recorded(create(by.client))
    part = RequestKey(scope=asked.mark.scope, key=f"{asked.mark.key}#{start}", body=asked.mark.body)
    store = IdempotentStore(by.client.store, part, recorded)
    try:
        create(by.client.with_store(store))
    except AlreadyExecuted as before:
        stored: list[dict[str, Any]] = before.response
        return stored
    return outcomes


def _made(one: Config | int) -> dict[str, Any]:
    if isinstance(one, int):
        return {"config_id": encode("cfg", one)}
    shape = config_shape(one)
    return {"config_id": shape["config_id"], "config": shape}


def _check(by: Caller, item: Any) -> tuple[str, dict[str, Any], str]:
    """Validate an item; return its customer, fields and reason."""
    parsed = BulkItem.model_validate(item)
    if by.customer is not None and parsed.customer_id != by.customer:
        raise NotFound("customer", parsed.customer_id)
    config = config_fields(parsed)
    by.client.configs.check(config)
    return (
        check_customer(parsed.customer_id),
        config,
        "bulk" if parsed.reason is None else parsed.reason,
    )


def _why(error: PenstockError | ValidationError) -> dict[str, Any]:
    if isinstance(error, ValidationError):
        first = field_errors(error.errors()[:1])[0]
        detail = f"{first['field']}: expected {first['expected']}, got {first['got']}."
        return {"code": "input.invalid", "detail": detail, **first}
    made: dict[str, Any] = {"code": error.code, "detail": redact_text(error.message)}
    if isinstance(error, InvalidInput):
        made |= {"field": error.field, "expected": error.expected, "got": redact_text(error.got)}
        made |= {} if error.fix is None else {"fix": error.fix}
    return made


def _too_many(n: int) -> InvalidInput:
    return InvalidInput("body", f"at most {ITEMS_MAX:,} configs", f"{n:,}")


__all__ = ["BulkOutcome", "routes"]
