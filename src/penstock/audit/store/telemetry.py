"""Events about the changes of a transaction, emitted once it is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.audit.telemetry import Event, Events
from penstock.db.store import Tx


def emit_after_commit(tx: Tx, kind: type[Event], make: Callable[[], Iterable[Event]]) -> None:
    """Emit the events of a transaction after its commit; they are built only if they have
    subscribers.

    kind: type of the events; if there are several types, any one of them.
    """
    events = tx.events
    if not isinstance(events, Events) or not events.wants(kind):
        return

    def emit() -> None:
        for event in make():
            events.emit(event)

    tx.after_commit(emit)
