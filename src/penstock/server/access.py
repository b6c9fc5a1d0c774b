"""Authorization: the table of routes and the power that each requires.

A route that is not listed is refused. `access.api_keys` maps roles to powers: a viewer reads, a
worker claims and reports runs, an operator does both and makes changes, an admin also manages keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.access.api_keys import PERMISSIONS, Permission, Role

READ_RUNS, READ = Permission.READ_RUNS, Permission.READ
WORK, OPERATE, ADMINISTER = Permission.WORK, Permission.OPERATE, Permission.ADMINISTER

PUBLIC: Final = frozenset(
    {
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/.well-known/jwks.json",
        "/.well-known/openid-configuration",
    }
)
"""Paths served without a key; they expose no customer data."""

TOKEN_AUTHENTICATED: Final = frozenset({"POST /pubsub/push/{subscription}"})
"""Routes authenticated by a token of an external issuer (`server.push_auth`), never by a key."""

ALL_CUSTOMERS: Final = frozenset(
    {
        "POST /api/v1/scheduler/trigger",
        "GET /api/v1/pipeline-runs",
        "GET /api/v1/sessions",
        "GET /metrics",
    }
)
"""Routes that cover all customers; keys restricted to a customer are refused."""

ROUTES: Final[Mapping[str, Permission]] = {
    "POST /api/v1/scheduler/trigger": OPERATE,
    "POST /api/v1/scheduler/claim-runs": WORK,
    "POST /api/v1/customers/{customer_id}/pipeline-configs": OPERATE,
    "GET /api/v1/customers/{customer_id}/pipeline-configs": READ,
    "POST /api/v1/pipeline-configs/bulk": OPERATE,
    "GET /api/v1/pipeline-configs": READ,
    "GET /api/v1/pipeline-configs/{config_id}": READ,
    "PATCH /api/v1/pipeline-configs/{config_id}": OPERATE,
    "DELETE /api/v1/pipeline-configs/{config_id}": OPERATE,
    "POST /api/v1/pipeline-configs/{config_id}/start": OPERATE,
    "GET /api/v1/pipeline-configs/{config_id}/preview": READ,
    "GET /api/v1/pipeline-configs/{config_id}/audit": READ,
    "GET /api/v1/pipeline-configs/{config_id}/occurrences": READ,
    "POST /api/v1/schedules/preview": READ,
    "POST /api/v1/customers/{customer_id}/pipeline-runs": OPERATE,
    "GET /api/v1/customers/{customer_id}/pipeline-runs": READ_RUNS,
    "GET /api/v1/customers/{customer_id}/metrics": READ,
    "GET /api/v1/customers/{customer_id}/audit": READ,
    "GET /api/v1/pipeline-runs": READ_RUNS,
    "GET /api/v1/pipeline-runs/{run_id}": READ_RUNS,
    "POST /api/v1/pipeline-runs/heartbeat": WORK,
    "POST /api/v1/pipeline-runs/complete": WORK,
    "POST /api/v1/pipeline-runs/{run_id}/claim": WORK,
    "POST /api/v1/pipeline-runs/{run_id}/start": WORK,
    "POST /api/v1/pipeline-runs/{run_id}/heartbeat": WORK,
    "POST /api/v1/pipeline-runs/{run_id}/complete": WORK,
    "POST /api/v1/pipeline-runs/{run_id}/fail": WORK,
    "POST /api/v1/pipeline-runs/{run_id}/cancelled": WORK,
    "POST /api/v1/pipeline-runs/{run_id}/cancel": OPERATE,
    "POST /api/v1/pipeline-runs/{run_id}/retry": OPERATE,
    "GET /api/v1/pipeline-runs/{run_id}/why": READ,
    "GET /api/v1/flows": READ,
    "POST /api/v1/flows": OPERATE,
    "POST /api/v1/flows/preview": READ,
    "GET /api/v1/flows/{flow_id}": READ,
    "GET /api/v1/flows/{flow_id}/explain": READ,
    "GET /api/v1/flows/{flow_id}/why": READ,
    "POST /api/v1/flows/{flow_id}/cancel": OPERATE,
    "GET /api/v1/explain": READ,
    "GET /api/v1/traces/{correlation_id}": READ,
    "POST /api/v1/events": WORK,
    "POST /api/v1/gates/check": READ,
    "GET /api/v1/gates/decisions": READ,
    "POST /api/v1/gates/what-if": READ,
    "POST /api/v1/gates/backtest": READ,
    "GET /api/v1/overrides": READ,
    "POST /api/v1/overrides": OPERATE,
    "POST /api/v1/overrides/{override_id}/revoke": OPERATE,
    "GET /api/v1/interventions": READ,
    "GET /api/v1/interventions/{intervention_id}": READ,
    "POST /api/v1/interventions/{intervention_id}/resolve": OPERATE,
    "GET /api/v1/dashboard/pipeline-status": READ,
    "GET /api/v1/alerts": READ,
    "GET /api/v1/sessions": READ,
    "GET /api/v1/pipelines": READ,
    "GET /api/v1/pipelines/{pipeline}": READ,
    "GET /api/v1/pauses": READ,
    "POST /api/v1/pauses": OPERATE,
    "POST /api/v1/pauses/resume": OPERATE,
    "GET /api/v1/keys": ADMINISTER,
    "POST /api/v1/keys": ADMINISTER,
    "POST /api/v1/keys/{key_id}/rotate": ADMINISTER,
    "POST /api/v1/keys/{key_id}/revoke": ADMINISTER,
    "GET /metrics": READ,
}


def forbidden(role: Role, power: Permission) -> str:
    """Return the message for a role that lacks a power; it names the roles that have it."""
    able = [one.value for one in Role if power in PERMISSIONS[one]]
    return f"A key of role {role} may not do this; it requires {' or '.join(reversed(able))}."
