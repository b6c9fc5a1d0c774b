"""Manual decisions about gates: grant and revoke overrides, resolve interventions.

Each one is a single transaction that appends an audit entry and has the affected flows evaluated
again. The `actor` is always recorded; an override without an authenticated approver is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.access.store.names import NameResolver, check_limit
from penstock.access.store.registry import customer_get, pipeline_get
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Transactions, Tx
from penstock.flows.gates.override import Override, check_override
from penstock.flows.gates.rows import Intervention, InterventionFilter, OverrideFilter, OverrideRow
from penstock.flows.gates.store.overrides import (
    intervention_list,
    intervention_resolve,
    override_list,
    override_put,
    override_revoke,
)
from penstock.flows.store.completions import flow_event_put_for_partition, flow_event_put_many
from penstock.schedules.store.configs import Change, audit_append

CHANNEL = "flows"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideRequest:
    """An override to grant; None for phase, processor or dependency means all of them.

    `expires_at` is in microseconds.
    """

    pipeline: str
    partition: str
    reason: str
    expires_at: int
    customer: str | None = None
    phase: str | None = None
    processor: str | None = None
    dependency: str | None = None
    source: str = ""
    notes: str = ""


class Overrides:
    """Use cases of overrides."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def grant(self, approval: OverrideRequest, *, actor: str | None = None) -> OverrideRow:
        """Allow the gates of a partition to proceed without a dependency until it expires."""
        who = actor or self._actor

        def body(tx: Tx) -> OverrideRow:
            info = self._names.pipeline(approval.pipeline, "pipeline", tx)
            _check_scope(info.definition, approval)
            customer_id = approval.customer or self._names.default_customer
            customer = self._names.customer_key(tx, customer_id)
            assert customer is not None
            now = tx.now()
            fields = {name: getattr(approval, name) for name in approval.__slots__}
            known = {**fields, "customer": customer_id, "approved_by": who, "approved_at": now}
            check_override(Override(id="", **known), now)
            given = {**known, "customer": customer, "pipeline": info.pipeline_key}
            del given["approved_at"]
            override_id, _ = override_put(tx, given)
            shown = {**known, "override_id": encode("ovr", override_id)}
            audit_append(
                tx, [Change(customer, "OVERRIDE_GRANTED", None, who, approval.reason, None, shown)]
            )
            flow_event_put_for_partition(tx, customer, info.pipeline_key, approval.partition)
            tx.after_commit(lambda: self._store.wake([CHANNEL]))
            (row,) = override_list(tx, OverrideFilter(override_id=override_id))
            return row

        return self._store.write(body)

    def revoke(
        self,
        override_id: int,
        *,
        reason: str = "",
        customer: str | None = None,
        actor: str | None = None,
    ) -> None:
        """Revoke an override; raise Conflict if it has expired or was already revoked."""
        who = actor or self._actor

        def body(tx: Tx) -> None:
            number = self._names.customer_key(tx, customer)
            name = encode("ovr", override_id)
            found = override_list(tx, OverrideFilter(customer=number, override_id=override_id))
            if not found:
                raise NotFound("override", name)
            if not override_revoke(tx, override_id, who, number):
                raise Conflict(f"{name} is not active: it has expired or was revoked.")
            row = found[0]
            owner, pipeline = customer_get(tx, row.customer_id), pipeline_get(tx, row.pipeline)
            assert owner is not None
            assert pipeline is not None
            change = Change(owner, "OVERRIDE_REVOKED", None, who, reason, {"override_id": name})
            audit_append(tx, [change])
            flow_event_put_for_partition(tx, owner, pipeline[0], row.partition)
            tx.after_commit(lambda: self._store.wake([CHANNEL]))

        self._store.write(body)

    def page(
        self,
        *,
        pipeline: str | None = None,
        partition: str | None = None,
        live: bool = False,
        customer: str | None = None,
        before: int = 2**62,
        limit: int = 50,
    ) -> list[OverrideRow]:
        """Return overrides, newest first; with `live`, only those in effect now."""
        check_limit(limit)

        def body(tx: Tx) -> list[OverrideRow]:
            info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
            wanted = OverrideFilter(
                customer=self._names.customer_key(tx, customer),
                pipeline=None if info is None else info.pipeline_key,
                partition=partition,
                live=live,
                before=before,
                limit=limit,
            )
            return override_list(tx, wanted)

        return self._store.read(body)


class Interventions:
    """Use cases of interventions."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def page(
        self,
        *,
        status: str | None = "open",
        customer: str | None = None,
        before: int = 2**62,
        limit: int = 50,
    ) -> list[Intervention]:
        """Return interventions, newest first; by default only open ones."""
        check_limit(limit)
        if status not in (None, "open", "resolved"):
            raise InvalidInput("status", "open or resolved", status)

        def body(tx: Tx) -> list[Intervention]:
            number = self._names.customer_key(tx, customer)
            wanted = InterventionFilter(number, status, None, before, limit)
            return intervention_list(tx, wanted)

        return self._store.read(body)

    def get(self, intervention_id: int, customer: str | None = None) -> Intervention:
        """Return one intervention, open or resolved."""

        def body(tx: Tx) -> Intervention:
            wanted = InterventionFilter(
                self._names.customer_key(tx, customer), None, intervention_id
            )
            found = intervention_list(tx, wanted)
            if not found:
                raise NotFound("intervention", encode("int", intervention_id))
            return found[0]

        return self._store.read(body)

    def resolve(
        self,
        intervention_id: int,
        resolution: str,
        *,
        customer: str | None = None,
        actor: str | None = None,
    ) -> None:
        """Mark an intervention as resolved; its gate is evaluated again."""
        if not resolution.strip():
            raise InvalidInput("resolution", "what was done", resolution)
        who = actor or self._actor

        def body(tx: Tx) -> None:
            number = self._names.customer_key(tx, customer)
            found = intervention_resolve(tx, intervention_id, who, resolution, number)
            if found is None:
                known = InterventionFilter(number, None, intervention_id)
                if not intervention_list(tx, known):
                    raise NotFound("intervention", encode("int", intervention_id))
                raise Conflict(f"{encode('int', intervention_id)} is not open.")
            flow_id, owner, _ = found
            shown = {"intervention_id": encode("int", intervention_id), "resolution": resolution}
            audit_append(
                tx,
                [
                    Change(
                        CustomerKey(owner),
                        "INTERVENTION_RESOLVED",
                        None,
                        who,
                        resolution,
                        None,
                        shown,
                    )
                ],
            )
            flow_event_put_many(tx, [(flow_id, owner, None, False)])
            tx.after_commit(lambda: self._store.wake([CHANNEL]))

        self._store.write(body)


def _check_scope(definition: Any, approval: OverrideRequest) -> None:
    """Raise InvalidInput for an unknown phase or processor: the override would have no effect."""
    phases = {p["name"]: [one["name"] for one in p["processors"]] for p in definition["phases"]}
    if approval.phase is not None and approval.phase not in phases:
        raise InvalidInput("phase", f"one of {', '.join(phases)}", approval.phase)
    known = phases.get(approval.phase or "", [n for names in phases.values() for n in names])
    if approval.processor is not None and approval.processor not in known:
        raise InvalidInput("processor", f"one of {', '.join(known)}", approval.processor)
