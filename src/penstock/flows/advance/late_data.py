"""Late data: somebody completed after what follows had started without them.

Rules over a `Book`, no store: which phases of a flow are to be started anew. Whether they are, and
in which generation, is `opening.flow_rerun`'s to say, because the newest generation answers for
what comes late for any of them.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.flows.advance.snapshot import Book, Stir
from penstock.flows.cascade import Completion, FlowState, Progress, late_start


class Late(NamedTuple):
    """Late data of a flow: the phases that reported it, and those to be started anew."""

    book: Book
    sources: tuple[str, ...]
    starts: tuple[str, ...]


def late_data(book: Book, stir: Stir) -> Late | None:
    """What came late with this stir, for all of the flow at once; a cancelled flow wants none."""
    if book.flow.state == FlowState.CANCELLED:
        return None
    plan = book.planned.plan
    known: dict[str, Progress] | None = None
    found: dict[str, list[str]] = {}
    for source in sorted(stir.phases):
        if all(phase.name != source for phase in plan.phases):
            continue
        known = book.known() if known is None else known
        late = [n for n in late_start(plan, source, known, 0) if _is_late(book, source, n)]
        if late:
            found[source] = late
    if not found:
        return None
    wanted = {name for late in found.values() for name in late}
    behind = {later for name in wanted for later in plan.downstream(name)}
    starts = tuple(phase.name for phase in plan.phases if phase.name in wanted - behind)
    return Late(book, tuple(found), starts)


def _is_late(book: Book, source: str, phase: str) -> bool:
    """Whether somebody completed whom the phase was told it starts without."""
    missing = book.row(phase).told.get("missing", ())
    return any(
        seen.processor in missing and seen.status != Completion.FAILED
        for seen in book.seen_of([source])
    )
