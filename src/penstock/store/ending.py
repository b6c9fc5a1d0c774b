"""End runs with everything that follows: completions, alerts, and disabling of failing configs.

Worker, sweeper and API all end runs through this module. Everything commits in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core import settle
from penstock.core.ids import encode
from penstock.core.model import Alert, Finish, Finished
from penstock.core.settle import FAILURES_ALERT, FAILURES_DISABLE
from penstock.core.states import RunState
from penstock.store.alerts import alert_open, alert_resolve
from penstock.store.api import Tx
from penstock.store.completions import completion_from_runs
from penstock.store.configs import (
    Change,
    audit_append,
    config_deactivate,
    config_get,
    config_lock,
)
from penstock.store.runs import (
    run_cancel_ask,
    run_cancel_pending,
    run_finish_many,
    run_held_get,
)
from penstock.store.schedule import schedule_retire


def run_end_many(tx: Tx, finishes: Sequence[Finish]) -> list[Finished]:
    """End runs whose token is current. Runs with a stale token are missing from the result."""
    finished = run_finish_many(tx, finishes)
    of_flows = [end for end in finished if end.flow_id is not None]
    if of_flows:
        completion_from_runs(tx, of_flows)
    for end in finished:
        if end.config_id is None:
            continue
        if end.is_dead and end.consecutive_failures >= FAILURES_DISABLE:
            _disable(tx, end.config_id, end.consecutive_failures)
        elif end.is_dead and end.consecutive_failures >= FAILURES_ALERT:
            _warn(tx, end.config_id, end.consecutive_failures)
    return finished


def run_cancel(tx: Tx, run_id: int, who: str, reason: str) -> None:
    """Cancel a pending run, or request cancellation from the holder of a running one."""
    held = run_held_get(tx, run_id)
    if held is None:
        return
    if held.state != RunState.PENDING:
        run_cancel_ask(tx, run_id, who, reason or None)
        return
    token = run_cancel_pending(tx, run_id)
    assert token is not None, "the row is locked"
    run_end_many(tx, [settle.cancelled(held._replace(token=token), actor=who, why=reason or None)])


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
        Alert(
            rule="config_failing",
            dedupe_key=failing_key(config_id),
            severity="MEDIUM",
            customer=config.customer,
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
        config.customer,
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
        Alert(
            rule="config_disabled",
            dedupe_key=disabled_key(config_id),
            severity="HIGH",
            customer=config.customer,
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
