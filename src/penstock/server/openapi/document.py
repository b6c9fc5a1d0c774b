"""The OpenAPI document: what FastAPI knows of the routes, made true and complete.

Keys, powers, problem documents, examples and operation ids that never change are added here. The
generated client (`penstock.remote`), the reference page and the fuzzing tests all read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from penstock.server.access import PUBLIC, ROUTES, SIGNED
from penstock.server.models import FieldError, Problem
from penstock.server.openapi.examples import EXAMPLES
from penstock.server.problems import MEDIA_TYPE

SECURITY = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key, pnk_…"},
    "scheduler": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Scheduler-Token",
        "description": "The configured token; for the trigger alone.",
    },
    "oidc": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token that an issuer named in the settings signed; for pushes alone.",
    },
}
TAGS = {
    "scheduler": "The tick from outside.",
    "configs": "Customers' schedules: create, change, preview, audit.",
    "work": "For workers outside: claim, start, heartbeat, complete, fail.",
    "runs": "Submit, list, cancel and retry runs.",
    "topics": "Topics and messages: publish, find a message again.",
    "subscriptions": "Subscriptions: make and change them; pause, seek, purge.",
    "deliveries": "Messages of a subscription: pull, ack, nack, extend, release.",
    "limits": "Shared capacity and rates: holders, the line, learning.",
    "letters": "Dead letters of runs and deliveries: look, replay, discard.",
    "flows": "Flows: trigger, report, explain, why, trace, cancel.",
    "gates": "Gates: check, history, what-if; overrides and interventions.",
    "views": "What is going on; pipelines, alerts, pauses.",
    "keys": "API keys.",
    "push": "Pushes from subscriptions elsewhere.",
    "health": "For load balancers and monitoring.",
}


def describe(app: FastAPI, models: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """The document of an app."""
    found = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    # A page of RunOut is called Page_RunOut_ there; RunPage reads better in every language.
    made: dict[str, Any] = json.loads(
        re.sub(r"Page[\[_](\w+?)Out[\]_]", r"\1Page", json.dumps(found))
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
            schema["description"] = "A page of a list."
    for name, example in EXAMPLES.items():
        if name in schemas:
            schemas[name]["examples"] = [example]
    made["components"]["securitySchemes"] = SECURITY
    made["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            _finish(operation, method, path)
    return made


def _finish(operation: dict[str, Any], method: str, path: str) -> None:
    if path in PUBLIC:
        operation["security"] = []
    elif f"{method.upper()} {path}" in SIGNED:
        operation["security"] = [{"oidc": []}]
        operation["responses"].pop("422", None)
    else:
        operation["security"] = [{"key": []}]
        operation["x-power"] = ROUTES[f"{method.upper()} {path}"].value
        if path.endswith("/scheduler/trigger"):
            operation["security"].append({"scheduler": []})
    # FastAPI appends path and method to the function's name; the name alone is unique here.
    name = operation["operationId"].removesuffix(re.sub(r"\W", "_", path) + f"_{method}")
    operation["operationId"] = name
    operation["summary"] = name.replace("_", " ").capitalize()
    for status, answered in operation["responses"].items():
        content = answered.get("content", {})
        if int(status) >= 400 and "application/json" in content:
            answered["content"] = {MEDIA_TYPE: content["application/json"]}
    if method == "get":
        operation["responses"].pop("422", None)
