"""Shared slots and rates for user code, across threads, processes and machines.

    from penstock import limits

    with limits.slot("bq:nba_raw.br_rosters_current") as slot:   # at most 10 at a time, in order
        ...                                  # slot.token: fencing token, slot.lost: event

    @limits.slot("crm", capacity=3, timeout="1m")                # sync or async functions
    def call_crm(): ...

    limits.rate("maps-api", 50, burst=10)                        # 50 per second; used like a slot

Inside a run, slots use the worker's store; elsewhere the one given to `use`, or the database in the
settings of the environment. No service has to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.exports import lazy_exports

if TYPE_CHECKING:
    from penstock.limits.slots.functions import declare, rate, slot
    from penstock.limits.slots.quota_errors import quota_kind
    from penstock.limits.slots.quota_errors import register as register_quota_error
    from penstock.limits.slots.registry import use
    from penstock.limits.slots.retry import QuotaRetry, retry
    from penstock.limits.slots.slot import Slot, SlotRequest

__all__ = [
    "QuotaRetry", "Slot", "SlotRequest", "declare", "quota_kind", "rate", "register_quota_error",
    "retry", "slot", "use",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "QuotaRetry": "penstock.limits.slots.retry",
        "Slot": "penstock.limits.slots.slot",
        "SlotRequest": "penstock.limits.slots.slot",
        "declare": "penstock.limits.slots.functions",
        "quota_kind": "penstock.limits.slots.quota_errors",
        "rate": "penstock.limits.slots.functions",
        "register_quota_error": "penstock.limits.slots.quota_errors:register",
        "retry": "penstock.limits.slots.retry",
        "slot": "penstock.limits.slots.functions",
        "use": "penstock.limits.slots.registry",
    },
)
