"""Bulk creation of configs: up to 10,000 per request, each with its own outcome.

The body is a JSON array or one object per line (application/x-ndjson). The response is
newline-delimited JSON too and is streamed as the work progresses. Items are created in transactions
of 500. With an Idempotency-Key the result of each such chunk is stored: after an interruption the
client repeats the whole request, and the server continues with the first unfinished chunk. A dry
run validates every item and creates none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.client import UseCaseGroups
from penstock.core import json_profile
from penstock.core.errors import InvalidInput
from penstock.core.records.record import encode_record, to_json_value
from penstock.core.records.validation import convert_input
from penstock.schedules.client.bulk import ITEMS_MAX
from penstock.schedules.records import NewConfig
from penstock.server.idempotency import AlreadyExecuted, IdempotentStore, RequestKey, request_key
from penstock.server.routing.call import Call

if TYPE_CHECKING:
    from penstock.server.auth import Caller

NAMES_MAX = 100 * ITEMS_MAX
PART = 500
NDJSON = "application/x-ndjson"


async def create_configs_bulk(call: Call, dry_run: bool = False, with_configs: bool = False) -> Any:
    """Create the configs in the body; each item is created or rejected independently."""
    # Imported here because clients read the declaration of this route without a server.
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import StreamingResponse  # as above

    request, key = call.request, call.idempotency_key
    kind = request.headers.get("content-type", "")
    items = await run_in_threadpool(_items, kind, await request.body())
    if not items:
        raise InvalidInput("body", "at least one config", "none")
    mark = None if key is None or dry_run else request_key(request, call.caller, key)
    wanted = _BulkRequest(call.caller, mark, is_dry=dry_run, with_configs=with_configs)
    parts = _parts(wanted, items)
    # Compute the first chunk before the response starts, so that errors still set its status.
    first = await run_in_threadpool(next, parts, b"")

    async def lines() -> AsyncIterator[bytes]:
        line = first
        while line:
            yield line  # nothing is held while the client reads
            line = await request.scope["penstock.admission"].resume(lambda: next(parts, b""))

    return StreamingResponse(lines(), media_type=NDJSON)


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
        from penstock.server.problems import Refused  # imported here as above

        raise Refused(415, f"Content-Type: expected application/json or {NDJSON}.")
    items = json_profile.parse_json(body, names_max=NAMES_MAX)
    if not isinstance(items, list):
        raise InvalidInput("body", "an array of configs", type(items).__name__)
    if len(items) > ITEMS_MAX:
        raise _too_many(len(items))
    return items


def _parts(wanted: _BulkRequest, items: list[Any]) -> Iterator[bytes]:
    """Yield the outcomes of each chunk as encoded lines."""
    for start in range(0, len(items), PART):
        outcomes = _part(wanted, items[start : start + PART], start)
        yield b"".join(encode_record(outcome) + b"\n" for outcome in outcomes)


def _part(wanted: _BulkRequest, items: list[Any], start: int) -> Sequence[Any]:
    """Create the valid items of one chunk; return one outcome per item."""
    configs = [_config(item) for item in items]
    client = wanted.by.client

    def create(use_cases: UseCaseGroups) -> Sequence[Any]:
        return use_cases.configs.create_part(
            configs, start=start, is_dry=wanted.is_dry, with_configs=wanted.with_configs
        )

    if wanted.mark is None:
        return create(client)
    key = f"{wanted.mark.key}#{start}"
    part = RequestKey(scope=wanted.mark.scope, key=key, body=wanted.mark.body)
    try:
        return create(client.with_store(IdempotentStore(client.store, part, to_json_value)))
    except AlreadyExecuted as before:
        stored: list[Any] = before.response
        return stored


def _config(item: Any) -> NewConfig | InvalidInput:
    try:
        config: NewConfig = convert_input(item, NewConfig)
    except InvalidInput as error:
        return error
    return config


def _too_many(n: int) -> InvalidInput:
    return InvalidInput("body", f"at most {ITEMS_MAX:,} configs", f"{n:,}")
