"""Events of the runs that a transaction ended, emitted once it is durable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.audit.telemetry import Events
from penstock.db.store import Tx
from penstock.runs.ended import emit_ends, wants_ends
from penstock.runs.rows import FinishedRun, HeldRun, RunEnd


def emit_ends_after_commit(
    tx: Tx, ends: Iterable[RunEnd], stored: Iterable[FinishedRun], held: Mapping[int, HeldRun]
) -> None:
    """After the commit, emit the ends that a transaction stored; `held` has the runs by id."""
    events = tx.events
    if not isinstance(events, Events) or not wants_ends(events):
        return

    def emit() -> None:
        found = {one.run_id: one for one in stored}
        known = [end for end in ends if end.run_id in found]
        emit_ends(
            events,
            known,
            [found[end.run_id] for end in known],
            [held.get(end.run_id) for end in known],
        )

    tx.after_commit(emit)
