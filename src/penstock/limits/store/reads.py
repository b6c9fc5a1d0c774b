"""Reads of limits for display: holders, queue, waits, learned capacity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.limits.rules import HISTORY_KEPT
from penstock.limits.store.rows import LeaseRow, LimitRow, TicketRow

CHOSEN_MAX: Final = 1_000
"""Maximum number of limits that a filter of a list selects."""
_WIDTH = len(LimitRow._fields)


class LimitView(NamedTuple):
    """A limit with its held weight, holders, waiting tickets, and the runs that wait for it."""

    limit: LimitRow
    held: int
    holders: int
    waiting: int
    waiting_runs: int


class LimitEvent(NamedTuple):
    """One row of a limit's history."""

    entry: int
    holder: str
    run_id: int | None
    token: int | None
    weight: int
    outcome: str
    asked_at: int | None
    since_at: int | None
    at: int


class CapacityRow(NamedTuple):
    """A change of a limit's effective capacity."""

    at: int
    capacity: int | None
    before: int | None
    cause: str


def limit_list(
    tx: Tx,
    *,
    customer_key: CustomerKey | None = None,
    name: str | None = None,
    part: str | None = None,
    ids: Sequence[int] | None = None,
    after: tuple[str, int] = ("", -1),
    n: int = 50,
) -> list[LimitView]:
    """Return limits by name. A tenant sees its own limits and the system's.

    `part` is a part of the name, case-insensitive; `ids` restricts the result to these limits.
    """
    params = {"customer": customer_key, "name": name, "part": part, "n": n,
              "after": after[0], "after_customer": after[1],
              "is_chosen": 0 if ids is None else 1, "ids": list(ids or ())}  # fmt: skip
    return [
        LimitView(LimitRow._make(row[:_WIDTH]), *(int(value) for value in row[_WIDTH:]))
        for row in tx.rows("limit_list", params)
    ]


def limit_queued(tx: Tx, n: int = CHOSEN_MAX) -> list[int]:
    """Return limits that requests or runs wait for."""
    return [int(row[0]) for row in tx.rows("limit_queued", {"n": n})]


def limit_learned(tx: Tx, n: int = CHOSEN_MAX) -> list[int]:
    """Return limits whose capacity quota errors have lowered."""
    return [int(row[0]) for row in tx.rows("limit_learned", {"n": n})]


def limit_of_run(tx: Tx, run_id: int) -> list[int]:
    """Return limits that a run holds or waits for."""
    return [int(row[0]) for row in tx.rows("limit_of_run", {"run_id": run_id})]


def limit_capacities(tx: Tx, limit_id: int, n: int = HISTORY_KEPT) -> list[CapacityRow]:
    """Return the latest changes of a limit's effective capacity, oldest first."""
    found = tx.rows("limit_capacities_list", {"limit_id": limit_id, "n": n})
    return [CapacityRow._make(row) for row in reversed(found)]


def limit_holders(tx: Tx, limit_id: int, n: int = 1_000) -> list[LeaseRow]:
    """Return the holders of a limit, longest-held first."""
    params = {"limit_id": limit_id, "n": n}
    return [LeaseRow._make(row) for row in tx.rows("limit_holders_list", params)]


def limit_queue(tx: Tx, limit_id: int, n: int = 1_000) -> list[TicketRow]:
    """Return the tickets of a limit, in queue order."""
    params = {"limit_id": limit_id, "n": n}
    return [TicketRow._make(row) for row in tx.rows("limit_queue_list", params)]


def limit_history(tx: Tx, limit_id: int, n: int = HISTORY_KEPT) -> list[LimitEvent]:
    """Return the latest waits and holds, newest first."""
    params = {"limit_id": limit_id, "n": min(n, HISTORY_KEPT)}
    return [LimitEvent._make(row) for row in tx.rows("limit_history_list", params)]


def limit_recent_waits(tx: Tx, n: int, window_us: int) -> dict[str, list[int]]:
    """Return the waits that ended within the window, by name, of the first `n` limits."""
    found: dict[str, list[int]] = {}
    for name, asked_at, until in tx.rows("limit_recent_waits", {"n": n, "window_us": window_us}):
        found.setdefault(name, []).append(until - asked_at)
    return found
