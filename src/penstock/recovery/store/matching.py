"""Work that a filter selects for cancelling, and how long processors take."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx, one


class WorkFilter(NamedTuple):
    """Filter of open flows and live runs; None matches all."""

    customer: CustomerKey | None = None
    pipeline: PipelineKey | None = None
    first: str | None = None
    last: str | None = None


class ConfigFilterRow(NamedTuple):
    """Filter of configs; None matches all."""

    customer: CustomerKey | None
    pipeline: PipelineKey | None
    cron: str | None
    is_active: bool | None


class MatchingWork(NamedTuple):
    """Number of matching flows and runs."""

    flows: int
    runs_of_flows: int
    runs: int


class ProcessorDurations(NamedTuple):
    """How long the newest successful runs of a processor took."""

    pipeline: str
    phase: str
    processor: str
    runs: int
    p50_us: Micros
    p95_us: Micros
    max_us: Micros
    total_us: Micros


def work_count(tx: Tx, wanted: WorkFilter) -> MatchingWork:
    """Return how many open flows and single runs match."""
    flows, runs_of_flows = one(tx.rows("flows_open_matching_count", wanted._asdict()))
    (runs,) = one(tx.rows("runs_single_matching_count", wanted._asdict()))
    return MatchingWork(int(flows), int(runs_of_flows), int(runs))


def flows_matching(tx: Tx, wanted: WorkFilter, n: int) -> list[int]:
    """Return the oldest open flows that match."""
    rows = tx.rows("flows_open_matching", {**wanted._asdict(), "n": n})
    return [int(row[0]) for row in rows]


def runs_matching(tx: Tx, wanted: WorkFilter, n: int) -> list[int]:
    """Return the oldest live runs outside flows that match and were not asked to stop."""
    rows = tx.rows("runs_single_matching", {**wanted._asdict(), "n": n})
    return [int(row[0]) for row in rows]


def processor_durations(
    tx: Tx,
    *,
    customer_key: CustomerKey | None,
    pipeline_key: PipelineKey | None,
    since: Micros,
    samples: int,
    limit: int,
) -> list[ProcessorDurations]:
    """Return processors by the 95th percentile of their durations, slowest first."""
    params = {
        "customer": customer_key,
        "pipeline": pipeline_key,
        "since": since,
        "samples": samples,
        "limit": limit,
    }
    return [ProcessorDurations._make(row) for row in tx.rows("processor_durations", params)]


def configs_matching(tx: Tx, wanted: ConfigFilterRow, after: int, n: int) -> list[int]:
    """Return configs that match a filter, in id order."""
    rows = tx.rows("configs_matching", {**wanted._asdict(), "after": after, "n": n})
    return [int(row[0]) for row in rows]


def configs_matching_count(tx: Tx, wanted: ConfigFilterRow) -> int:
    """Return how many configs match."""
    return int(one(tx.rows("configs_matching_count", wanted._asdict()))[0])
