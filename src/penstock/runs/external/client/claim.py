"""Claims by external workers: the processors that a worker serves, the claim and its leases.

External workers receive only runs of processors declared external; built-in workers execute the
rest. A claim takes runs in the order of level, fair rank and age, and advances the fair clock at
most ten times a second, as built-in workers do.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Final

from penstock.access.store.names import NameResolver, check_limit
from penstock.access.store.registry import ProcessorRow
from penstock.core.clock import SECOND
from penstock.core.errors import Conflict, IllegalTransition, InvalidInput, NotFound, NotHolder
from penstock.core.fields import check_text
from penstock.core.ids import encode
from penstock.core.naming import EXTERNAL_POOL, CustomerKey
from penstock.db.store import Tx
from penstock.entities.store import changed_of
from penstock.pipelines.declare.incremental import RECEIVES
from penstock.runs.external.client.holder import Claimed, ExternalWorker
from penstock.runs.external.store import external_run_get_many, run_find_many
from penstock.runs.rows import HeldRun, RunRow
from penstock.runs.states import Admission, RunState
from penstock.runs.store.leases import lease_take_many
from penstock.runs.store.runs import Claim, fair_clock_raise, run_claim, run_claim_by_id

LEASE_S: Final = 300
LEASE_SECONDS_MIN: Final = 10
LEASE_SECONDS_MAX: Final = 3600
CLAIMS_MAX: Final = 1000
FAIR_CLOCK_US: Final = SECOND // 10

_WAITING: Final = {
    Admission.LATER: "it is not due yet",
    Admission.PAUSED: "it is paused",
    Admission.BLOCKED: "another run with the same ordering key is ahead of it",
    Admission.LIMITED: "it waits for a limit",
    Admission.GATED: "it waits for the gate of its processor",
    Admission.SUSPENDED: "it waits for a flow that it triggered",
}


class Claims:
    """Claims by external workers on one store."""

    def __init__(self, names: NameResolver) -> None:
        self._names = names

    def prepare(
        self,
        worker: ExternalWorker,
        n: int,
        lease_seconds: float,
        pool: str,
        processors: Sequence[str],
    ) -> Callable[[Tx, str | None], list[Claimed]]:
        """Validate a claim and return the function that executes it in a transaction.

        The function claims runs of one customer, or of all customers if it is called with None.
        """
        check_limit(n, "max_claims", CLAIMS_MAX)
        lease_us = _lease_us(lease_seconds)
        name = _check_worker(worker)
        served = self._served(pool, processors)
        numbers = sorted(served)

        def take(tx: Tx, customer: str | None) -> list[Claimed]:
            try:
                number = self._names.customer_key(tx, customer)
            except NotFound:  # no run was ever submitted for this customer
                return []
            if not numbers:
                return []
            claim = Claim(
                pool_key=served[numbers[0]].pool_key,
                processors=numbers,
                n=n,
                claimed_by=name,
                customer_key=number,
            )
            return self._lease(tx, worker, lease_us, run_claim(tx, claim), served)

        return take

    def prepare_by_id(
        self, worker: ExternalWorker, run_id: int, lease_seconds: float
    ) -> Callable[[Tx, str | None], Claimed]:
        """Validate the claim of one run and return the function that executes it."""
        lease_us = _lease_us(lease_seconds)
        name = _check_worker(worker)
        known = self._external()

        def take(tx: Tx, customer: str | None) -> Claimed:
            number = self._names.customer_key(tx, customer)
            held = run_claim_by_id(tx, run_id, name, customer_key=number)
            if held is None:
                return self._existing(tx, worker, run_id, number, known)
            if held.processor_key not in known:
                shown = encode("run", run_id)
                raise Conflict(f"run {shown} is executed by built-in workers only.")
            return self._lease(tx, worker, lease_us, [held], known)[0]

        return take

    def _lease(
        self,
        tx: Tx,
        worker: ExternalWorker,
        lease_us: int,
        runs: Sequence[HeldRun],
        known: dict[int, ProcessorRow],
    ) -> list[Claimed]:
        """Insert a lease row for each claimed run."""
        if not runs:
            return []
        until = lease_take_many(
            tx, [("run", run.run_id, run.token, worker.holder, lease_us) for run in runs]
        )
        at = runs[0].claimed_at
        assert at is not None
        if self._names.is_fair_clock_due(at, FAIR_CLOCK_US):
            fair_clock_raise(tx, runs)
        return _claimed_many(tx, [(run, until[run.run_id]) for run in runs], known)

    def _existing(
        self,
        tx: Tx,
        worker: ExternalWorker,
        run_id: int,
        customer_key: CustomerKey | None,
        known: dict[int, ProcessorRow],
    ) -> Claimed:
        """Return this worker's existing claim, or raise the reason it cannot claim the run."""
        found = external_run_get_many(tx, [run_id], customer_key).get(run_id)
        is_ours = found is not None and found.holder == worker.holder
        if found is not None and is_ours and found.held.state == RunState.CLAIMED:
            return _claimed_many(tx, [(found.held, found.until_at)], known)[0]
        raise _unclaimable(run_id, run_find_many(tx, [run_id], customer_key).get(run_id))

    def _served(self, pool: str, processors: Sequence[str]) -> dict[int, ProcessorRow]:
        """Return the external processors that a claim covers, by processor key."""
        every = self._external()
        rows = {number: row for number, row in every.items() if row.pool == pool}
        if not rows and pool != EXTERNAL_POOL:
            pools = sorted({row.pool for row in every.values()})
            raise InvalidInput("pool", f"a pool of external processors ({', '.join(pools)})", pool)
        if not processors:
            return rows
        wanted = set(processors)
        known = {name for row in rows.values() for name in (row.pipeline, _path(row))}
        for name in processors:
            if name not in known:
                near = difflib.get_close_matches(str(name), sorted(known), n=1)
                fix = f"Did you mean {near[0]!r}?" if near else None
                expected = f"an external pipeline or pipeline/phase/processor of pool {pool}"
                raise InvalidInput("processors", expected, name, fix)
        return {n: row for n, row in rows.items() if wanted & {row.pipeline, _path(row)}}

    def _external(self) -> dict[int, ProcessorRow]:
        return {
            row.processor_key: row
            for info in self._names.cached_pipelines().values()
            for row in info.processors
            if info.is_external(row)
        }


