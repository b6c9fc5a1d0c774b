"""Manual decisions about gates: grant and revoke overrides, resolve interventions.

Each is a single transaction that appends an audit entry and requests a new evaluation of the
affected flows. The `actor` is always recorded; an override without an authenticated approver is
rejected.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.access.store.registry import customer_get, pipeline_get
from penstock.core.clock import FAR_FUTURE, Micros, request_time
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.fields import did_you_mean
from penstock.core.ids import decode_or_not_found, encode
from penstock.core.naming import CustomerKey
from penstock.core.records.parameters import CustomerFilter, PartitionFilter, PipelineFilter
from penstock.core.records.record import Meta, Page
from penstock.core.stored_json import from_json
from penstock.db.in_transaction import InTransaction
from penstock.db.store import Transactions, Tx
from penstock.flows.gates.from_rows import intervention_record, override_record
from penstock.flows.gates.override import Override, check_override, parse_override_duration
from penstock.flows.gates.records import GateOverride, Intervention, OverrideRequest
from penstock.flows.gates.rows import (
    InterventionFilter,
    InterventionRow,
    OverrideFilter,
    OverrideRow,
)
from penstock.flows.gates.store.overrides import (
    intervention_list,
    intervention_resolve,
    override_list,
    override_put,
    override_revoke,
)
from penstock.flows.gates.store.run_gates import run_gate_ask_again, run_gates_ask_again
from penstock.flows.store.completions import flow_event_put_for_partition, flow_event_put_many
from penstock.pipelines.dependency import Dependency
from penstock.pipelines.partition import check_partition, partition_rule_of
from penstock.schedules.store.configs import Change, audit_append

CHANNEL = "flows"


_OVERRIDE_ID = Meta(
    description="Id of the override (`ovr_…`).", examples=["ovr_7h2kq0v3"], max_length=64
)
_INTERVENTION_ID = Meta(
    description="Id of the intervention (`int_…`).", examples=["int_7h2kq0v3"], max_length=64
)
_REASON = Meta(description="Reason for the action, stored with its record.", max_length=500)
_LIVE = Meta(description="Return only overrides that are in effect now.")
_STATUS = Meta(description="Return only interventions of this status.")
_APPROVAL = Meta(
    description="Reason for the approval, stored with it.", min_length=1, max_length=500
)
_EXPIRES = Meta(description="Lifetime of the approval, such as `24h`; at most 7 days.")
_RESOLUTION = Meta(
    description="Description of what was done, kept with the intervention.",
    min_length=1,
    max_length=2_000,
)


class Overrides:
    """Use cases of overrides."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def grant(self, request: OverrideRequest, *, source: str = "") -> GateOverride:
        """Allow gates of a partition to proceed without a dependency. The caller is the approver.

        source: the interface that it is granted through.
        """
        who = self._actor

        def body(tx: Tx) -> GateOverride:
            info = self._names.pipeline(request.pipeline, "pipeline", tx)
            _check_scope(info.definition, request)
            check_partition(partition_rule_of(info.definition), request.partition)
            customer_id = self._names.customer_or_default(request.customer)
            customer = self._names.customer_key(tx, customer_id)
            assert customer is not None
            now = tx.now()
            known: dict[str, Any] = {
                "pipeline": request.pipeline,
                "partition": request.partition,
                "reason": request.reason,
                "expires_at": _expiry(request, now),
                "customer": customer_id,
                "phase": request.phase,
                "processor": request.processor,
                "dependency": request.dependency,
                "source": source,
                "notes": request.notes,
                "approved_by": who,
            }
            check_override(Override(id="", approved_at=now, **known), now)
            given = {**known, "customer": customer, "pipeline": info.pipeline_key}
            override_id, _ = override_put(tx, given)
            shown = {**known, "approved_at": now, "override_id": encode("ovr", override_id)}
            audit_append(
                tx, [Change(customer, "OVERRIDE_GRANTED", None, who, request.reason, None, shown)]
            )
            flow_event_put_for_partition(tx, customer, info.pipeline_key, request.partition)
            run_gates_ask_again(tx, customer, info.pipeline_key, request.partition)
            tx.after_commit(lambda: self._store.wake([CHANNEL]))
            (row,) = override_list(tx, OverrideFilter(override_id=override_id))
            return override_record(row)

        return self._store.write(body)

    def revoke(
        self, override_id: Annotated[str, _OVERRIDE_ID], reason: Annotated[str, _REASON] = ""
    ) -> None:
        """Revoke an override. Runs that it allowed to start continue."""
        override = decode_or_not_found("ovr", "override", override_id)
        who = self._actor

        def body(tx: Tx) -> None:
            number = self._names.customer_key(tx, None)
            name = encode("ovr", override)
            found = override_list(tx, OverrideFilter(customer=number, override_id=override))
            if not found:
                raise NotFound("override", name)
            if not override_revoke(tx, override, who, number):
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

    def list(
        self,
        *,
        pipeline: PipelineFilter = None,
        partition: PartitionFilter = None,
        live: Annotated[bool, _LIVE] = False,
        customer: CustomerFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[GateOverride]:
        """List overrides, newest first."""

        def body(tx: Tx, before: int) -> Sequence[OverrideRow]:
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

        return paged(
            self._names,
            "overrides",
            lambda after: self._store.read(
                lambda tx: body(tx, FAR_FUTURE if after is None else after[0])
            ),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.override_id],
            record=override_record,
            filters={
                "pipeline": pipeline, "partition": partition, "live": live, "customer": customer
            },
        )  # fmt: skip


