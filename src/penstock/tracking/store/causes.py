"""Resolution of an id to everything that belongs to its cause, in a bounded number of reads.

A correlation id is followed directly. A run, a flow, a message, a dead letter or an external id of
a report or message leads to its correlation id, and a message also to the runs and flows that it
started.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.core.errors import NotFound
from penstock.core.ids import decode_or_none, encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first
from penstock.runs.store.runs import run_get
from penstock.tracking.rows import (
    MessageOfTrace,
    OpenDelivery,
    TracedDeadLetter,
    TracedIds,
)

IDS_MAX: Final = 200
"""Maximum number of flows, runs and messages of each kind that are followed."""
ROUNDS: Final = 3
"""Maximum depth at which new correlation ids are followed: a message, its run, and its messages."""
MESSAGE_MAX: Final = 2**63 - 1


@dataclass(slots=True)
class _Found:
    """Results so far; dicts keep the order."""

    correlations: dict[str, None] = field(default_factory=dict)
    flows: dict[int, None] = field(default_factory=dict)
    live_runs: dict[int, None] = field(default_factory=dict)
    ended_runs: dict[int, None] = field(default_factory=dict)
    messages: dict[int, None] = field(default_factory=dict)
    dead_letters: dict[int, None] = field(default_factory=dict)

    def add(self, kind: str, number: int) -> None:
        """Add an object by its kind."""
        kinds = {
            "flow": self.flows,
            "run": self.live_runs,
            "ended": self.ended_runs,
            "message": self.messages,
            "dead_letter": self.dead_letters,
        }
        if len(kinds[kind]) < IDS_MAX:
            kinds[kind][number] = None


def traced_ids(tx: Tx, cause: str, customer_key: CustomerKey | None) -> TracedIds:
    """Return everything that belongs to the cause of an id; raise NotFound if nothing does."""
    found = _Found()
    _start(tx, cause, customer_key, found)
    followed: set[str] = set()
    asked: set[int] = set()
    for _ in range(ROUNDS):
        new = [text for text in found.correlations if text not in followed]
        messages = [number for number in found.messages if number not in asked]
        if not new and not messages:
            break
        followed.update(new)
        asked.update(messages)
        if new:
            _follow_correlations(tx, new, customer_key, found)
        messages = [number for number in found.messages if number not in asked] + messages
        asked.update(messages)
        if messages:
            _follow_messages(tx, [str(number) for number in messages], customer_key, found)
    if not (
        found.flows or found.live_runs or found.ended_runs or found.messages or found.dead_letters
    ):
        raise NotFound("trace", cause)
    _add_dead_letters(tx, customer_key, found)
    return TracedIds(
        correlation_id=next(iter(found.correlations), cause),
        correlations=tuple(found.correlations),
        flows=tuple(sorted(found.flows)),
        live_runs=tuple(sorted(found.live_runs)),
        ended_runs=tuple(sorted(found.ended_runs)),
        messages=tuple(sorted(found.messages)),
        dead_letters=tuple(sorted(found.dead_letters)),
    )


def messages_of(tx: Tx, ids: TracedIds) -> list[MessageOfTrace]:
    """Return the messages of a cause, oldest first."""
    if not ids.messages:
        return []
    rows = tx.rows("trace_messages", {"messages": list(ids.messages)})
    return [MessageOfTrace._make(row) for row in rows]


def open_deliveries(tx: Tx, ids: TracedIds, customer_key: CustomerKey | None) -> list[OpenDelivery]:
    """Return the deliveries of a cause that are not settled."""
    if not ids.messages:
        return []
    params = {"messages": list(ids.messages), "customer": customer_key}
    return [OpenDelivery._make(row) for row in tx.rows("trace_deliveries", params)]


def dead_letters_of(
    tx: Tx, ids: TracedIds, customer_key: CustomerKey | None
) -> list[TracedDeadLetter]:
    """Return the dead letters of a cause, oldest first."""
    if not ids.dead_letters:
        return []
    params = {"dead_letters": list(ids.dead_letters), "customer": customer_key}
    return [TracedDeadLetter._make(row) for row in tx.rows("trace_dead_letters", params)]


def _start(tx: Tx, cause: str, customer_key: CustomerKey | None, found: _Found) -> None:
    """Add the object of an id; other text is treated as a correlation id."""
    if (number := decode_or_none("flow", cause)) is not None:
        _start_flow(tx, number, cause, customer_key, found)
    elif (number := decode_or_none("run", cause)) is not None:
        _start_run(tx, number, cause, customer_key, found)
    elif (number := decode_or_none("dl", cause)) is not None:
        _start_dead_letter(tx, number, cause, customer_key, found)
    elif not _start_message(tx, cause, customer_key, found):
        found.correlations[cause] = None
        external = {"external_id": cause, "customer": customer_key}
        for kind, number in tx.rows("trace_external", external):
            if kind == "flow":
                _start_flow(tx, number, cause, customer_key, found, required=False)
            else:
                _start_message(tx, str(number), customer_key, found)
        _follow_messages(tx, [cause], customer_key, found)


def _start_flow(
    tx: Tx,
    number: int,
    cause: str,
    customer_key: CustomerKey | None,
    found: _Found,
    *,
    required: bool = True,
) -> None:
    row = first(tx.rows("trace_flow_correlation", {"flow_id": number, "customer": customer_key}))
    if row is None:
        if required:
            raise NotFound("flow", cause)
        return
    found.flows[number] = None
    found.correlations[row[0]] = None
    if row[1] is not None:
        _start_message(tx, row[1], customer_key, found)


def _start_run(
    tx: Tx, number: int, cause: str, customer_key: CustomerKey | None, found: _Found
) -> None:
    run = run_get(tx, number, customer_key)
    if run is None:
        raise NotFound("run", cause)
    root = run.root_run_id or run.run_id
    found.correlations[run.correlation_id or encode("run", root)] = None
    if run.flow_id is not None:
        found.flows[run.flow_id] = None
    else:
        found.add("run" if run.finished_at is None else "ended", run.run_id)
        if root != run.run_id:
            found.add("ended", root)
    if run.trigger_message_id is not None:
        _start_message(tx, run.trigger_message_id, customer_key, found)


def _start_dead_letter(
    tx: Tx, number: int, cause: str, customer_key: CustomerKey | None, found: _Found
) -> None:
    params = {"dead_letter_id": number, "customer": customer_key}
    row = first(tx.rows("trace_dead_letter", params))
    if row is None:
        raise NotFound("dead letter", cause)
    kind, subject, message_id, correlation_id = row
    found.dead_letters[number] = None
    if correlation_id is not None:
        found.correlations[correlation_id] = None
    if kind == "run":
        _start_run(tx, subject, cause, customer_key, found)
    elif message_id is not None:
        _start_message(tx, str(message_id), customer_key, found)


def _start_message(tx: Tx, text: str, customer_key: CustomerKey | None, found: _Found) -> bool:
    """Add a message of the bus by its number; return False if there is none."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > MESSAGE_MAX:
        return False
    number = int(text)
    row = first(tx.rows("trace_message", {"message_id": number, "customer": customer_key}))
    if row is None:
        return False
    found.messages[number] = None
    # A consumer that handles a message without a correlation id publishes under the message's id.
    found.correlations.setdefault(row[0] or text)
    return True


