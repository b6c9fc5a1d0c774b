"""The inbox of what died: runs and deliveries in one list, found by filter, grouped, closed.

Whoever ends a run or a delivery for good writes its dead letter in that transaction (`runs`,
`deliveries`); this is what people and replays read and close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from penstock.core.ids import encode
from penstock.db.store import Tx, first, one

FAR = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which dead letters; None means any. Times in micros, `until` not included."""

    status: str | None = "open"
    kind: str | None = None
    customer: int | None = None
    subscription: str | None = None
    subscription_number: int | None = None
    topic: str | None = None
    pipeline: str | None = None
    processor: str | None = None
    partition: str | None = None
    correlation_id: str | None = None
    error_type: str | None = None
    since: int = 0
    until: int = FAR


class DeadLetter(NamedTuple):
    """A run or a delivery that used up its attempts or is poison.

    `subject` is the run, or the message in the dead-letter topic; `message_id`, `round` and
    `subscription` say which delivery died. `customer_id` is None for the house's own messages.
    """

    dead_letter_id: int
    kind: str
    subject: int
    customer_id: str | None
    pipeline: str | None
    phase: str | None
    processor: str | None
    config_id: int | None
    partition: str | None
    correlation_id: str | None
    error_type: str
    error_kind: str | None
    error_details: str | None
    attempts: int
    died_at: int
    status: str
    replays: int
    resolved_at: int | None
    resolved_by: str | None
    resolution: str | None
    subscription_number: int | None
    subscription: str | None
    topic: str | None
    message_id: int | None
    round: int | None
    customer: int


class LetterGroup(NamedTuple):
    """Dead letters with the same origin and the same kind of error; `latest` is one to look at."""

    kind: str
    pipeline: str | None
    phase: str | None
    processor: str | None
    subscription: str | None
    error_type: str
    letters: int
    first_at: int
    last_at: int
    latest: int


def dead_letter_find(
    tx: Tx, wanted: Wanted, *, before: int = FAR, limit: int = 50
) -> list[DeadLetter]:
    """Dead letters, newest first."""
    params = asdict(wanted) | {"before": before, "limit": limit}
    return [DeadLetter._make(row) for row in tx.rows("dead_letter_find", params)]


def dead_letter_get(
    tx: Tx,
    *,
    dead_letter_id: int | None = None,
    run_id: int | None = None,
    customer: int | None = None,
) -> DeadLetter | None:
    """One dead letter, by its own id or by its run's."""
    if run_id is None:
        params = {"dead_letter_id": dead_letter_id, "customer": customer}
        row = first(tx.rows("dead_letter_get", params))
    else:
        row = first(tx.rows("dead_letter_of_run", {"run_id": run_id, "customer": customer}))
    return None if row is None else DeadLetter._make(row)


def dead_letter_groups(tx: Tx, wanted: Wanted, *, limit: int = 50) -> list[LetterGroup]:
    """Dead letters by origin and error type, the most numerous first."""
    rows = tx.rows("dead_letter_groups", asdict(wanted) | {"limit": limit})
    return [LetterGroup._make(row) for row in rows]


def dead_letter_count(tx: Tx, wanted: Wanted) -> int:
    """How many there are."""
    return int(one(tx.rows("dead_letter_count", asdict(wanted)))[0])


def dead_letter_resolve_many(
    tx: Tx, closed: Sequence[tuple[int, str]], *, status: str, actor: str
) -> set[int]:
    """Close (dead letter, resolution) as replayed or discarded; answers those that were open."""
    if not closed:
        return set()
    rows = tx.rows("dead_letter_resolve_many", {"status": status, "actor": actor}, closed)
    return {int(row[0]) for row in rows}


def dead_letter_hold(tx: Tx, dead_letter_id: int) -> bool:
    """Whether a dead letter is open; then nobody else closes it before the transaction ends."""
    return bool(tx.rows("dead_letter_hold", {"dead_letter_id": dead_letter_id}))


def run_replays(tx: Tx, run_id: int) -> int:
    """How often what this run was for has been replayed from a dead letter."""
    return int(one(tx.rows("run_replays", {"run_id": run_id}))[0])


def dead_letter_close_retried(tx: Tx, run_id: int, new_run_id: int, actor: str) -> None:
    """Close the dead letter of a run that another run replaces."""
    found = dead_letter_get(tx, run_id=run_id)
    if found is not None:
        closed = [(found.dead_letter_id, f"replayed as {encode('run', new_run_id)}")]
        dead_letter_resolve_many(tx, closed, status="replayed", actor=actor)
