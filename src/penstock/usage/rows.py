"""Rows of usage as plain records."""

from __future__ import annotations

from typing import NamedTuple


class ProfiledRun(NamedTuple):
    """A completed run, for the profile of its processor."""

    processor_key: int
    customer_key: int
    mode: str
    run_id: int
    at: int
    started_at: int
    slot: int
    records: int | None


class BudgetRow(NamedTuple):
    """A budget with the name of its subject and its use in the current period."""

    scope: str
    subject: int
    period: str
    amount: float
    warn_percent: float
    is_hard: bool
    stopped_at: int | None
    lifted_until: int | None
    name: str
    used: float = 0.0
    runs: int = 0


class AnomalyRow(NamedTuple):
    """An anomaly, with the names of its customer, pipeline, phase and processor."""

    anomaly_id: int
    customer: str
    pipeline: str
    phase: str
    processor: str
    mode: str
    measure: str
    run_id: int
    value: float
    low: float | None
    high: float
    median: float
    samples: int
    at: int
    ended_at: int | None