class Interventions:
    """Use cases of interventions."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def list(
        self,
        *,
        status: Annotated[Literal["open", "resolved", "all"], _STATUS] = "open",
        customer: CustomerFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[Intervention]:
        """List interventions, newest first."""
        if status not in ("open", "resolved", "all"):
            raise InvalidInput("status", "open, resolved or all", status)

        def body(tx: Tx, before: int) -> Sequence[InterventionRow]:
            number = self._names.customer_key(tx, customer)
            which = None if status == "all" else status
            return intervention_list(tx, InterventionFilter(number, which, None, before, limit))

        return paged(
            self._names,
            "interventions",
            lambda after: self._store.read(
                lambda tx: body(tx, FAR_FUTURE if after is None else after[0])
            ),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.intervention_id],
            record=intervention_record,
            filters={"status": status, "customer": customer},
        )

    def get(self, intervention_id: Annotated[str, _INTERVENTION_ID]) -> Intervention:
        """Return one intervention, open or resolved."""
        number = decode_or_not_found("int", "intervention", intervention_id)

        def body(tx: Tx) -> Intervention:
            wanted = InterventionFilter(self._names.customer_key(tx, None), None, number)
            found = intervention_list(tx, wanted)
            if not found:
                raise NotFound("intervention", encode("int", number))
            return intervention_record(found[0])

        return self._store.read(body)

    def resolve(
        self,
        intervention_id: Annotated[str, _INTERVENTION_ID],
        resolution: Annotated[str, _RESOLUTION],
    ) -> None:
        """Resolve an intervention. Its gate is evaluated again immediately."""
        if not resolution.strip():
            raise InvalidInput("resolution", "a description of what was done", resolution)
        number = decode_or_not_found("int", "intervention", intervention_id)
        who = self._actor

        def body(tx: Tx) -> None:
            customer = self._names.customer_key(tx, None)
            name = encode("int", number)
            found = intervention_resolve(tx, number, who, resolution, customer)
            if found is None:
                if not intervention_list(tx, InterventionFilter(customer, None, number)):
                    raise NotFound("intervention", name)
                raise Conflict(f"{name} is not open.")
            flow_id, owner, _ = found
            shown = {"intervention_id": name, "resolution": resolution}
            change = Change(
                CustomerKey(owner), "INTERVENTION_RESOLVED", None, who, resolution, None, shown
            )
            audit_append(tx, [change])
            if flow_id < 0:  # the gate of a single run
                run_gate_ask_again(tx, CustomerKey(owner), -flow_id)
            else:
                flow_event_put_many(tx, [(flow_id, owner, None, False)])
            tx.after_commit(lambda: self._store.wake([CHANNEL]))

        self._store.write(body)

    def approve(
        self,
        intervention_id: Annotated[str, _INTERVENTION_ID],
        reason: Annotated[str, _APPROVAL],
        expires: Annotated[str, _EXPIRES] = "24h",
    ) -> GateOverride:
        """Approve starting without the missing data: grant an override and resolve the item.

        The override covers the gate of this intervention only. Its gate is evaluated immediately;
        a dependency declared with `fail_if_missing` still fails it.
        """
        number = decode_or_not_found("int", "intervention", intervention_id)

        def body(tx: Tx) -> GateOverride:
            wanted = InterventionFilter(self._names.customer_key(tx, None), None, number)
            found = intervention_list(tx, wanted)
            if not found:
                raise NotFound("intervention", encode("int", number))
            inside = InTransaction(self._store, tx)
            granted = Overrides(inside, self._names, self._actor).grant(
                _approval(found[0], reason, expires)
            )
            done = f"approved without it ({granted.override_id}): {reason}"
            Interventions(inside, self._names, self._actor).resolve(intervention_id, done)
            return granted

        return self._store.write(body)


def _approval(item: InterventionRow, reason: str, expires: str) -> OverrideRequest:
    """Return the approval to start without the data that an intervention lists as missing."""
    missing = json.loads(item.missing)
    return OverrideRequest(
        pipeline=item.pipeline,
        partition=item.partition,
        customer=item.customer_id,
        phase=item.phase,
        processor=item.processor or None,
        dependency=missing[0] if len(missing) == 1 else None,
        reason=reason,
        expires=expires,
    )


def _expiry(request: OverrideRequest, now: Micros) -> Micros:
    """Return the end of an override from `expires` or `expires_at`."""
    if request.expires is not None and request.expires_at is None:
        return now + parse_override_duration(request.expires)
    if request.expires_at is None or request.expires is not None:
        raise InvalidInput("expires", "either expires or expires_at", "both or neither")
    return request_time(request.expires_at, "expires_at")


def _check_scope(definition: Any, request: OverrideRequest) -> None:
    """Raise InvalidInput for an unknown phase or processor: the override would have no effect."""
    phases = {p["name"]: [one["name"] for one in p["processors"]] for p in definition["phases"]}
    if request.phase is not None and request.phase not in phases:
        meant = did_you_mean(request.phase, phases)
        raise InvalidInput("phase", f"one of {', '.join(phases)}", request.phase, meant)
    known = phases.get(request.phase or "", [n for names in phases.values() for n in names])
    if request.processor is not None and request.processor not in known:
        raise InvalidInput("processor", f"one of {', '.join(known)}", request.processor)
    if request.dependency is not None:
        _check_dependency(definition, request)


def _check_dependency(definition: Any, request: OverrideRequest) -> None:
    """Raise InvalidInput for a table that no gate in the scope needs, with a similar name."""
    needs = [
        from_json(Dependency, need)
        for phase in definition["phases"]
        for processor in phase["processors"]
        if request.phase in (None, phase["name"]) and request.processor in (None, processor["name"])
        for need in processor.get("needs", ())
    ]
    tables = list(dict.fromkeys(need.table for need in needs))
    wanted = str(request.dependency)
    if wanted in tables or any(wanted.split("#")[0] == need.key for need in needs):
        return
    near = difflib.get_close_matches(wanted, tables, n=1)
    fix = f"Did you mean {near[0]!r}?" if near else "The override would have no effect."
    expected = f"a table that its gates need ({', '.join(tables) or 'they need none'})"
    raise InvalidInput("dependency", expected, wanted, fix)
