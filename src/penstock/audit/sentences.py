"""Journal entries as sentences; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.audit.rows import ListedEntry

RUN_ENDS: Final = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "TIMEOUT": "timed out",
    "CANCELLED": "was cancelled",
    "EXPIRED": "expired before it started",
}


def sentence_of(entry: ListedEntry, detail: Mapping[str, Any], name: tuple[str, str] | None) -> str:
    """Return an entry as a sentence; `name` is the pipeline and the processor of a run."""
    if entry.kind == "run":
        return _run(entry, name)
    if entry.kind == "flow":
        return _flow(entry, detail)
    words = entry.action.replace("_", " ")
    return _because(f"{entry.kind.replace('_', ' ')} {words}", entry.why)


def _run(entry: ListedEntry, name: tuple[str, str] | None) -> str:
    what = "A run" if name is None else name[1]
    owner = f" of {entry.customer_id}" if entry.customer_id else ""
    if entry.action == "created":
        return f"{what}{owner} was created"
    if entry.action == "ended":
        end = RUN_ENDS.get(entry.to_state or "", "ended")
        return _because(f"{what}{owner} {end}", entry.why)
    return _because(f"{what}{owner}: {entry.action.replace('_', ' ')}", entry.why)


def _flow(entry: ListedEntry, detail: Mapping[str, Any]) -> str:
    where = " ".join(
        str(detail[key]) for key in ("pipeline_template", "partition", "mode") if detail.get(key)
    )
    what = f"Flow {where}".strip()
    phase = str(detail.get("phase") or "")
    if entry.action == "opened":
        return f"{what} was opened"
    if entry.action == "ended":
        return f"{what} ended: {(entry.to_state or '').lower()}"
    if entry.action == "phase_ended":
        return f"{phase} of {where} ended: {(entry.to_state or '').lower()}"
    if entry.action == "triggered":
        return _because(f"{phase} of {where} started", entry.why)
    if entry.action == "decided":
        verdict = {"WAITING": "waits", "BLOCKED": "is blocked"}.get(entry.to_state or "", "decided")
        return _because(f"The gate of {phase} of {where} {verdict}", entry.why)
    words = entry.action.replace("_", " ")
    return _because(f"{what}{f' {phase}' if phase else ''}: {words}", entry.why)


def _because(text: str, why: str | None) -> str:
    return f"{text}: {why}" if why else text
