"""Routes of configs: create, change, start and preview them; audit trail and occurrences."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from starlette.responses import Response

from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.schedules.api.models import (
    AuditOut,
    ConfigIn,
    ConfigOut,
    ConfigPatch,
    ConfigStartIn,
    ConfigStartOut,
    OccurrenceOut,
    PreviewIn,
    PreviewOut,
)
from penstock.schedules.rows import Config
from penstock.schedules.shapes import audit_shape, config_shape, ledger_shape, occurrence_shape
from penstock.server.auth import Caller
from penstock.server.models import PageModel
from penstock.server.openapi import texts
from penstock.server.params import (
    ConfigId,
    CurrentCaller,
    Cursor,
    CustomerId,
    IdempotencyKey,
    Limit,
    Offset,
    decode_path_id,
    router,
)
from penstock.server.responses import Pagination, idempotent_action, idempotent_write, json_response

routes = router("configs")
OURS = {"reason", "version", "customer_id"}

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description='ETag that the config must have, such as `"3"`.',
        max_length=64,
    ),
]
PipelineName = Annotated[str | None, Query(description=texts.PIPELINE_FILTER, max_length=64)]
IsActive = Annotated[
    bool | None, Query(description="Return only active, or only inactive, configs.")
]
After = Annotated[
    str | None,
    Query(
        description="Return only configs after this one; alternative to a cursor.", max_length=64
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        description="ETags that the client has; answered with 304 if one is current.",
        max_length=64,
    ),
]


@routes.post("/customers/{customer_id}/pipeline-configs", status_code=201, response_model=ConfigOut)
def create_config(
    request: Request,
    by: CurrentCaller,
    customer_id: CustomerId,
    body: ConfigIn,
    _: IdempotencyKey = None,
) -> Response:
    """Create a config for a customer. Its schedule is in effect when the response arrives."""
    made = idempotent_write(
        request,
        by,
        lambda client: client.configs.create_many(
            [(customer_id, config_fields(body))], reason=body.reason or "", actor=by.actor
        ),
        lambda configs: config_shape(configs[0]),
        201,
    )
    made.headers["ETag"] = etag_of(made)
    return made


@dataclass
class ConfigFilterQuery:
    """Query parameters that filter a list of configs."""

    pipeline_template: PipelineName = None
    is_active: IsActive = None
    after: After = None

    def page(
        self,
        request: Request,
        by: Caller,
        customer: str | None,
        part: tuple[int, int],
        cursor: str | None,
    ) -> Response:
        """Return a page of the matching configs; `part` is (limit, offset)."""
        limit, offset = part
        pages = Pagination(request, by, is_active=self.is_active, pipeline=self.pipeline_template)
        place = pages.position(cursor, 1)
        after = 0 if self.after is None else decode_path_id("cfg", "config", self.after)
        configs = by.client.configs.page(
            customer=customer,
            pipeline=self.pipeline_template,
            is_active=self.is_active,
            after=place[0] if place else after,
            limit=limit,
            offset=0 if place else offset,
        )
        return pages.page(configs, limit, lambda config: [config.config_id], config_shape)


@routes.get("/customers/{customer_id}/pipeline-configs", response_model=PageModel[ConfigOut])
def list_customer_configs(
    request: Request,
    by: CurrentCaller,
    customer_id: CustomerId,
    chosen: Annotated[ConfigFilterQuery, Depends()],
    *,
    limit: Limit = 50,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> Response:
    """List the configs of a customer, oldest first."""
    return chosen.page(request, by, customer_id, (limit, offset), cursor)


@routes.get("/pipeline-configs", response_model=PageModel[ConfigOut])
def list_configs(
    request: Request,
    by: CurrentCaller,
    chosen: Annotated[ConfigFilterQuery, Depends()],
    *,
    limit: Limit = 50,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> Response:
    """List the configs of all customers that the key may access, oldest first."""
    return chosen.page(request, by, by.customer, (limit, offset), cursor)


@routes.get(
    "/pipeline-configs/{config_id}",
    response_model=ConfigOut,
    responses={304: {"description": "The config still has an ETag of If-None-Match."}},
)
def get_config(
    by: CurrentCaller, config_id: ConfigId, if_none_match: IfNoneMatch = None
) -> Response:
    """Return one config. A deleted config is not found."""
    config = by.client.configs.get(decode_path_id("cfg", "config", config_id), by.customer)
    tag = f'"{config.version}"'
    held = [part.strip().removeprefix("W/") for part in (if_none_match or "").split(",")]
    if tag in held or "*" in held:
        return Response(status_code=304, headers={"ETag": tag})
    return json_response(config_shape(config), headers={"ETag": tag})


@routes.patch("/pipeline-configs/{config_id}", response_model=ConfigOut)
def update_config(
    by: CurrentCaller, config_id: ConfigId, body: ConfigPatch, if_match: IfMatch = None
) -> Response:
    """Change fields of a config. An outdated If-Match or `version` is refused with 409."""
    config = by.client.configs.update(
        decode_path_id("cfg", "config", config_id),
        config_fields(body),
        version=_version(body.version, if_match),
        reason=body.reason or "",
        customer=by.customer,
        actor=by.actor,
    )
    return _response(config)


@routes.delete("/pipeline-configs/{config_id}", status_code=204, response_class=Response)
def delete_config(
    by: CurrentCaller,
    config_id: ConfigId,
    reason: Annotated[str, Query(description=texts.CHANGE_REASON, max_length=500)] = "",
    if_match: IfMatch = None,
) -> Response:
    """Delete a config but keep its history. Deleting it again is answered with 404."""
    by.client.configs.delete(
        decode_path_id("cfg", "config", config_id),
        version=_version(None, if_match),
        reason=reason,
        customer=by.customer,
        actor=by.actor,
    )
    return Response(status_code=204)


@routes.post("/pipeline-configs/{config_id}/start", status_code=201, response_model=ConfigStartOut)
def start_config(
    request: Request,
    by: CurrentCaller,
    config_id: ConfigId,
    body: ConfigStartIn | None = None,
    _: IdempotencyKey = None,
) -> Response:
    """Start a config now. 409 if it is inactive or its `overlap` forbids another run."""
    number = decode_path_id("cfg", "config", config_id)
    source = (body or ConfigStartIn()).trigger_source
    return idempotent_write(
        request,
        by,
        lambda client: client.configs.start(
            number, trigger_source=source, customer=by.customer, actor=by.actor
        ),
        lambda ids: {"run_ids": [encode("run", i) for i in ids]},
        201,
    )


@routes.get("/pipeline-configs/{config_id}/preview", response_model=PreviewOut)
def preview_config(
    by: CurrentCaller,
    config_id: ConfigId,
    n: Annotated[int, Query(description="Number of occurrences to return.", ge=1, le=1000)] = 5,
) -> Response:
    """Return the next occurrences of a config, with notes on daylight-saving changes."""
    fires = by.client.configs.preview(decode_path_id("cfg", "config", config_id), n, by.customer)
    return json_response({"fires": [occurrence_shape(fire) for fire in fires]})


@routes.post("/schedules/preview", response_model=PreviewOut)
def preview_schedule(
    request: Request, by: CurrentCaller, body: PreviewIn, _: IdempotencyKey = None
) -> Response:
    """Return the next occurrences of a schedule that is not saved."""
    given = body.model_dump(exclude={"n"}, exclude_none=True)
    return idempotent_action(
        request,
        by,
        lambda: by.client.configs.preview_of(given, body.n),
        lambda fires: {"fires": [occurrence_shape(fire) for fire in fires]},
    )


@routes.get("/pipeline-configs/{config_id}/audit", response_model=PageModel[AuditOut])
def audit_config(
    request: Request,
    by: CurrentCaller,
    config_id: ConfigId,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List the audited changes of a config, oldest first."""
    number = decode_path_id("cfg", "config", config_id)
    pages = Pagination(request, by)
    place = pages.position(cursor, 1)
    rows = by.client.configs.audit_of(
        number, customer=by.customer, after=place[0] if place else 0, limit=limit
    )
    return pages.page(rows, limit, lambda row: [row.n], audit_shape)


