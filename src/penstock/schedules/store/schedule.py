"""Schedule: the narrow table of due times per config, and the tick that starts occurrences.

An occurrence starts in the transaction that moves `next_run_time` past it, under a lock on the
schedule row and a unique key on the run. These two, and not a leader, guarantee exactly one start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.core.stored_json import loads
from penstock.db.store import Tx, first, one
from penstock.pipelines.partition import PartitionRule, partition_at
from penstock.schedules.cadence import Cadence, CatchUp
from penstock.schedules.misfire import MisfirePlan, plan_misfires
from penstock.schedules.rows import DueGroup, TickCounts


class LedgerEntry(NamedTuple):
    """Occurrences that did not start, with the reason."""

    slot_from: int
    slot_to: int
    occurrences: int
    outcome: str
    at: int


def schedule_take_due(tx: Tx, n: int) -> list[DueGroup]:
    """Lock up to `n` due configs, grouped by what determines their scheduled times."""
    groups = []
    for cadence, due_at, catch_up, window_us, ids, now in tx.rows("schedule_take_due", {"n": n}):
        config_ids = msgspec.json.decode(ids) if isinstance(ids, str) else ids
        groups.append(DueGroup(cadence, due_at, catch_up, window_us, config_ids, now))
    return groups


def schedule_start_many(
    tx: Tx,
    plans: Sequence[tuple[DueGroup, MisfirePlan, bool]],
    *,
    cursor: int | None,
    gap_us: int,
) -> TickCounts:
    """Advance the taken configs and start their occurrences; `bool` marks a late group.

    Late runs are spread from `cursor` on, one every `gap_us`, which bounds the global start rate.
    """
    if tx.engine == "postgres":
        batch = [(c, *_plan_columns(p, late)) for g, p, late in plans for c in g.config_ids]
    else:
        batch = [(*g[:4], *_plan_columns(p, late)) for g, p, late in plans]
    params = {
        "cursor": cursor,
        "gap_us": gap_us,
        "actor": "scheduler",
        "partitions": _partitions(tx, plans),
        "n": sum(len(group.config_ids) for group, _, _ in plans),
        "taken_at": plans[0][0].now,
    }
    return TickCounts._make(one(tx.rows("schedule_start_many", params, batch)))


def _partitions(tx: Tx, plans: Sequence[tuple[DueGroup, MisfirePlan, bool]]) -> str | None:
    """Return the partitions of runs without flows, by rule, zone and scheduled time; often none."""
    starting = [(group, plan.run_at) for group, plan, _ in plans if plan.run_at is not None]
    if not starting:
        return None
    ids = [config_id for group, _ in starting for config_id in group.config_ids]
    found = tx.rows("partition_rules_of", {"ids": ids})
    if not found:
        return None
    return json.dumps(
        {
            f"{text}|{zone}|{at}": partition_at(loads(PartitionRule, text), at, zone)
            for text, zone in found
            for at in {run_at for _, run_at in starting}
        }
    )


def _plan_columns(plan: MisfirePlan, is_late: bool) -> tuple[Any, ...]:
    return (
        plan.run_at,
        plan.next_at,
        plan.missed_from,
        plan.missed_to,
        plan.missed_count,
        is_late,
    )


def schedule_next_at(tx: Tx) -> tuple[int | None, int]:
    """Return (earliest next_run_time, now), without locking."""
    row = first(tx.rows("schedule_is_due"))
    return (None, tx.now()) if row is None else (row[0], row[1])


def entry_count(tx: Tx, config_ids: Sequence[int]) -> int:
    """Return how many runs one occurrence of each of these configs starts."""
    return int(one(tx.rows("entry_count", {"ids": list(config_ids)}))[0])


def catch_up_reserve(tx: Tx, span_us: int) -> int:
    """Reserve a span of the global start rate. Return its beginning."""
    return int(one(tx.rows("catch_up_reserve", {"span_us": span_us}))[0])


def catch_up_return(tx: Tx, span_us: int) -> None:
    """Shorten the span that this transaction reserved last by its unused end."""
    tx.run("catch_up_return", {"span_us": span_us})


def cadence_ensure(tx: Tx, cadence: Cadence) -> int:
    """Return the key of a cadence; equal cadences share one."""
    params = {
        "cron": cadence.cron or "",
        "timezone": cadence.timezone,
        "interval_us": cadence.interval_us or 0,
    }
    return int(one(tx.rows("cadence_ensure", params))[0])


def cadence_list(tx: Tx, numbers: Iterable[int]) -> dict[int, Cadence]:
    """Return cadences by key."""
    rows = tx.rows("cadence_list", {"ids": sorted(set(numbers))})
    return {
        number: Cadence(cron=cron or None, timezone=timezone, interval_us=interval_us or None)
        for number, cron, timezone, interval_us in rows
    }


def schedule_put(tx: Tx, params: dict[str, Any]) -> None:
    """Schedule a config or change its schedule (see the statement for the fields)."""
    tx.run("schedule_put", params)


def schedule_put_many(tx: Tx, rows: Sequence[tuple[Any, ...]]) -> None:
    """Schedule many new configs."""
    tx.run("schedule_put_many", batch=rows)


def schedule_get(tx: Tx, config_id: int) -> tuple[int, int, int] | None:
    """Return (cadence, next_run_time, evaluated_to) of a scheduled config, locked."""
    row = first(tx.rows("schedule_get", {"config_id": config_id}))
    return None if row is None else (row[0], row[1], row[2])


def schedule_delete(tx: Tx, config_id: int) -> None:
    """Remove a config from the schedule."""
    tx.run("schedule_drop", {"config_id": config_id})


def ledger_put(tx: Tx, config_id: int, missed: MisfirePlan) -> None:
    """Record occurrences that were missed because the config was edited."""
    params = {
        "config_id": config_id,
        "slot_from": missed.missed_from,
        "slot_to": missed.missed_to,
        "slots": missed.missed_count,
    }
    tx.run("ledger_put", params)


def schedule_retire(tx: Tx, config_id: int) -> None:
    """Remove a config from the schedule and record its unevaluated due occurrences as missed."""
    row = schedule_get(tx, config_id)
    if row is not None:
        schedule_write_off(tx, config_id, row)
        schedule_delete(tx, config_id)


def schedule_write_off(tx: Tx, config_id: int, row: tuple[int, int, int]) -> None:
    """Record the due occurrences of a locked schedule row as missed."""
    number, due_at, _ = row
    now = tx.now()
    if due_at <= now:
        cadence = cadence_list(tx, [number])[number]
        ledger_put(tx, config_id, plan_misfires(cadence, due_at, now, CatchUp.NONE, grace_us=-1))


def ledger_list(tx: Tx, config_id: int, limit: int, before: int = 2**62) -> list[LedgerEntry]:
    """Return occurrences of a config that did not start, newest first."""
    params = {"config_id": config_id, "limit": limit, "before": before}
    return [LedgerEntry._make(row) for row in tx.rows("ledger_list", params)]
