"""Records of customers and API keys; they never contain the stored hash of a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from penstock.access.api_keys import KeyState, Role
from penstock.core.records.record import Meta, Minutes, Record, Time, field

__all__ = ["ApiKey", "CustomerSettings", "IssuedKey", "KeyId", "RoleInput"]

KeyId: TypeAlias = Annotated[
    str, Meta(description="Id of the key (`key_…`).", examples=["key_5m7t0c2d"], max_length=64)
]
if TYPE_CHECKING:
    RoleInput: TypeAlias = Role | str
else:
    RoleInput = Role
    """A role or its name."""


class ApiKey(Record):
    """An API key without its secret."""

    key_id: KeyId
    """Id of the key (`key_…`)."""
    name: str
    """Label that describes the purpose of the key."""
    role: Role
    """Role of the key: admin, operator, worker or viewer."""
    customer: str | None = field(name="customer_id")
    """Customer that the key is restricted to; null for all customers."""
    state: KeyState
    """State of the key: active, rotating, expired or revoked."""
    rate: float | None
    """Allowed requests per second; the server's default when null."""
    created_at: Time
    """Time at which the resource was created."""
    created_by: str
    """Name of the key or user that created the resource."""
    expires_at: Time | None
    """Time at which it expires; null if it does not."""
    rotating_until: Time | None
    """Time until which the old secret is valid too; null unless rotating."""
    revoked_at: Time | None
    """Time at which it was revoked; null if it was not."""
    revoked_by: str | None
    """Name of the key or user that revoked it; null if it was not."""
    last_used_at: Time | None
    """Time of its last use, to the minute; null if it was never used."""


class IssuedKey(Record):
    """An API key with its secret, which is returned only once."""

    key: str | None
    """The key with its secret; null in the response to a repeated request."""
    info: ApiKey
    """The key without its secret."""

    def __repr__(self) -> str:
        return f"IssuedKey(info={self.info!r}, key=…)"


class CustomerSettings(Record):
    """A customer and its share of the capacity."""

    customer: str = field(name="customer_id")
    """Id of the customer."""
    weight: float
    """Share of the capacity relative to other customers; 1 by default."""
    concurrency: int | None
    """Maximum number of its runs at a time; null for no maximum."""
    start_tolerance: Minutes | None = field(name="start_tolerance_minutes")
    """Minutes that scheduled starts may be delayed to spread them; null if not set."""
    created_at: Time
    """Time at which the resource was created."""
    updated_at: Time | None
    """Time at which the settings were last changed; null if they never were."""
    updated_by: str | None
    """Name of the key or user that last changed the settings; null if they never were."""