@routes.get("/customers/{customer_id}/audit", response_model=PageModel[AuditOut])
def audit_customer(
    request: Request,
    by: CurrentCaller,
    customer_id: CustomerId,
    config_id: Annotated[
        str | None, Query(description="Return only changes of this config.", max_length=64)
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List the audit chain of a customer, oldest first."""
    number = None if config_id is None else decode_path_id("cfg", "config", config_id)
    pages = Pagination(request, by, config=number)
    place = pages.position(cursor, 1)
    after = place[0] if place else 0
    rows = by.client.configs.audit(customer_id, config_id=number, after=after, limit=limit)
    return pages.page(rows, limit, lambda row: [row.n], audit_shape)


@routes.get("/pipeline-configs/{config_id}/occurrences", response_model=PageModel[OccurrenceOut])
def list_occurrences(
    request: Request,
    by: CurrentCaller,
    config_id: ConfigId,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List occurrences of a config that did not start, newest first."""
    number = decode_path_id("cfg", "config", config_id)
    pages = Pagination(request, by)
    place = pages.position(cursor, 1)
    rows = by.client.configs.ledger(number, limit, by.customer, before=place[0] if place else None)
    return pages.page(rows, limit, lambda row: [row.slot_from], ledger_shape)


def config_fields(body: ConfigIn | ConfigPatch) -> dict[str, Any]:
    """Return the fields that the request contains; null means absent, as in the Python API."""
    return body.model_dump(exclude_unset=True, exclude=OURS)


def etag_of(made: Response) -> str:
    """Return the ETag of a rendered config."""
    return f'"{json.loads(bytes(made.body))["version"]}"'


def _response(config: Config) -> Response:
    return json_response(config_shape(config), headers={"ETag": f'"{config.version}"'})


def _version(body: int | None, header: str | None) -> int | None:
    if header is None or header.strip() == "*":
        return body
    text = header.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidInput("If-Match", 'the ETag of the config, such as "3"', header)
    if body is not None and body != int(text):
        raise InvalidInput("version", "the same version as If-Match", body)
    return int(text)
