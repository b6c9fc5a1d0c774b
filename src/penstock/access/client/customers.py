"""Use cases of customers: read and set their share of the capacity.

A customer exists from its first config, run or key. Its weight determines its share while runs of
several customers wait; its concurrency is the maximum number of its runs at a time. Changes apply
to new runs immediately, and to waiting ones within seconds.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Annotated, Final

from penstock.access.from_rows import settings_record
from penstock.access.records import CustomerSettings
from penstock.access.shares import check_concurrency, check_weight
from penstock.access.store.customers import (
    customer_rows,
    customer_settings_lock,
    customer_settings_put,
)
from penstock.access.store.names import NameResolver
from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import DAY, MINUTE
from penstock.core.errors import InvalidInput
from penstock.core.records.parameters import Customer
from penstock.core.records.record import UNSET, Meta, Minutes, UnsetType, Wire
from penstock.db.store import Transactions, Tx

__all__ = ["Customers"]

SETTINGS_CHANGED: Final = "admit"
"""Channel of the admitter, which applies changed settings."""

_WEIGHT = Meta(
    description="Share of the capacity relative to other customers, from 0.1 to 100; 1 by default. "
    "With weight 3, three runs start for each one of a customer with weight 1, while both wait."
)
_CONCURRENCY = Meta(
    description="Maximum number of the customer's concurrent runs, in all pools; null for no limit."
)
_TOLERANCE = Meta(
    description="Minutes that scheduled starts of the customer may be delayed to spread them over "
    "time (`penstock schedules jitter`), up to 1,440; null to unset it."
)
_SETTINGS: Final = ("weight", "concurrency", "start_tolerance_us")


class Customers:
    """Use cases of customers. A client scoped to a customer can only read its own settings."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def get(self, customer: Customer) -> CustomerSettings:
        """Return the settings of a customer."""
        return self._store.read(lambda tx: self._read(tx, customer))

    def set(
        self,
        customer: Customer,
        *,
        weight: Annotated[float | UnsetType, _WEIGHT] = UNSET,
        concurrency: Annotated[int | UnsetType | None, _CONCURRENCY] = UNSET,
        start_tolerance: Annotated[
            Minutes | UnsetType | None, Wire("start_tolerance_minutes"), _TOLERANCE
        ] = UNSET,
    ) -> CustomerSettings:
        """Change the settings of a customer. Omitted ones keep their values.

        A change applies to new runs immediately and to waiting runs within seconds. Active runs are
        not stopped: if the concurrency is lowered, no run starts until enough have ended.
        """
        self._names.require_unscoped("settings of customers")
        if weight is UNSET and concurrency is UNSET and start_tolerance is UNSET:
            fix = "Give weight, concurrency or start_tolerance."
            raise InvalidInput("weight", "at least one setting", None, fix)
        new_weight = UNSET if weight is UNSET else check_weight(weight)
        most = UNSET if concurrency is UNSET else check_concurrency(concurrency)
        late = UNSET if start_tolerance is UNSET else _tolerance_us(start_tolerance)

        def body(tx: Tx) -> CustomerSettings:
            key = self._names.customer_key(tx, customer)
            assert key is not None
            old = customer_settings_lock(tx, key, self._actor)
            new = (
                old[0] if new_weight is UNSET else new_weight,
                old[1] if most is UNSET else most,
                old[2] if late is UNSET else late,
            )
            if new != old:
                customer_settings_put(
                    tx,
                    key,
                    weight=new[0],
                    concurrency=new[1],
                    start_tolerance_us=new[2],
                    has_new_maximum=new[1] != old[1],
                    actor=self._actor,
                )
                detail = {
                    name: {"from": before, "to": after}
                    for name, before, after in zip(_SETTINGS, old, new, strict=True)
                    if before != after
                }
                text = json.dumps(detail, sort_keys=True)
                entry = Entry("customer", key, key, "changed", self._actor, detail=text)
                journal_append_many(tx, [entry])
                tx.after_commit(lambda: self._store.wake([SETTINGS_CHANGED]))
            return self._read(tx, customer)

        return self._store.write(body)

    def _read(self, tx: Tx, customer: str) -> CustomerSettings:
        key = self._names.customer_key(tx, customer)
        assert key is not None
        return settings_record(customer_rows(tx, [key])[key])


def _tolerance_us(given: timedelta | None) -> int | None:
    if given is None:
        return None
    found = given // timedelta(microseconds=1)
    if not 0 <= found <= DAY:
        raise InvalidInput("start_tolerance", "0 minutes to 24 hours", f"{found / MINUTE:g}")
    return found
