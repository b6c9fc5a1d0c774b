"""Dead letters of runs and deliveries in one list: find, group, resolve.

The transaction that ends a run or a delivery permanently writes its dead letter (`runs`,
`deliveries`). People and replays read and resolve dead letters through this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from penstock.core.clock import DAY
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey, SubscriptionKey
from penstock.db.store import Tx, first, one
from penstock.runs.fingerprint import TEXT_CHARS

FAR = 2**62

GROUPED_MAX: Final = 5_000
"""Dead letters, the newest, that groups are made of."""
HOURS_US: Final = DAY
"""How far back groups are also made by hour."""
COUNT_MAX: Final = 10_000
"""Largest count; there may be more."""
FIND: Final = ("dead_letter_find", "dead_letter_find_error", "dead_letter_find_customer")
GROUPS: Final = ("dead_letter_groups", "dead_letter_groups_error", "dead_letter_groups_customer")
COUNT: Final = ("dead_letter_count", "dead_letter_count_error", "dead_letter_count_customer")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRowFilter:
    """A filter of dead letters; None matches any. Times in microseconds, `until` is exclusive."""

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


class DeadLetterRow(NamedTuple):
    """A run or a delivery that used up its attempts or failed permanently.

    `subject` is the run, or the message in the dead-letter topic. `message_id`, `generation` and
    `subscription` identify the failed delivery. `customer_id` is None for system messages.
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
    dead_at: int
    status: str
    replays: int
    resolved_at: int | None
    resolved_by: str | None
    resolution: str | None
    subscription_key: SubscriptionKey | None
    subscription: str | None
    topic: str | None
    message_id: int | None
    generation: int | None
    customer_key: CustomerKey


class DeadLetterGroupRow(NamedTuple):
    """Dead letters with the same origin and error type; `latest` is the id of the newest.

    As read from the store they also have the same text and died in the same hour.
    """

    kind: str
    pipeline: str | None
    phase: str | None
    processor: str | None
    subscription: str | None
    error_type: str
    dead_letters: int
    first_at: int
    last_at: int
    latest: int
    error_kind: str | None
    details: str | None
    hour: int


def dead_letter_find(
    tx: Tx, wanted: DeadLetterRowFilter, *, before: int = FAR, limit: int = 50
) -> list[DeadLetterRow]:
    """Return dead letters, newest first."""
    params = asdict(wanted) | {"before": before, "limit": limit}
    statement = _by_index(wanted, FIND)
    return [DeadLetterRow._make(row) for row in tx.rows(statement, params)]


def dead_letter_get(
    tx: Tx,
    *,
    dead_letter_id: int | None = None,
    run_id: int | None = None,
    customer_key: CustomerKey | None = None,
) -> DeadLetterRow | None:
    """Return one dead letter, by its own id or by run id."""
    if run_id is None:
        params = {"dead_letter_id": dead_letter_id, "customer": customer_key}
        row = first(tx.rows("dead_letter_get", params))
    else:
        row = first(tx.rows("dead_letter_of_run", {"run_id": run_id, "customer": customer_key}))
    return None if row is None else DeadLetterRow._make(row)


def dead_letter_groups(tx: Tx, wanted: DeadLetterRowFilter) -> list[DeadLetterGroupRow]:
    """Group the newest dead letters by origin, error, its text and hour."""
    since = tx.now() - HOURS_US
    params = asdict(wanted) | {"most": GROUPED_MAX, "chars": TEXT_CHARS, "hours_since": since}
    rows = tx.rows(_by_index(wanted, GROUPS), params)
    return [DeadLetterGroupRow._make(row) for row in rows]


def dead_letter_count(tx: Tx, wanted: DeadLetterRowFilter) -> int:
    """Count matching dead letters, up to COUNT_MAX."""
    params = asdict(wanted) | {"most": COUNT_MAX}
    return int(one(tx.rows(_by_index(wanted, COUNT), params))[0])


def _by_index(wanted: DeadLetterRowFilter, variants: Sequence[str]) -> str:
    """Return the variant of a statement whose index fits: any, of an error, of a customer."""
    if wanted.status == "open" and wanted.error_type is not None:
        return variants[1]
    return variants[2 if wanted.status == "open" and wanted.customer is not None else 0]


def dead_letter_resolve_many(
    tx: Tx, closed: Sequence[tuple[int, str]], *, status: str, actor: str
) -> set[int]:
    """Resolve (dead letter, resolution) pairs as replayed or discarded. Return those resolved."""
    if not closed:
        return set()
    rows = tx.rows("dead_letter_resolve_many", {"status": status, "actor": actor}, closed)
    return {int(row[0]) for row in rows}


def dead_letter_hold(tx: Tx, dead_letter_id: int) -> bool:
    """Lock a dead letter until the transaction ends. Return False if it is not open."""
    return bool(tx.rows("dead_letter_lock", {"dead_letter_id": dead_letter_id}))


def run_replays(tx: Tx, run_id: int) -> int:
    """Return how often this run's work has been replayed from a dead letter."""
    return int(one(tx.rows("run_replays", {"run_id": run_id}))[0])


def dead_letter_close_retried(tx: Tx, run_id: int, new_run_id: int, actor: str) -> None:
    """Close the dead letter of a run that another run replaces."""
    found = dead_letter_get(tx, run_id=run_id)
    if found is not None:
        closed = [(found.dead_letter_id, f"replayed as {encode('run', new_run_id)}")]
        dead_letter_resolve_many(tx, closed, status="replayed", actor=actor)
