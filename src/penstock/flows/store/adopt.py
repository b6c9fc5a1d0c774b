"""Adoption of a new pipeline declaration by open flows; their waiting gates are evaluated again.

A flow keeps the declaration it was opened with while its phases or processors differ from the new
one. Otherwise it follows the new needs, modes and warehouses, so that a corrected declaration ends
the wait it caused. A declaration under which gates would count the rows of several customers, or
schedules would repeat partitions, is refused; one whose needs already counted them opens an alert,
because a refusal would stop the processes that register it and change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.access.store.names import check_sole_user, unowned_tables
from penstock.audit.rows import Entry, NewAlert
from penstock.audit.store.alerts import alert_open, alert_resolve
from penstock.audit.store.journal import journal_append_many
from penstock.core.errors import Conflict
from penstock.core.naming import PipelineKey
from penstock.db.store import Tx, one
from penstock.flows.plan import has_same_graph
from penstock.flows.rows import WaitingFilter
from penstock.flows.store.plans import definition_get
from penstock.schedules.store.declared import check_partition_rule

ACTOR = "registration"


def declaration_check(
    tx: Tx, pipeline_key: PipelineKey, old: Mapping[str, Any], new: Mapping[str, Any]
) -> None:
    """Raise Conflict if a changed declaration does not fit the configs and flows that use it."""
    check_partition_rule(tx, pipeline_key, old, new)
    tables, before = unowned_tables(new), unowned_tables(old)
    if tables:
        ends = one(tx.rows("pipeline_users", {"pipeline": pipeline_key}))
        users = sorted({customer for customer in ends if customer is not None})
        try:
            check_sole_user(tx, pipeline_key, new, users)
        except Conflict as refusal:
            if not set(tables) <= set(before):
                raise
            alert_open(tx, _unowned(pipeline_key, new["name"], tables, str(refusal)))
            return
    if before:
        alert_resolve(tx, _unowned_key(pipeline_key), ACTOR)


def _unowned_key(pipeline_key: PipelineKey) -> str:
    return f"needs_unowned:{pipeline_key}"


def _unowned(pipeline_key: PipelineKey, name: str, tables: Sequence[str], message: str) -> NewAlert:
    """Return the alert about a pipeline of several customers whose needs count all rows."""
    return NewAlert(
        rule="needs_unowned",
        dedupe_key=_unowned_key(pipeline_key),
        severity="HIGH",
        subject_kind="pipeline",
        subject=pipeline_key,
        pipeline=name,
        message=message,
        detail={"fix": f"penstock pipelines show {name}", "tables": list(tables)},
    )


def declaration_adopt(tx: Tx, pipeline_key: PipelineKey, digest: str) -> None:
    """Move open flows with the same phases to this declaration; evaluate their waiting gates."""
    older = tx.rows("flow_digests_open", {"pipeline": pipeline_key, "digest": digest})
    if not older:
        return
    new = definition_get(tx, pipeline_key, digest)
    digests = [
        old for (old,) in older if has_same_graph(definition_get(tx, pipeline_key, old), new)
    ]
    if not digests:
        return
    params = {"pipeline": pipeline_key, "digest": digest, "texts": digests}
    locked = tx.rows("flow_lock_of_digests", params)
    tx.run("flow_adopt", params)
    why = "the pipeline has a new declaration with the same phases"
    journal_append_many(
        tx,
        [
            Entry("flow", flow_id, customer, "declaration_changed", ACTOR, old, digest, None, why)
            for flow_id, customer, old in locked
        ],
    )
    flow_event_put_for_waiting(tx, WaitingFilter(pipeline=pipeline_key))


def flow_event_put_for_waiting(tx: Tx, wanted: WaitingFilter) -> list[int]:
    """Insert flow events for open flows with a waiting or blocked gate. Return the flows."""
    return sorted(row[0] for row in tx.rows("flow_event_put_for_waiting", wanted._asdict()))
