"""The OpenAPI document: FastAPI's description of the routes, completed.

Adds authentication, required powers, problem documents, examples and stable operation ids. The
generated client (`penstock.remote`), the reference page and the fuzzing tests read the document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from penstock.server.access import PUBLIC, ROUTES, TOKEN_AUTHENTICATED
from penstock.server.models import FieldError, Problem
from penstock.server.openapi.declared import operations
from penstock.server.openapi.examples import EXAMPLES
from penstock.server.params import PROBLEMS
from penstock.server.problems import MEDIA_TYPE
from penstock.server.routing.declare import RouteList

SECURITY = {
    "key": {"type": "http", "scheme": "bearer", "description": "API key (`pnk_…`)."},
    "scheduler": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Scheduler-Token",
        "description": "Token from the settings; accepted only by the scheduler trigger.",
    },
    "oidc": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "Token signed by a configured issuer; accepted only for incoming pushes.",
    },
}
TAGS = {
    "scheduler": "The external scheduler trigger.",
    "configs": "Schedules of customers: create, change, preview, audit.",
    "work": "Runs of external workers: claim, start, heartbeat, complete, fail.",
    "runs": "Submit, list, cancel and retry runs.",
    "topics": "Topics and messages: create, publish, find a message.",
    "subscriptions": "Subscriptions: create, change, pause, seek, purge.",
    "deliveries": "Messages of a subscription: pull, ack, nack, extend, release.",
    "limits": "Shared capacity and rates: holders, queues, learned capacity.",
    "dead_letters": "Dead letters of runs and deliveries: list, replay, discard.",
    "flows": "Flows: trigger, report, explain, trace, cancel.",
    "gates": "Gates: check, history, what-if; overrides and interventions.",
    "pauses": "Pauses of customers, pipelines and configs.",
    "views": "Overview, metrics, pipelines, alerts.",
    "keys": "API keys: create, rotate, revoke.",
    "push": "Messages pushed by external subscriptions.",
    "health": "Health and metrics for load balancers and monitoring.",
}


def describe(
    app: FastAPI, models: Sequence[type[BaseModel]], declared: Sequence[RouteList] = ()
) -> dict[str, Any]:
    """Return the OpenAPI document of an app."""
    found = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    # FastAPI names a page of RunOut Page_RunOut_; RunPage is a better type name in clients.
    made: dict[str, Any] = json.loads(
        re.sub(r"PageModel[\[_](\w+?)Out[\]_]", r"\1Page", json.dumps(found))
    )
    schemas = made["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    described: tuple[type[BaseModel], ...] = (*models, FieldError, Problem)
    for model in sorted(described, key=lambda model: model.__name__.casefold()):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    for name, schema in schemas.items():
        if name.endswith("Page"):
            kind = schema["properties"]["items"]["items"]["$ref"].rpartition("/")[2]
            schema["description"] = f"One page of {kind} records."
    for name, example in EXAMPLES.items():
        if name in schemas:
            schemas[name]["examples"] = [example]
    made["components"]["securitySchemes"] = SECURITY
    made["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    for path, by_method in made["paths"].items():
        for method, operation in by_method.items():
            _finish(operation, method, path)
            _describe_success(operation, schemas)
    routes = [route for listed in declared for route in listed.routes]
    paths, described_records = operations(routes, PROBLEMS)
    for path, by_method in paths.items():
        made["paths"].setdefault(path, {}).update(by_method)
    schemas.update(described_records)
    return made


def _finish(operation: dict[str, Any], method: str, path: str) -> None:
    if path in PUBLIC:
        operation["security"] = []
    elif f"{method.upper()} {path}" in TOKEN_AUTHENTICATED:
        operation["security"] = [{"oidc": []}]
        operation["responses"].pop("422", None)
    else:
        operation["security"] = [{"key": []}]
        operation["x-power"] = ROUTES[f"{method.upper()} {path}"].value
        if path.endswith("/scheduler/trigger"):
            operation["security"].append({"scheduler": []})
    # FastAPI appends the path and the method to the function's name; the name alone is unique.
    name = operation["operationId"].removesuffix(re.sub(r"\W", "_", path) + f"_{method}")
    operation["operationId"] = name
    operation["summary"] = (
        operation["description"].partition("\n")[0].partition(". ")[0].rstrip(".")
    )
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        if int(status) >= 400 and "application/json" in content:
            response["content"] = {MEDIA_TYPE: content["application/json"]}
    if method == "get":
        operation["responses"].pop("422", None)


def _describe_success(operation: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    """Replace FastAPI's "Successful Response" by the description of the response body."""
    for response in operation["responses"].values():
        if response["description"] != "Successful Response":
            continue
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        name = (schema.get("items") or schema).get("$ref", "").rpartition("/")[2]
        if not name:
            response["description"] = "The response has no body."
        elif "items" in schema:
            response["description"] = f"A list of {name} records."
        else:
            response["description"] = schemas[name]["description"]