def _claimed_many(
    tx: Tx, runs: Sequence[tuple[HeldRun, int]], known: dict[int, ProcessorRow]
) -> list[Claimed]:
    """Return claimed runs; those of incremental processors include their input."""
    keys = {
        run.run_id: (run.flow_id or 0, int(run.processor_key))
        for run, _ in runs
        if known[run.processor_key].entity_role & RECEIVES
    }
    changed = changed_of(tx, keys.values())
    found = []
    for run, until_at in runs:
        row, key = known[run.processor_key], keys.get(run.run_id)
        given = None if key is None else changed[key]
        found.append(Claimed(run, until_at, row.pipeline, row.phase, row.name, given))
    return found


def _unclaimable(run_id: int, run: RunRow | None) -> Exception:
    shown = encode("run", run_id)
    if run is None:
        return NotFound("run", shown)
    if run.finished_at is not None:
        return IllegalTransition("run", shown, run.state, RunState.CLAIMED)
    if run.state != RunState.PENDING:
        return NotHolder(shown)
    assert run.admission is not None
    why = _WAITING.get(Admission(run.admission), "another worker is claiming it")
    return Conflict(f"run {shown} cannot be claimed now: {why}.")


def _check_worker(worker: ExternalWorker) -> str:
    check_text("worker_id", worker.name)
    assert worker.name is not None
    assert ":" not in worker.key, worker.key
    return worker.name


def _lease_us(seconds: float) -> int:
    low, high = LEASE_SECONDS_MIN, LEASE_SECONDS_MAX
    if isinstance(seconds, bool) or not low <= seconds <= high:
        raise InvalidInput("claim_duration_seconds", f"{low} to {high}", seconds)
    return int(seconds * SECOND)


def _path(row: ProcessorRow) -> str:
    return f"{row.pipeline}/{row.phase}/{row.name}"
