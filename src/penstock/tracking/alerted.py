"""Matching of executions to the alerts that they opened. Pure.

An alert is one row while it is open, so an execution belongs to every alert that was opened, or
recurred, because of it. Attempts that are retried open none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.core.clock import SECOND
from penstock.tracking.rows import AlertOfExecution, ExecutionRow

AT_ONCE_US: Final = 5 * SECOND
"""Maximum time between the end of an execution and the opening of its alert."""
_GATE: Final = "gate_"


def subjects_of(rows: Iterable[ExecutionRow]) -> Iterator[tuple[str, int]]:
    """Yield the subjects of alerts about executions: (kind, id)."""
    for row in rows:
        if row.status == "completed" or row.was_retried:
            continue
        if row.kind == "attempt":
            if row.owner_id is not None:
                yield "subscription", row.owner_id
            continue
        if row.run_id is not None:
            yield "run", row.run_id
        if row.flow_id is not None and row.flow_id > 0:
            yield "flow", row.flow_id
        if row.kind == "run" and row.owner_id is not None:
            yield "config", row.owner_id


def alert_about(row: ExecutionRow, alerts: Iterable[AlertOfExecution]) -> str | None:
    """Return the rule of the first alert that was opened about an execution; None if none was."""
    wanted = set(subjects_of([row]))
    found = (a for a in alerts if (a.subject_kind, a.subject) in wanted and _fits(row, a))
    return next((alert.rule for alert in found), None)


def _fits(row: ExecutionRow, alert: AlertOfExecution) -> bool:
    if alert.last_at < row.ended_at:
        return False
    at_once = alert.opened_at <= row.ended_at + AT_ONCE_US
    if alert.subject_kind == "run":
        return True
    if alert.subject_kind != "flow":
        return at_once
    if alert.phase != row.phase or alert.processor not in (None, row.processor):
        return False
    is_gate = alert.rule.startswith(_GATE)
    return is_gate and at_once if row.kind == "evaluation" else not is_gate
