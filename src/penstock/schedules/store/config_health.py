"""Health of configs: alerts and deactivation after consecutive failures."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open, alert_resolve
from penstock.core.clock import MINUTE
from penstock.core.ids import encode
from penstock.db.store import Tx
from penstock.runs.attempt_result import FAILURES_ALERT, FAILURES_DISABLE
from penstock.runs.rows import FinishedRun
from penstock.schedules.common_cause import (
    WINDOW_US,
    FailingGroup,
    cause_key,
    cause_message,
    is_common_cause,
)
from penstock.schedules.store.configs import (
    Change,
    audit_append,
    config_deactivate,
    config_get,
    config_lock,
)
from penstock.schedules.store.schedule import schedule_retire

CAUSE_REPEAT_US = MINUTE
"""How often an open alert about a common cause is updated."""


def config_health_update(tx: Tx, finished: Sequence[FinishedRun]) -> None:
    """Alert about configs that keep failing, and deactivate those that failed too often.

    Only starts by schedule or message count, each once; `run_finish_many` counts them.
    Configs that fail for a common reason are not deactivated: one alert names the cause.
    """
    failing = [
        (end, end.config_id)
        for end in finished
        if end.config_id is not None
        and end.is_failed_start
        and end.consecutive_failures >= FAILURES_ALERT
    ]
    if not failing:
        return
    common = _common_causes(tx, [end.run_id for end, _ in failing])
    for end, config_id in failing:
        if end.run_id in common:
            continue
        if end.consecutive_failures >= FAILURES_DISABLE:
            _disable(tx, config_id, end.consecutive_failures)
        else:
            _warn(tx, config_id, end.consecutive_failures)


def _common_causes(tx: Tx, run_ids: Sequence[int]) -> set[int]:
    """Alert about each common cause of dead runs; return the runs that have one."""
    params = {"window_us": WINDOW_US, "ids": list(run_ids)}
    found: set[int] = set()
    for row in tx.rows("common_causes", params):
        pipeline_key, runs, customer = int(row[0]), json.loads(row[1]), row[2]
        group = FailingGroup(row[3], row[4], row[5], row[6], int(row[7]), int(row[8]))
        if not is_common_cause(group):
            continue
        found.update(runs)
        key = cause_key(group)
        # A transaction bound to a customer cannot write a system alert.
        owner = None if tx.sees_all else customer
        if owner is not None:
            key = f"{key}:{owner}"
        if tx.rows("alert_is_fresh", {"dedupe_key": key, "within_us": CAUSE_REPEAT_US}):
            continue  # workers must not queue for one row
        alert_open(
            tx,
            NewAlert(
                rule="common_cause",
                dedupe_key=key,
                severity="HIGH",
                customer_key=owner,
                subject_kind="pipeline",
                subject=pipeline_key,
                pipeline=group.pipeline,
                message=cause_message(group),
                detail={
                    "pipeline": group.pipeline,
                    "processor": group.processor,
                    "error_type": group.error_type,
                    "warehouse": group.warehouse,
                    "configs": group.failing,
                    "fix": f"penstock dlq replay --pipeline {group.pipeline} "
                    f"--error {shlex.quote(group.error_type)} --dry-run",
                },
            ),
        )
    return found


def config_failures(tx: Tx, config_id: int) -> int:
    """Return the consecutive failures of a config; 0 when the config does not exist."""
    config = config_get(tx, config_id)
    return 0 if config is None else config.consecutive_failures


def failing_key(config_id: int) -> str:
    """Return the dedupe key of the alert about a config that keeps failing."""
    return f"config_failing:{config_id}"


def disabled_key(config_id: int) -> str:
    """Return the dedupe key of the alert about a config that was disabled."""
    return f"config_disabled:{config_id}"


def _warn(tx: Tx, config_id: int, failures: int) -> None:
    config = config_get(tx, config_id)
    assert config is not None, config_id
    if config.deleted_at is not None:
        return
    alert_open(
        tx,
        NewAlert(
            rule="config_failing",
            dedupe_key=failing_key(config_id),
            severity="MEDIUM",
            customer_key=config.customer_key,
            subject_kind="config",
            subject=config_id,
            message=f"{config.pipeline} of {config.customer_id} failed {failures} times in a row",
            detail={"consecutive_failures": failures, "config_id": encode("cfg", config_id)},
        ),
    )


def _disable(tx: Tx, config_id: int, failures: int) -> None:
    """Disable a config once, with an audit entry and a HIGH alert."""
    config_lock(tx, config_id)
    config = config_get(tx, config_id)
    assert config is not None, config_id
    if not config.is_active or config.deleted_at is not None:
        return
    reason = f"{failures} consecutive failures"
    schedule_retire(tx, config_id)
    config_deactivate(tx, config_id, reason)
    change = Change(
        config.customer_key,
        "DEACTIVATED",
        config_id,
        "penstock",
        reason,
        {"is_active": True},
        {"is_active": False, "inactive_reason": reason},
    )
    audit_append(tx, [change])
    alert_resolve(tx, failing_key(config_id), "penstock")
    alert_open(
        tx,
        NewAlert(
            rule="config_disabled",
            dedupe_key=disabled_key(config_id),
            severity="HIGH",
            customer_key=config.customer_key,
            subject_kind="config",
            subject=config_id,
            message=f"{config.pipeline} of {config.customer_id} was disabled after {reason}",
            detail={
                "consecutive_failures": failures,
                "config_id": encode("cfg", config_id),
                "fix": f"penstock configs enable {encode('cfg', config_id)}",
            },
        ),
    )
