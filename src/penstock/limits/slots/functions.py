"""The functions that user code calls: slots and rates of limits, and their declaration."""

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
from penstock.limits.slots.registry import StoreOwner, current_broker
from penstock.limits.slots.slot import TIMEOUT_DEFAULT, SlotOptions, SlotRequest
from penstock.limits.store.limits import limit_declare, limit_get

__all__ = ["declare", "rate", "slot"]


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
    """Return a request for a token of the rate limit `name`: entering it waits; nothing is held.

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

    A change takes effect immediately, in every process.
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
