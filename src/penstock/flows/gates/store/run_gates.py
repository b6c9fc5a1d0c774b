"""Gates of single runs: opened with the run, leased for a probe, decided under their token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.audit.rows import Entry
from penstock.audit.store.alerts import alert_resolve
from penstock.audit.store.journal import journal_append_many
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx, first
from penstock.flows.cascade import flow_deadline
from penstock.flows.gates.override import Override
from penstock.flows.gates.rows import OverrideRow
from penstock.flows.gates.verdict import Verdict
from penstock.flows.store.plans import definition_get, planned
from penstock.pipelines.plan import mode_and_partition
from penstock.runs.rows import NewRun
from penstock.schedules.store.configs import Change, audit_append


class RunGateRow(NamedTuple):
    """The gate of a run that waits for it (SQL fragment `run_gate_columns`)."""

    run_id: int
    token: int
    customer_key: CustomerKey
    customer_id: str
    pipeline_key: PipelineKey
    pipeline: str
    digest: str
    phase: str
    processor: str
    partition: str
    mode: str
    source: str
    correlation_id: str | None
    opened_at: int
    deadline_at: int
    waiting_since: int | None
    tries: int
    verdict: str | None
    status: str | None
    reason: str | None
    probe_at: int | None
    ordering_key: str | None
    message_id: str | None
    parameters: str | None
    """The run's parameters, else those of its config (JSON)."""


class RunGateDecision(NamedTuple):
    """The decision of a run's gate (batch of `run_gate_decide_many`)."""

    run_id: int
    probe_at: int | None
    waiting_since: int | None
    tries: int
    verdict: str
    status: str
    reason: str
    context: str | None


class _Declared(NamedTuple):
    processor_key: int
    pipeline_key: PipelineKey
    digest: str
    phase: str
    name: str


def gates_resolve(tx: Tx, runs: Sequence[NewRun]) -> list[NewRun]:
    """Return runs with the mode and the partition of their gates."""
    declared, now = _declared(tx, runs), tx.now()
    made = []
    for run in runs:
        found = declared[run.processor_key]
        definition = definition_get(tx, found.pipeline_key, found.digest)
        at = now if run.scheduled_time is None else run.scheduled_time
        mode, partition = mode_and_partition(
            definition, at, mode=run.mode, source=run.trigger_source
        )
        made.append(run._replace(mode=mode, partition=run.partition or partition))
    return made


def gates_open(tx: Tx, made: Sequence[tuple[int, NewRun]]) -> None:
    """Open the gates of runs; a gate is first evaluated when its run is due."""
    declared, now = _declared(tx, [run for _, run in made]), tx.now()
    rows = []
    for run_id, run in made:
        found = declared[run.processor_key]
        assert run.mode is not None
        due = max(now, run.scheduled_time or 0)
        plan = planned(tx, found.pipeline_key, found.digest, run.mode)
        rows.append(
            (
                run_id, run.customer_key, found.pipeline_key, found.phase, found.name,
                run.partition, run.mode, run.trigger_source, run.correlation_id,
                flow_deadline(plan.mode, due), due,
            )
        )  # fmt: skip
    tx.run("run_gate_put_many", batch=rows)


def gates_forced(tx: Tx, made: Sequence[tuple[int, NewRun]], actor: str, reason: str) -> None:
    """Record that runs bypass their gates."""
    journal_append_many(
        tx,
        [
            Entry("run", run_id, run.customer_key, "gate_forced", actor, why=reason or None)
            for run_id, run in made
        ],
    )
    audit_append(
        tx,
        [
            Change(run.customer_key, "GATE_FORCED", None, actor, reason, None,
                   {"run_id": encode("run", run_id), "partition": run.partition})
            for run_id, run in made
        ],
    )  # fmt: skip


def gate_alert_close(tx: Tx, run_id: int, new_run_id: int, actor: str) -> None:
    """Resolve the alert of a run that failed at its gate: another run takes its place."""
    assert new_run_id != run_id
    for verdict in Verdict:
        alert_resolve(tx, run_gate_alert_key(run_id, verdict), actor)


def run_gate_alert_key(run_id: int, verdict: Verdict) -> str:
    """Return the dedupe key of the alert about a run's gate."""
    return f"run_gate:{run_id}:{verdict.lower()}"


def run_gate_lease(tx: Tx, n: int, lease_us: int) -> list[int]:
    """Lease due gates. Return their runs."""
    return [row[0] for row in tx.rows("run_gate_lease", {"n": n, "lease_us": lease_us})]


def run_gate_rows(tx: Tx, ids: Sequence[int]) -> list[RunGateRow]:
    """Lock gates whose runs still wait; the gates of all other runs are closed."""
    rows = [RunGateRow._make(row) for row in tx.rows("run_gate_rows", {"ids": sorted(ids)})]
    gone = sorted(set(ids) - {row.run_id for row in rows})
    if gone:
        tx.run("run_gate_drop_many", {"ids": gone})
    return rows


def run_gate_get(tx: Tx, run_id: int) -> RunGateRow | None:
    """Return the gate that a run waits for."""
    row = first(tx.rows("run_gate_get", {"run_id": run_id}))
    return None if row is None else RunGateRow._make(row)


def run_gate_decide_many(tx: Tx, decisions: Sequence[RunGateDecision]) -> None:
    """Store decisions of gates."""
    tx.run("run_gate_decide_many", batch=decisions)


def run_gate_overrides(tx: Tx, ids: Sequence[int]) -> dict[int, tuple[Override, ...]]:
    """Return overrides in force, by run."""
    found: dict[int, tuple[Override, ...]] = {}
    for row in tx.rows("run_gate_overrides", {"ids": sorted(ids)}):
        found[row[0]] = (*found.get(row[0], ()), OverrideRow._make(row[1:]).record)
    return found


def run_gates_ask_again(
    tx: Tx, customer_key: CustomerKey, pipeline_key: PipelineKey, partition: str
) -> None:
    """Evaluate the gates of single runs of a partition again."""
    params = {"customer": customer_key, "run_id": None, "pipeline": pipeline_key,
              "partition": partition}  # fmt: skip
    tx.run("run_gate_ask_again", params)


def run_gate_ask_again(tx: Tx, customer_key: CustomerKey, run_id: int) -> None:
    """Evaluate the gate of one run again."""
    params = {"customer": customer_key, "run_id": run_id, "pipeline": None, "partition": None}
    tx.run("run_gate_ask_again", params)


def _declared(tx: Tx, runs: Sequence[NewRun]) -> dict[int, _Declared]:
    ids = sorted({run.processor_key for run in runs})
    rows = tx.rows("run_gate_processors", {"ids": ids})
    return {row[0]: _Declared(*row) for row in rows}
