"""Reads of exports."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.naming import CustomerKey
from penstock.db.store import Row, Tx
from penstock.monitoring.exports.columns import ExportKind

_FIRST: Final[dict[str, Any]] = {"journal": "0 0", "executions": -(2**62)}
"""The position before the first row; external executions have ids below zero."""


def export_rows(
    tx: Tx,
    kind: ExportKind,
    span: tuple[int, int],
    customer_key: CustomerKey | None,
    *,
    after: Any,
    limit: int,
) -> list[Row]:
    """Return rows of an export after a position, which is the last column of each."""
    params = {
        "since": span[0],
        "until": span[1],
        "customer": customer_key,
        "after": _FIRST.get(kind, 0) if after is None else after,
        "limit": limit,
    }
    match kind:
        case "runs":
            return tx.rows("export_runs", params)
        case "flows":
            return tx.rows("export_flows", params)
        case "journal":
            return tx.rows("export_journal", params)
        case "executions":
            return tx.rows("export_executions", params)
