"""Bulk creation of configs: up to 10,000 in one call, each with an outcome of its own.

The body is a JSON array or one object per line (application/x-ndjson); answers are lines as well,
sent as the work goes on. Items are created 500 to a transaction. With an Idempotency-Key each
such part is remembered: a call that broke off halfway is repeated whole and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from fastapi import Request
from pydantic import ValidationError
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import Response, StreamingResponse

from penstock.client import Client
from penstock.client.repeats import Answered, MarkedStore, RequestKey
from penstock.core import strictjson
from penstock.core.errors import InvalidInput, NotFound, PenstockError
from penstock.core.ids import encode
from penstock.http.answers import request_key
from penstock.http.auth import Caller
from penstock.http.models.configs import BulkItem, BulkOutcome
from penstock.http.parts import By, Repeat, router
from penstock.http.problems import Refused, fields_of
from penstock.http.routes.configs import given

routes = router("configs")
ITEMS_MAX = 10_000
PART = 500
NDJSON = "application/x-ndjson"

SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": f"At most {ITEMS_MAX:,} configs, as an array or one to a line.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "array",
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
            "description": "One outcome to a line, in the order of the items.",
            "content": {NDJSON: {"schema": {"$ref": "#/components/schemas/BulkOutcome"}}},
        }
    },
    openapi_extra=SCHEMA,
)
async def create_configs_bulk(request: Request, by: By, key: Repeat = None) -> Response:
    """Create many configs; each item is created or refused by itself."""
    items = _items(request.headers.get("content-type", ""), await request.body())
    mark = None if key is None else request_key(request, by, key)
    lines = iterate_in_threadpool(_lines(by, items, mark))
    return StreamingResponse(lines, media_type=NDJSON)


def _items(content_type: str, body: bytes) -> list[Any]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == NDJSON:
        lines = [line for line in body.split(b"\n") if line.strip()]
        if len(lines) > ITEMS_MAX:
            raise _too_many(len(lines))
        return [strictjson.parse(line, f"line {n}") for n, line in enumerate(lines, 1)]
    if kind != "application/json":
        raise Refused(415, f"Content-Type: expected application/json or {NDJSON}.")
    items = strictjson.parse(body)
    if not isinstance(items, list):
        raise InvalidInput("body", "an array of configs", type(items).__name__)
    if len(items) > ITEMS_MAX:
        raise _too_many(len(items))
    return items


def _lines(by: Caller, items: list[Any], mark: RequestKey | None) -> Iterator[bytes]:
    for start in range(0, len(items), PART):
        for outcome in _part(by, items[start : start + PART], start, mark):
            yield msgspec.json.encode(outcome) + b"\n"


def _part(
    by: Caller, items: list[Any], start: int, mark: RequestKey | None
) -> list[dict[str, Any]]:
    """Create what can be created of one part; one outcome per item."""
    outcomes: list[dict[str, Any]] = [{} for _ in items]
    wanted = []
    for place, item in enumerate(items):
        try:
            wanted.append((place, *_check(by, item)))
        except (PenstockError, ValidationError) as error:
            outcomes[place] = {"index": start + place, "status": "refused", **_why(error)}
    if not wanted:
        return outcomes

    def told(ids: list[int]) -> list[dict[str, Any]]:
        for (place, _, _, _), config_id in zip(wanted, ids, strict=True):
            outcomes[place] = {
                "index": start + place,
                "status": "created",
                "config_id": encode("cfg", config_id),
            }
        return outcomes

    def create(client: Client) -> list[int]:
        return client.configs.create_ids(
            [(customer, config) for _, customer, config, _ in wanted],
            reason="bulk",
            actor=by.actor,
        )

    if mark is None:
        return told(create(by.client))
    part = RequestKey(scope=mark.scope, key=f"{mark.key}#{start}", body=mark.body)
    store = MarkedStore(by.client.store, part, told)
    try:
        create(by.client.over(store))
    except Answered as before:
        answer: list[dict[str, Any]] = before.answer
        return answer
    return outcomes


def _check(by: Caller, item: Any) -> tuple[str, dict[str, Any], str]:
    """An item that may be created: its customer, its fields, its reason."""
    parsed = BulkItem.model_validate(item)
    if by.customer is not None and parsed.customer_id != by.customer:
        raise NotFound("customer", parsed.customer_id)
    config = given(parsed)
    by.client.configs.check(config)
    return parsed.customer_id, config, parsed.reason or ""


def _why(error: PenstockError | ValidationError) -> dict[str, Any]:
    if isinstance(error, ValidationError):
        first = fields_of(error.errors()[:1])[0]
        detail = f"{first['field']}: expected {first['expected']}, got {first['got']}."
        return {"code": "input.invalid", "detail": detail, "field": first["field"]}
    made = {"code": error.code, "detail": error.message}
    return {**made, "field": error.field} if isinstance(error, InvalidInput) else made


def _too_many(n: int) -> InvalidInput:
    return InvalidInput("body", f"at most {ITEMS_MAX:,} configs", f"{n:,}")


__all__ = ["BulkOutcome", "routes"]
