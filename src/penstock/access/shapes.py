"""JSON representations of API keys; they never contain the stored hash of the secret."""

from __future__ import annotations

from typing import Any

from penstock.access.client import ApiKey
from penstock.core.clock import iso
from penstock.core.formatting import iso_or_none


def key_shape(key: ApiKey) -> dict[str, Any]:
    """Return the JSON form of an API key without its secret."""
    return {
        "key_id": key.public_id,
        "name": key.name,
        "role": key.role.value,
        "customer_id": key.customer_id,
        "state": key.state.value,
        "rate": key.rate,
        "created_at": iso(key.created_at),
        "created_by": key.created_by,
        "expires_at": iso_or_none(key.expires_at),
        "rotating_until": iso_or_none(key.rotating_until),
        "revoked_at": iso_or_none(key.revoked_at),
        "revoked_by": key.revoked_by,
        "last_used_at": iso_or_none(key.last_used_at),
    }


def new_key_shape(key: ApiKey) -> dict[str, Any]:
    """Return the JSON form of a new API key with its secret, which is shown only once."""
    return {"key": key.text, "info": key_shape(key)}
