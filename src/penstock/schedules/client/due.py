"""Configs that fire in a window of time.

The occurrences of a cron cadence are computed once, however many configs have it; those of an
interval depend on the config.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.clock import DAY, Micros
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.core.records.record import time
from penstock.db.store import Tx
from penstock.schedules.cadence import Cadence, next_after, occurrences_between
from penstock.schedules.description import cadence_of
from penstock.schedules.records import DueConfig
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import config_list_by_cadence, schedule_cadences

WINDOW_MAX: Final = 32 * DAY
OCCURRENCES_MAX: Final = 1_000


class DueRow(NamedTuple):
    """A config and its occurrences in the window."""

    config: ConfigRow
    first: Micros
    occurrences: int


def due_list(
    tx: Tx,
    window: tuple[Micros, Micros],
    *,
    customer_key: CustomerKey | None,
    pipeline_key: PipelineKey | None,
    after: int,
    limit: int,
) -> list[DueRow]:
    """Return the configs that fire in a window (end exclusive), in id order."""
    candidates = [
        key
        for key, cadence in schedule_cadences(tx).items()
        if cadence.interval_us is not None or _times(cadence, window, 0)
    ]
    found: list[DueRow] = []
    times: dict[Cadence, list[Micros]] = {}
    while candidates and len(found) < limit:
        rows = config_list_by_cadence(
            tx,
            candidates,
            customer_key=customer_key,
            pipeline_key=pipeline_key,
            after=after,
            limit=limit,
        )
        for row in rows:
            cadence = cadence_of(row)
            assert cadence is not None, "it has a schedule"
            anchor = row.next_run_time or row.created_at
            if cadence.interval_us is not None:
                at = _times(cadence, window, anchor)
            else:
                at = times.setdefault(cadence, _times(cadence, window, 0))
            if at:
                found.append(DueRow(row, at[0], len(at)))
        if len(rows) < limit:
            break
        after = rows[-1].config_id
    return found[:limit]


def due_record(row: DueRow) -> DueConfig:
    """Return the record of a config that is due."""
    return DueConfig(
        config_id=encode("cfg", row.config.config_id),
        customer=row.config.customer_id,
        pipeline=row.config.pipeline,
        at=time(row.first),
        starts_at=time(row.first + row.config.offset_us),
        occurrences=row.occurrences,
        is_paused=bool(row.config.is_paused),
    )


def _times(cadence: Cadence, window: tuple[Micros, Micros], anchor: Micros) -> list[Micros]:
    """Return the scheduled times of a cadence in a window."""
    begin, end = window
    if next_after(cadence, begin - 1, anchor) >= end:
        return []
    return occurrences_between(cadence, begin - 1, end - 1, OCCURRENCES_MAX, anchor)
