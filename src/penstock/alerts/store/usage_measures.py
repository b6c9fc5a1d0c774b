"""Measurements of usage: implausible executions, budgets."""

from __future__ import annotations

from typing import Any, Final

from penstock.alerts.measures import Measurement
from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.usage.budget import is_stop_due
from penstock.usage.profile import anomaly_text
from penstock.usage.rows import AnomalyRow
from penstock.usage.scaling import desired_workers
from penstock.usage.store import anomaly_list, budget_list, pool_load

BOUND: Final = 2_000
POOLS_MAX: Final = 1_000


def measure_usage(tx: Tx, now: Micros) -> list[Measurement]:
    """Measure implausible executions by processor, and budgets."""
    return [*_anomalies(tx), *_budgets(tx, now), *_pools(tx)]


def _pools(tx: Tx) -> list[Measurement]:
    return [
        Measurement(
            metric="desired_workers", value=float(desired_workers(load)), subject_kind="pool",
            name=name, key=name, facts={"workers": load.workers, "ready": load.ready},
        )
        for name, load in pool_load(tx, None, POOLS_MAX)
    ]  # fmt: skip


def _anomalies(tx: Tx) -> list[Measurement]:
    rows = anomaly_list(
        tx, customer=None, pipeline=None, measure=None, only_open=True, after=None, n=BOUND
    )
    groups: dict[tuple[str, str, str, str], list[AnomalyRow]] = {}
    for row in rows:
        is_empty = row.measure == "records" and row.value == 0
        metric = "empty_executions" if is_empty else "anomalous_executions"
        groups.setdefault((metric, row.pipeline, row.phase, row.processor), []).append(row)
    found = []
    for (metric, pipeline, phase, processor), seen in sorted(groups.items()):
        newest = seen[0]
        facts = {
            "text": anomaly_text(newest), "measure": newest.measure, "value_seen": newest.value,
            "low": newest.low, "high": newest.high, "median": newest.median,
            "samples": newest.samples, "customer": newest.customer,
        }  # fmt: skip
        found.append(
            Measurement(
                metric=metric, value=float(len(seen)), subject_kind="processor",
                name=f"{pipeline}/{processor}", pipeline=pipeline,
                key=f"{pipeline}/{phase}/{processor}", facts=facts,
            )
        )  # fmt: skip
    return found


def _budgets(tx: Tx, now: Micros) -> list[Measurement]:
    found = []
    for row in budget_list(tx):
        customer = CustomerKey(row.subject) if row.scope == "customer" else None
        common: dict[str, Any] = {
            "subject_kind": row.scope, "subject": row.subject, "name": f"{row.scope} {row.name}",
            "customer_key": customer, "key": row.period,
            "pipeline": row.name if row.scope == "pipeline" else None,
            "facts": {
                "used": f"{row.used:,.2f}", "amount": f"{row.amount:,.2f}", "period": row.period,
                "scope": row.scope, "owner": row.name,
            },
        }  # fmt: skip
        if row.stopped_at is not None:
            found.append(Measurement(metric="budget_stops", value=1.0, **common))
        elif row.used >= row.amount * row.warn_percent / 100 and (
            row.used < row.amount or is_stop_due(row.used, row.amount, row.lifted_until, now)
        ):
            used = 100 * row.used / row.amount
            found.append(Measurement(metric="budget_used_percent", value=used, **common))
    return found
