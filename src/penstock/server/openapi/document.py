"""The OpenAPI document of the API, from its declared and plain routes.

The reference page, the fuzzing tests and users' own tools read it.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from penstock.exports import DISTRIBUTION
from penstock.server.openapi.declared import operations, schemas_of
from penstock.server.openapi.problems import PROBLEMS, FieldError, Problem
from penstock.server.routes import Routes

DESCRIPTION: Final = """Configs, runs, external workers and metrics.

Authenticate with `Authorization: Bearer pnk_…`. Errors are problem documents (RFC 9457). Every
POST accepts an `Idempotency-Key`. Resources of another customer return 404, as if they did not
exist; no route returns 410."""
SECURITY: Final = {
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
PUSH_TAG: Final = {"name": "push", "description": "Messages pushed by external subscriptions."}


def describe(routes: Routes) -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths, schemas = operations(
        [route for listed in routes.declared for route in listed.routes], PROBLEMS
    )
    for plain in routes.plain:
        if plain.operation is not None:
            paths.setdefault(plain.path, {})[plain.method.lower()] = dict(plain.operation)
            schemas |= plain.schemas or {}
    _, problems = schemas_of(Problem, FieldError)
    schemas |= problems
    tags = [{"name": one.tag, "description": one.description} for one in routes.declared]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "description": DESCRIPTION, "version": version(DISTRIBUTION)},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items())), "securitySchemes": SECURITY},
        "tags": [*tags, PUSH_TAG],
    }
