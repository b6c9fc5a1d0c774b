"""Rows of breakers as plain records."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.naming import CustomerKey, PipelineKey
from penstock.flows.gates.breaker import Breaker


class BreakerRow(NamedTuple):
    """A breaker as listed (SQL fragment `breaker_columns`)."""

    customer_key: CustomerKey
    customer_id: str
    pipeline_key: PipelineKey
    pipeline: str
    partition: str
    phase: str
    failures: int
    opened_at: int | None
    probe_at: int | None
    changed_at: int

    @property
    def key(self) -> tuple[int, int, str, str]:
        """Primary key: customer, pipeline, partition and phase."""
        return self.customer_key, self.pipeline_key, self.partition, self.phase

    @property
    def breaker(self) -> Breaker:
        """The breaker in the form that the rules use."""
        return Breaker(failures=self.failures, opened_at=self.opened_at, probe_at=self.probe_at)


class BreakerFilter(NamedTuple):
    """Filter and page of a list of breakers; after: the primary key before the page."""

    customer: int | None = None
    pipeline: int | None = None
    partition: str | None = None
    phase: str | None = None
    is_open: bool = True
    after: tuple[int, int, str, str] = (0, 0, "", "")
    limit: int = 50


class FailureRow(NamedTuple):
    """A failure of a phase: a FAIL decision (its JSON in `text`), or a dead run."""

    is_run: bool
    subject: int
    at: int
    processor: str
    text: str
