"""Shared slots and rates for user code, across threads, processes and machines.

    from penstock import limits

    with limits.slot("bq:nba_raw.br_rosters_current") as slot:   # at most 10 at a time, in order
        ...                                  # slot.token: fencing token, slot.lost: event

    @limits.slot("crm", capacity=3, timeout="1m")                # sync or async functions
    def call_crm(): ...

    limits.rate("maps-api", 50, burst=10)                        # 50 per second, the same object

Inside a run, slots use the worker's store; elsewhere the one given to `use`, or the database in the
settings of the environment. No service has to run.
"""

from __future__ import annotations

from typing import Any, Unpack

from penstock.core.clock import Duration, parse_duration
from penstock.limits.rules import (
    LimitOptions,
    LimitSettings,
    SlotLimitOptions,
    check_limit_name,
    parse_limit_settings,
)
from penstock.limits.slots.quota_errors import quota_kind
from penstock.limits.slots.quota_errors import register as register_quota_error
from penstock.limits.slots.registry import StoreOwner, current_broker, use
from penstock.limits.slots.retry import QuotaRetry, retry
from penstock.limits.slots.slot import TIMEOUT_DEFAULT, Slot, SlotOptions, SlotRequest
from penstock.limits.store.limits import limit_declare, limit_get

__all__ = [
    "QuotaRetry", "Slot", "SlotRequest", "declare", "quota_kind", "rate", "register_quota_error",
    "retry", "slot", "use",
]  # fmt: skip


def slot(
    name: str,
    *,
    weight: int = 1,
    timeout: Duration | None = None,
    lease: Duration | None = None,
    client: StoreOwner | None = None,
    **terms: Unpack[SlotLimitOptions],
) -> SlotRequest:
    """Return a request for a slot of the limit `name`, for `with`, `async with`, or as a decorator.

    timeout: time to wait before LimitTimeout is raised (default 300 s). lease: time without a
    renewal after which the slot may be granted to another holder (default 10 min). terms (capacity,
    adaptive, floor, grace, queue_max, rate, burst): configuration of the limit if it does not exist
    yet; they do not change an existing limit.
    """
    options = SlotOptions(
        name=check_limit_name(name, "name"),
        weight=weight,
        timeout_us=TIMEOUT_DEFAULT if timeout is None else parse_duration(timeout, "timeout"),
        lease_us=None if lease is None else parse_limit_settings({"lease": lease}).lease_us,
        terms=parse_limit_settings(terms if lease is None else {**terms, "lease": lease}),
    )
    return SlotRequest(lambda: current_broker(client), options)


def rate(
    name: str,
    per_second: float | None = None,
    *,
    burst: int | None = None,
    weight: int = 1,
    timeout: Duration | None = None,
    client: StoreOwner | None = None,
) -> SlotRequest:
    """Return a request for a token of the rate limit `name`: entering waits; nothing is held.

    per_second, burst: configuration of the limit if it does not exist yet.
    """
    terms = LimitSettings(
        capacity=None, rate=1.0 if per_second is None else per_second, burst=burst
    )
    options = SlotOptions(
        name=check_limit_name(name, "name"),
        weight=weight,
        timeout_us=TIMEOUT_DEFAULT if timeout is None else parse_duration(timeout, "timeout"),
        terms=terms,
    )
    return SlotRequest(lambda: current_broker(client), options)


def declare(
    name: str,
    *,
    client: StoreOwner | None = None,
    actor: str | None = None,
    **terms: Unpack[LimitOptions],
) -> None:
    """Create or configure a limit; settings that are not given keep their values.

    A change takes effect at once, in every process.
    """
    broker = current_broker(client)
    by = actor or (client.actor if client is not None else "python")
    check_limit_name(name, "name")

    def body(tx: Any) -> Any:
        found = limit_get(tx, name)
        base = None if found is None else found.terms
        return limit_declare(tx, name, parse_limit_settings(terms, base), actor=by)

    _, served = broker.store.write(body)
    if served is not None:
        broker.store.wake(served.channels)
