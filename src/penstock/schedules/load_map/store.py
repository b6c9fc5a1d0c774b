"""Reads of the load map, and changes to configs' jitter with their audit entries."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.clock import DAY, SECOND
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx
from penstock.schedules.cadence import Cadence
from penstock.schedules.load_map.plan import Move, ScheduledGroup, Spreadable
from penstock.schedules.store.configs import Change, audit_append

SAMPLE = 1_000
"""Maximum number of recently ended runs that are averaged in addition to the counters."""


def load_groups(
    tx: Tx, customer_key: CustomerKey | None, pipeline_key: PipelineKey | None
) -> list[ScheduledGroup]:
    """Return scheduled configs in groups that start together."""
    params: dict[str, int | None] = {"pipeline": pipeline_key}
    if customer_key is None:
        rows = tx.rows("load_groups", params)
    else:
        rows = tx.rows("load_groups_customer", {**params, "customer": customer_key})
    return [ScheduledGroup(_cadence(row[0], row[1], row[2]), *row[3:]) for row in rows]


def load_durations(tx: Tx, customer_key: CustomerKey | None) -> dict[str, int]:
    """Return the mean duration of the entry processors' runs of the last day, by pipeline."""
    params = {"customer": customer_key, "since": tx.now() - DAY, "sample": SAMPLE}
    return {name: int(mean) for name, mean in tx.rows("load_durations", params)}


def load_configs(
    tx: Tx,
    customer_key: CustomerKey | None,
    pipeline_key: PipelineKey | None,
    *,
    after: int,
    limit: int,
) -> list[Spreadable]:
    """Return scheduled configs in id order, with their tolerances."""
    params = {"customer": customer_key, "pipeline": pipeline_key, "after": after, "limit": limit}
    return [
        Spreadable(row[0], row[1], _cadence(row[2], row[3], row[4]), *row[5:])
        for row in tx.rows("load_configs", params)
    ]


def load_spread(tx: Tx, moves: Sequence[Move], actor: str, reason: str) -> int:
    """Set the new jitter of configs; audited. Return how many still had the old one."""
    wanted = {move.config.config_id: move for move in moves}
    rows = tx.rows(
        "load_spread",
        batch=[
            (move.config.config_id, move.jitter_us, move.offset_us, move.config.jitter_us)
            for move in moves
        ],
    )
    audit_append(
        tx,
        [
            Change(
                customer,
                "UPDATED",
                config_id,
                actor,
                reason,
                {"jitter_seconds": wanted[config_id].config.jitter_us / SECOND},
                {"jitter_seconds": wanted[config_id].jitter_us / SECOND},
            )
            for config_id, customer in sorted(rows)
        ],
    )
    return len(rows)


def _cadence(cron: str, timezone: str, interval_us: int) -> Cadence:
    if interval_us:
        return Cadence(timezone=timezone, interval_us=interval_us)
    return Cadence(cron=cron, timezone=timezone)
