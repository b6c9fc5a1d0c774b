"""Late data: a processor completed after the next phase had started without its result.

Pure rules over a `FlowSnapshot`: which phases to restart. `flow_rerun` decides whether and in which
generation, because the newest generation handles the late data of all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.flows.advance.snapshot import FlowSnapshot, Wakeup
from penstock.flows.cascade import CompletionStatus, FlowState, phases_to_rerun


class LateData(NamedTuple):
    """Late data of a flow: the phases that reported it, and the phases to restart."""

    snapshot: FlowSnapshot
    sources: tuple[str, ...]
    starts: tuple[str, ...]


def find_late_data(snapshot: FlowSnapshot, wakeup: Wakeup) -> LateData | None:
    """Return the late data among the reported phases, or None; a cancelled flow has none."""
    if snapshot.flow.state == FlowState.CANCELLED:
        return None
    if not any(row.is_degraded for row in snapshot.rows.values()):
        return None
    plan, known = snapshot.planned.plan, snapshot.all_progress()
    found: dict[str, list[str]] = {}
    for source in sorted(wakeup.phases):
        if not plan.has_phase(source):
            continue
        late = [n for n in phases_to_rerun(plan, source, known, 0) if _is_late(snapshot, source, n)]
        if late:
            found[source] = late
    if not found:
        return None
    wanted = {name for late in found.values() for name in late}
    behind = {later for name in wanted for later in plan.downstream(name)}
    starts = tuple(phase.name for phase in plan.phases if phase.name in wanted - behind)
    return LateData(snapshot, tuple(found), starts)


def _is_late(snapshot: FlowSnapshot, source: str, phase: str) -> bool:
    """Whether a processor completed that was missing when the phase started."""
    missing = snapshot.row(phase).gate_context.get("missing", ())
    return any(
        seen.processor in missing and seen.status != CompletionStatus.FAILED
        for seen in snapshot.completions_of([source])
    )