def _follow_correlations(
    tx: Tx, correlations: list[str], customer_key: CustomerKey | None, found: _Found
) -> None:
    params = {"correlations": correlations, "customer": customer_key, "limit": IDS_MAX}
    for kind, number, _ in tx.rows("trace_of_correlations", params):
        found.add(kind, number)
    for text in correlations:
        # The first attempt of a run without a correlation id passes on its own id.
        number = decode_or_none("run", text)
        run = None if number is None else run_get(tx, number, customer_key)
        if run is not None and run.flow_id is None:
            found.add("run" if run.finished_at is None else "ended", run.run_id)


def _follow_messages(
    tx: Tx, messages: list[str], customer_key: CustomerKey | None, found: _Found
) -> None:
    params = {"messages": messages, "customer": customer_key, "limit": IDS_MAX}
    for kind, number, correlation_id, root in tx.rows("trace_of_messages", params):
        found.add(kind, number)
        found.correlations.setdefault(correlation_id or encode("run", root or number))


def _add_dead_letters(tx: Tx, customer_key: CustomerKey | None, found: _Found) -> None:
    runs = [*found.ended_runs, *found.live_runs]
    if runs or found.messages:
        params = {"runs": runs, "messages": list(found.messages), "customer": customer_key}
        for row in tx.rows("trace_dead_letters_about", params):
            found.add("dead_letter", row[0])
