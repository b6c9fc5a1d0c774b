"""Expiry: runs that were not started in time are ended, with one alert for each pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.access.store.registry import processor_list
from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_count, alert_open
from penstock.db.store import Tx
from penstock.runs import attempt_result
from penstock.runs.rows import HeldRun
from penstock.runs.store.finish import run_end_many

RULE = "runs_expired"


def run_expired(tx: Tx, n: int) -> list[int]:
    """Return runs that were not started in time, locked; at most `n`, earliest due first."""
    return [row[0] for row in tx.rows("run_expired", {"n": n})]


def run_expire_many(tx: Tx, ids: Sequence[int]) -> int:
    """End runs that `run_expired` returned, and count them in the alert of their pipeline."""
    if not ids:
        return 0
    rows = tx.rows("run_expire_many", {"ids": list(ids)})
    held = [(HeldRun._make(row[:-1]), row[-1]) for row in rows]
    ended = run_end_many(tx, [attempt_result.expired(run, waited_us=us) for run, us in held])
    pipelines = {row.processor_key: (row.pipeline_key, row.pipeline) for row in processor_list(tx)}
    counts = Counter(pipelines[run.processor_key] for run in ended)
    for (pipeline_key, pipeline), n in sorted(counts.items()):
        key = f"{RULE}:{pipeline_key}"
        total = alert_count(tx, key) + n
        runs = "1 run" if total == 1 else f"{total:,} runs"
        alert_open(
            tx,
            NewAlert(
                rule=RULE,
                dedupe_key=key,
                severity="HIGH",
                subject_kind="pipeline",
                subject=pipeline_key,
                pipeline=pipeline,
                message=f"{runs} of pipeline {pipeline} expired before they were started: "
                f"penstock runs list --pipeline {pipeline} --state EXPIRED",
                detail={
                    "pipeline": pipeline,
                    "count": total,
                    "fix": f"penstock runs list --pipeline {pipeline} --state EXPIRED",
                },
            ),
        )
    return len(ended)
