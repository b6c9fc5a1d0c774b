"""Events about what a transaction changed, emitted once it is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.audit.telemetry import Event, Events
from penstock.db.store import Tx


def emit_after_commit(tx: Tx, kind: type[Event], make: Callable[[], Iterable[Event]]) -> None:
    """Emit facts of a transaction after its commit; they are made only if they have subscribers.

    kind: what they are; one of several kinds stands for all of them.
    """
    events = tx.events
    if not isinstance(events, Events) or not events.wants(kind):
        return

    def emit() -> None:
        for event in make():
            events.emit(event)

    tx.after_commit(emit)
