"""Records of API keys and customers from the rows of the store."""

from __future__ import annotations

from penstock.access.api_keys import KeyState, Role, key_state
from penstock.access.records import ApiKey, CustomerSettings
from penstock.access.store.customers import CustomerRow
from penstock.access.store.keys import KeyRow
from penstock.core.clock import Micros
from penstock.core.ids import encode
from penstock.core.records.record import minutes, time, time_or_none


def key_record(row: KeyRow, now: Micros) -> ApiKey:
    """Return the record of a key; its state is that at `now`."""
    state = state_at(row, now)
    return ApiKey(
        key_id=encode("key", row.key_id),
        name=row.name,
        role=Role(row.role),
        customer=row.customer_id,
        state=state,
        rate=row.rate,
        created_at=time(row.created_at),
        created_by=row.created_by,
        expires_at=time_or_none(row.expires_at),
        rotating_until=time_or_none(row.previous_until) if state is KeyState.ROTATING else None,
        revoked_at=time_or_none(row.revoked_at),
        revoked_by=row.revoked_by,
        last_used_at=time_or_none(row.last_used_at),
    )


def state_at(row: KeyRow, now: Micros) -> KeyState:
    """Return the state of a key at `now`."""
    return key_state(
        now,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        previous_until=row.previous_until,
    )


def settings_record(row: CustomerRow) -> CustomerSettings:
    """Return the record of a customer's settings."""
    return CustomerSettings(
        customer=row.customer_id,
        weight=row.weight,
        concurrency=row.concurrency,
        start_tolerance=None if row.start_tolerance_us is None else minutes(row.start_tolerance_us),
        created_at=time(row.created_at),
        updated_at=time_or_none(row.updated_at),
        updated_by=row.updated_by,
    )
