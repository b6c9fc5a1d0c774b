"""Runs of HTTP processors: ready ones, claims, and leases of accepted runs.

A run that is sent is held like a run of an external worker, by a lease row under its fencing token,
so that its endpoint can report under the same token, and a sweeper finds it if no report arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.clock import SECOND, Micros
from penstock.core.naming import PipelineKey, PoolKey, ProcessorKey
from penstock.core.stored_json import loads
from penstock.db.store import Tx
from penstock.entities.store import changed_of
from penstock.pipelines.declare.endpoint import HttpEndpoint
from penstock.pipelines.declare.incremental import RECEIVES
from penstock.runs.external.client.heartbeats import HEARTBEAT_LEASE_US
from penstock.runs.external.client.holder import Claimed
from penstock.runs.rows import HeldRun, Progress
from penstock.runs.store.leases import lease_extend_many, lease_take_many, progress_put_many
from penstock.runs.store.runs import Claim, run_claim
from penstock.worker.endpoints.request import OutgoingRun, grant_of

LEASE_MARGIN_US = 15 * SECOND
"""How long a run is held after the response timeout, to store the response."""


class EndpointRow(NamedTuple):
    """A registered HTTP processor."""

    processor_key: ProcessorKey
    pipeline_key: PipelineKey
    pool_key: PoolKey
    pipeline: str
    phase: str
    processor: str
    endpoint: str
    """Endpoint of the processor, as JSON."""
    entity_role: int = 0
    """Whether it reports or receives changed entities."""

    @property
    def path(self) -> str:
        """Full name: `pipeline/phase/processor`."""
        return f"{self.pipeline}/{self.phase}/{self.processor}"


def endpoint_ready(tx: Tx, *, after: int = 0, limit: int) -> list[EndpointRow]:
    """Return HTTP processors with ready runs, in order of their keys."""
    rows = tx.rows("endpoint_ready", {"after": after, "limit": limit})
    return [EndpointRow._make(row) for row in rows]


def endpoint_list(tx: Tx, limit: int) -> list[EndpointRow]:
    """Return all current HTTP processors."""
    return [EndpointRow._make(row) for row in tx.rows("endpoint_list", {"limit": limit})]


def endpoint_claim(tx: Tx, row: EndpointRow, n: int, holder: str) -> list[OutgoingRun]:
    """Claim up to `n` runs of a processor as RUNNING, each with a lease that covers its request."""
    claim = Claim(
        pool_key=row.pool_key, processors=[row.processor_key], n=n, claimed_by=holder, start=True
    )
    runs = run_claim(tx, claim)
    if not runs:
        return []
    endpoint = loads(HttpEndpoint, row.endpoint)
    until = lease_take_many(tx, [_lease(run, endpoint, holder) for run in runs])
    subjects = [(run.flow_id or 0, int(run.processor_key)) for run in runs]
    changed = changed_of(tx, subjects) if row.entity_role & RECEIVES else {}
    return [
        OutgoingRun(
            Claimed(run, until[run.run_id], *row[3:6], changed.get(subject)),
            endpoint,
        )
        for run, subject in zip(runs, subjects, strict=True)
    ]


def run_accept_many(tx: Tx, runs: Sequence[OutgoingRun]) -> set[int]:
    """Hold accepted runs until the next heartbeat is due; return those that had not yet ended."""
    rows = [("run", run.held.run_id, run.held.token, HEARTBEAT_LEASE_US) for run in runs]
    held = lease_extend_many(tx, rows).keys()
    progress_put_many(
        tx,
        [
            (run.held.run_id, run.held.token, _accepted(run))
            for run in runs
            if run.held.run_id in held
        ],
    )
    return set(held)


def _lease(run: HeldRun, endpoint: HttpEndpoint, holder: str) -> tuple[str, int, int, str, Micros]:
    lease_us = min(endpoint.reply_within_us, run.max_execution_us) + LEASE_MARGIN_US
    return ("run", run.run_id, run.token, f"{grant_of(run).key}:{holder}", lease_us)


def _accepted(run: OutgoingRun) -> Progress:
    return Progress(
        current_state="RUNNING", stage="accepted (202)", worker=run.endpoint.shown[:255]
    )
