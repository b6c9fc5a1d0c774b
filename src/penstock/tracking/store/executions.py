"""Reads of the execution log: every source by index, newest first, merged into one page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.tracking.rows import AlertOfExecution, ExecutionRow, Position, TracedIds

_KINDS: Final = ("run", "report", "evaluation", "delivery", "attempt")
"""Order of the kinds of rows that ended at the same time; later kinds are listed first."""
ENTITIES_MAX: Final = 100
"""Maximum number of changed entities of each kind that an execution lists."""
ENTITIES_READ_MAX: Final = 10_000
_IN_FLOWS: Final = ("execution_list_logged", "execution_list_evaluated")
_ACTIONS: Final = ("submit", "trigger", "publish")
_SUBJECTS: Final = ("run", "flow", "config", "subscription")
_Source: TypeAlias = tuple[str, dict[str, object], tuple[str, ...]]
"""Statement, its keys and the kinds of its rows."""


def executions_of(
    tx: Tx,
    ids: TracedIds,
    customer_key: CustomerKey | None,
    *,
    after: Position | None = None,
    limit: int = 100,
) -> list[ExecutionRow]:
    """Return the executions that one cause led to, newest first."""
    return _merged(tx, _sources(ids), customer_key, after or Position(), limit)


def executions_outside(
    tx: Tx, ids: TracedIds, customer_key: CustomerKey | None, *, gone: set[int], limit: int
) -> list[ExecutionRow]:
    """Return the single runs and deliveries that one cause led to, newest first.

    gone: flows that are no longer stored, whose runs and reports are included.
    """
    wanted = [one for one in _sources(ids) if gone or one[0] not in _IN_FLOWS]
    rows = _merged(tx, wanted, customer_key, Position(), limit)
    return [
        row
        for row in rows
        if row.flow_id is None or (row.flow_id in gone and row.kind in ("run", "report"))
    ]


def _sources(ids: TracedIds) -> list[_Source]:
    """Return the statements that list the executions that one cause led to."""
    gates = [*ids.flows, *(-run for run in (*ids.live_runs, *ids.ended_runs))]
    return [
        ("execution_list_logged", {"correlations": list(ids.correlations)}, ("run", "report")),
        ("execution_list_ended", {"correlations": list(ids.correlations)}, ("run",)),
        ("execution_list_runs", {"runs": list(ids.ended_runs)}, ("run",)),
        ("execution_list_evaluated", {"flows": gates}, ("evaluation",)),
        ("execution_list_settled", {"messages": list(ids.messages)}, ("delivery",)),
        ("execution_list_failed", {"messages": list(ids.messages)}, ("attempt",)),
    ]


def _merged(
    tx: Tx,
    sources: Sequence[_Source],
    customer_key: CustomerKey | None,
    position: Position,
    limit: int,
) -> list[ExecutionRow]:
    """Read the next rows of every source and return the newest of them."""
    pending = [
        tx.later(
            name,
            {
                **keys,
                "customer": customer_key,
                "before_at": position.ended_at,
                "before_number": _bound(position, kinds),
                "limit": limit + 1,
            },
        )
        for name, keys, kinds in sources
        if any(keys.values())
    ]
    found = {
        (row[0], row[1]): ExecutionRow._make(row) for result in pending for row in result.rows()
    }
    rows = [row for row in found.values() if _rank(row) < _position_rank(position)]
    return sorted(rows, key=_rank, reverse=True)[:limit]


def position_of(row: ExecutionRow) -> Position:
    """Return where the page after a row begins."""
    return Position(row.ended_at, row.kind, row.number)


def run_causes(tx: Tx, made: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the runs that created runs, flows and messages: (kind of action, subject) to run."""
    rows = tx.rows("execution_causes", _by_kind(made, _ACTIONS)) if made else []
    return {(row[0], row[1]): row[2] for row in rows}


def entities_of(tx: Tx, rows: Sequence[ExecutionRow]) -> dict[int, dict[str, list[str | int]]]:
    """Return the changed entities of executions by kind, at most `ENTITIES_MAX` of each kind.

    The result is keyed by execution number.
    """
    reports = {(row.flow_id, row.processor): row.number for row in rows if row.kind == "report"}
    params = {
        "runs": [row.number for row in rows if row.kind == "run" and row.entities is not None],
        "flows": sorted({flow_id for flow_id, _ in reports if flow_id is not None}),
        "limit": ENTITIES_READ_MAX,
    }
    found: dict[int, dict[str, list[str | int]]] = {}
    if not params["runs"] and not reports:
        return found
    for run_id, flow_id, processor, kind, entity, is_number in tx.rows(
        "execution_entities", params
    ):
        number = reports.get((flow_id, processor)) if run_id is None else run_id
        if number is not None:
            ids = found.setdefault(number, {}).setdefault(kind, [])
            if len(ids) < ENTITIES_MAX:
                ids.append(int(entity) if is_number else entity)
    return found


def alerts_about(tx: Tx, subjects: Sequence[tuple[str, int]]) -> list[AlertOfExecution]:
    """Return alerts about subjects (kind, id), oldest first."""
    rows = tx.rows("execution_alerts", _by_kind(subjects, _SUBJECTS)) if subjects else []
    return [AlertOfExecution._make(row) for row in rows]


def _by_kind(pairs: Sequence[tuple[str, int]], kinds: Sequence[str]) -> dict[str, list[int]]:
    return {kind: sorted({number for one, number in pairs if one == kind}) for kind in kinds}


def _rank(row: ExecutionRow) -> tuple[int, int, int]:
    return row.ended_at, _KINDS.index(row.kind), row.number


def _position_rank(position: Position) -> tuple[int, int, int]:
    kind = _KINDS.index(position.kind) if position.kind else len(_KINDS)
    return position.ended_at, kind, position.number


def _bound(position: Position, kinds: tuple[str, ...]) -> int:
    """Return the largest number of a row that ended at the position and still follows it."""
    if not position.kind:
        return position.number
    at = _KINDS.index(position.kind)
    return position.number if position.kind in kinds else 2**62 * (_KINDS.index(kinds[0]) < at)
