"""The columns of exports: their names and the formats of their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from penstock.core.clock import SECOND, shown_datetime
from penstock.core.ids import encode

ExportKind = Literal["runs", "flows", "journal", "executions"]

_T, _B, _N, _S = "time", "boolean", "integer", "text"
_D, _F = "duration", "number"

COLUMNS: Final[dict[ExportKind, tuple[tuple[str, str], ...]]] = {
    "runs": (
        ("run_id", "run"), ("customer_id", _S), ("pipeline", _S), ("processor", _S),
        ("config_id", "cfg"), ("flow_id", "flow"), ("partition", _S), ("mode", _S),
        ("scheduled_time", _T), ("created_at", _T), ("started_at", _T), ("finished_at", _T),
        ("duration_seconds", _D), ("final_state", _S), ("status", _S), ("attempt", _N),
        ("is_dead", _B), ("records", _N), ("bytes", _N), ("cost", _F), ("error_type", _S),
        ("sla_met", _B), ("trigger_source", _S), ("correlation_id", _S),
    ),
    "flows": (
        ("flow_id", "flow"), ("customer_id", _S), ("pipeline", _S), ("config_id", "cfg"),
        ("partition", _S), ("mode", _S), ("generation", _N), ("state", _S), ("is_degraded", _B),
        ("trigger_source", _S), ("opened_by", _S), ("created_at", _T), ("ended_at", _T),
        ("deadline_at", _T), ("correlation_id", _S),
    ),
    "journal": (
        ("seq", _N), ("at", _T), ("kind", _S), ("subject", "subject"), ("customer_id", _S),
        ("action", _S), ("actor", _S), ("from_state", _S), ("to_state", _S), ("why", _S),
        ("detail", _S),
    ),
    "executions": (
        ("execution_id", _N), ("source_execution_id", _N), ("correlation_id", _S),
        ("customer_id", _S), ("pipeline", _S), ("flow_id", "flow"), ("phase", _S),
        ("processor", _S), ("event_type", _S), ("partition", _S), ("mode", _S), ("status", _S),
        ("started_at", _T), ("completed_at", _T), ("duration_seconds", _D),
        ("error_type", _S), ("error_message", _S), ("retry_count", _N), ("records_processed", _N),
        ("trigger_source", _S), ("service", _S), ("revision", _S),
    ),
}  # fmt: skip
"""Format of each column, in the order of the statement."""
_KINDS: Final = frozenset({"run", "flow"})


def names_of(kind: ExportKind) -> list[str]:
    """Return the names of the columns of an export."""
    return [name for name, _ in COLUMNS[kind]]


def shown_row(kind: ExportKind, values: Sequence[Any]) -> list[Any]:
    """Return stored values as an export shows them: public ids, ISO times, plain values."""
    forms = [form for _, form in COLUMNS[kind]]
    row = [_shown(form, value) for form, value in zip(forms, values, strict=True)]
    if kind == "journal" and values[2] in _KINDS:
        row[3] = encode(values[2], values[3])
    return row


def _shown(form: str, value: Any) -> Any:
    if value is None or form in ("integer", "number", "text"):
        return value
    if form == "time":
        return shown_datetime(value).isoformat().replace("+00:00", "Z") if value else None
    if form == "duration":
        return value / SECOND
    if form == "boolean":
        return bool(value)
    if form == "subject":
        return str(value)
    return encode(form, value) if value > 0 else None
