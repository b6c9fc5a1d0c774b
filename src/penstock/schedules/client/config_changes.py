"""Writes of configs: each change updates the schedule row and appends to the audit chain.

Functions over a transaction; `client.configs` checks what may change and locks the config first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.access.store.names import NameResolver
from penstock.audit.store.alerts import alert_resolve
from penstock.db.store import Tx
from penstock.schedules.cadence import Cadence, next_after
from penstock.schedules.config_input import ConfigInput
from penstock.schedules.description import describe, describe_draft, offset_of
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.config_health import disabled_key, failing_key
from penstock.schedules.store.configs import (
    Change,
    audit_append,
    config_health_reset,
    config_insert_many,
    config_set_offset_many,
    config_update,
)
from penstock.schedules.store.schedule import (
    cadence_ensure,
    schedule_get,
    schedule_put,
    schedule_put_many,
    schedule_retire,
    schedule_write_off,
)


def insert(
    tx: Tx,
    names: NameResolver,
    wanted: Sequence[tuple[str, ConfigInput]],
    reason: str | Sequence[str],
    who: str,
) -> list[int]:
    """Create configs, their schedule rows and audit entries; return their ids in order.

    `reason` is one text for all configs, or one per config.
    """
    reasons = [reason] * len(wanted) if isinstance(reason, str) else reason
    customers = [customer for customer, _ in wanted]
    drafts = [draft for _, draft in wanted]
    numbers = names.ensure_customer_keys(tx, customers)
    for pipeline, customer in {(d.pipeline, customer) for customer, d in wanted}:
        names.use_pipeline(tx, names.pipeline(pipeline, tx=tx), numbers[customer])
    cadences = {d.cadence: cadence_ensure(tx, d.cadence) for d in drafts if d.cadence}
    now = tx.now()
    rows = [
        (
            numbers[customer], names.pipeline(d.pipeline, tx=tx).pipeline_key, d.provider, d.domain,
            d.schedule_type.value, cadences.get(d.cadence) if d.cadence else None, d.timezone,
            d.event_topic, d.event_filter, d.parameters, d.retry, d.priority,
            d.max_execution_us, d.sla_us, d.catch_up.value, d.catch_up_window_us,
            d.overlap.value, d.jitter_us, d.is_active, who, d.event_mapping,
            d.expires_us,
        )
        for customer, d in zip(customers, drafts, strict=True)
    ]  # fmt: skip
    ids = config_insert_many(tx, rows)
    assert len(ids) == len(drafts)
    config_set_offset_many(
        tx, [(i, offset_of(i, d)) for i, d in zip(ids, drafts, strict=True) if d.jitter_us]
    )
    nexts: dict[Cadence, int] = {c: next_after(c, now, now) for c in cadences}
    schedule_put_many(
        tx,
        [
            (i, cadences[d.cadence], nexts[d.cadence], now, d.catch_up.value,
             d.catch_up_window_us)
            for i, d in zip(ids, drafts, strict=True)
            if d.cadence and d.is_active
        ],
    )  # fmt: skip
    audit_append(
        tx,
        [
            Change(numbers[customer], "CREATED", i, who, why, None, describe_draft(d))
            for customer, i, d, why in zip(customers, ids, drafts, reasons, strict=True)
        ],
    )
    return ids


def replace(tx: Tx, old: ConfigRow, draft: ConfigInput, action: str, reason: str, who: str) -> None:
    """Change a locked config, update its schedule row and append an audit entry."""
    cadence = cadence_ensure(tx, draft.cadence) if draft.cadence else None
    params: dict[str, Any] = {
        name: getattr(draft, name)
        for name in ConfigInput.__slots__
        if name not in ("pipeline", "cadence")
    }
    params |= {
        "config_id": old.config_id,
        "version": old.version,
        "cadence": cadence,
        "offset_us": offset_of(old.config_id, draft),
        "inactive_reason": _inactive_reason(old, draft, reason),
    }
    for name in ("schedule_type", "catch_up", "overlap"):
        params[name] = params[name].value
    version = config_update(tx, params)
    assert version is not None, "the row is locked"
    _update_schedule(tx, old, draft, cadence)
    if draft.is_active and not old.is_active:
        config_health_reset(tx, old.config_id)
        alerts_resolve(tx, old.config_id, who)
    before, after = describe(old), describe_draft(draft)
    changed = {k for k in after if before.get(k) != after[k]}
    change = Change(
        old.customer_key, action, old.config_id, who, reason,
        {k: before.get(k) for k in sorted(changed)}, {k: after[k] for k in sorted(changed)},
    )  # fmt: skip
    audit_append(tx, [change])


def alerts_resolve(tx: Tx, config_id: int, who: str) -> None:
    """Resolve the open alerts about a config's failures."""
    alert_resolve(tx, failing_key(config_id), who)
    alert_resolve(tx, disabled_key(config_id), who)


def _inactive_reason(old: ConfigRow, draft: ConfigInput, reason: str) -> str | None:
    """Return why the config is inactive; a change that leaves it inactive keeps the old reason."""
    if draft.is_active:
        return None
    return (reason or "disabled manually") if old.is_active else old.inactive_reason


def _update_schedule(tx: Tx, old: ConfigRow, draft: ConfigInput, cadence: int | None) -> None:
    """Update the schedule row; a config whose cadence is unchanged keeps its next occurrence."""
    row = schedule_get(tx, old.config_id)
    if cadence is None or draft.cadence is None or not draft.is_active:
        schedule_retire(tx, old.config_id)
        return
    now = tx.now()
    evaluated_to = now if row is None else max(row[2], 0)
    if row is not None and row[0] == cadence:
        next_run_time = row[1]
    else:
        if row is not None:
            schedule_write_off(tx, old.config_id, row)
        evaluated_to = max(evaluated_to, now)
        next_run_time = next_after(draft.cadence, now, now)
    schedule_put(
        tx,
        {
            "config_id": old.config_id,
            "cadence": cadence,
            "next_run_time": next_run_time,
            "evaluated_to": evaluated_to,
            "catch_up": draft.catch_up.value,
            "window_us": draft.catch_up_window_us,
        },
    )
