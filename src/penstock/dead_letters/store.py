"""Dead letters of runs and deliveries in one list: find, group, resolve.

The transaction that ends a run or a delivery permanently writes its dead letter (`runs`,
`deliveries`). Use cases and replays read and resolve dead letters through this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from penstock.core.clock import DAY, HOUR
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey, SubscriptionKey
from penstock.db.store import Tx, first, one
from penstock.dead_letters.group_name import GroupKey
from penstock.runs.fingerprint import TEXT_CHARS

FAR = 2**62

GROUPED_MAX: Final = 5_000
"""Number of newest dead letters that are grouped."""
HOURS_US: Final = DAY
"""How far back groups are also counted by hour."""
COUNT_MAX: Final = 10_000
"""Maximum count; there may be more."""
ATTEMPTS_MAX: Final = 100
"""Maximum number of attempts of a delivery that are returned."""
NONE: Final = 0
"""Placeholder for no processor, pipeline or subscription; no key is 0."""
VISITED_FIRST: Final = 500
VISITED_MAX: Final = 10_000
"""Maximum number of dead letters that one page, grouping or count examines. A page starts with
fewer, which is often enough.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRowFilter:
    """Filter of dead letters; None matches any. Times are in microseconds; `until` is exclusive."""

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
    group: GroupKey | None = None
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

    Groups read from the store also share the error text and the hour.
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
    ids: str | None
    """Ids of the open ones, separated by commas; null if they were not requested."""


class AttemptRow(NamedTuple):
    """A failed attempt of a delivery, with the service and revision that handled it, if known."""

    attempt: int
    at: int
    error_type: str
    error: str
    service: str | None
    revision: str | None


class DeadLettersPart(NamedTuple):
    """Part of a list, and the id at which the list continues, even if the part is short."""

    rows: list[DeadLetterRow]
    following: int | None


def dead_letter_page(
    tx: Tx, wanted: DeadLetterRowFilter, *, before: int = FAR, limit: int = 50
) -> DeadLettersPart:
    """Return dead letters, newest first; fewer than the limit if many rows did not match."""
    params, is_exact = _by_index(tx, wanted)
    for size in (limit,) if is_exact else (max(limit, VISITED_FIRST), VISITED_MAX):
        given = {**params, "before": before, "limit": limit, "visited": size}
        found = tx.rows("dead_letter_find", given)
        visited, last_id = found[0][0], found[0][1]
        rows = [DeadLetterRow._make(row[2:]) for row in found if row[2] is not None]
        if len(rows) == limit:
            return DeadLettersPart(rows, rows[-1].dead_letter_id)
        if visited < size:
            return DeadLettersPart(rows, None)
    return DeadLettersPart(rows, int(last_id))


def dead_letter_find(
    tx: Tx, wanted: DeadLetterRowFilter, *, before: int = FAR, limit: int = 50
) -> list[DeadLetterRow]:
    """Return up to `limit` dead letters, newest first, reading as many pages as needed."""
    rows: list[DeadLetterRow] = []
    following: int | None = before
    while following is not None and len(rows) < limit:
        part = dead_letter_page(tx, wanted, before=following, limit=limit - len(rows))
        rows, following = rows + part.rows, part.following
    return rows


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


def dead_letter_attempts(tx: Tx, row: DeadLetterRow) -> list[AttemptRow]:
    """Return the failed attempts of a dead letter's delivery, oldest first; empty for a run."""
    if row.message_id is None or row.subscription_key is None:
        return []
    names = ("message_id", "subscription_key", "generation")
    given = {name: getattr(row, name) for name in names}
    found = tx.rows("dead_letter_attempts", {**given, "most": ATTEMPTS_MAX})
    return [AttemptRow._make(one) for one in reversed(found)]


def dead_letter_groups(
    tx: Tx, wanted: DeadLetterRowFilter, *, with_ids: bool = True
) -> list[DeadLetterGroupRow]:
    """Group the newest dead letters by origin, error type, error text and hour."""
    params, is_exact = _by_index(tx, wanted)
    given = {
        **params,
        "before": FAR,
        "visited": GROUPED_MAX if is_exact else VISITED_MAX,
        "most": GROUPED_MAX,
        "chars": TEXT_CHARS,
        "hours_since": tx.now() - HOURS_US,
        "with_ids": int(with_ids),
    }
    return [DeadLetterGroupRow._make(row) for row in tx.rows("dead_letter_groups", given)]


def dead_letter_reports(tx: Tx, dead_letter_ids: Sequence[int]) -> dict[int, str | None]:
    """Return the contents of the dead letters that are reports of processors."""
    if not dead_letter_ids:
        return {}
    rows = tx.rows("dead_letter_reports", {"ids": list(dead_letter_ids)})
    return {int(row[0]): row[1] for row in rows}


def dead_letter_refused(
    tx: Tx, runs: Sequence[int], deliveries: Sequence[int], *, replays_max: int
) -> dict[int, str]:
    """Return the dead letters that a replay would refuse now, each with a reason code."""
    found: list[Any] = []
    if runs:
        given = {"ids": list(runs), "replays_max": replays_max}
        found += tx.rows("dead_letter_refused_runs", given)
    if deliveries:
        given = {"ids": list(deliveries), "around": HOUR}
        found += tx.rows("dead_letter_refused_deliveries", given)
    return {int(row[0]): str(row[1]) for row in found}


def dead_letter_count(
    tx: Tx, wanted: DeadLetterRowFilter, *, before: int = FAR, is_bounded: bool = False
) -> int:
    """Count matching dead letters, up to COUNT_MAX; a bounded count examines only the newest."""
    params, is_exact = _by_index(tx, wanted)
    visited = VISITED_MAX if is_bounded else FAR
    given = {**params, "before": before, "visited": visited, "most": COUNT_MAX}
    name = "dead_letter_count_index" if is_exact else "dead_letter_count"
    return int(one(tx.rows(name, given))[0])


def _by_index(tx: Tx, wanted: DeadLetterRowFilter) -> tuple[dict[str, Any], bool]:
    """Return the parameters with the index to use, and whether it covers the whole filter."""
    given = asdict(wanted)
    del given["group"]
    subscriptions: list[int] = []
    if wanted.subscription is not None or wanted.topic is not None:
        subscriptions = [int(row[0]) for row in tx.rows("dead_letter_subscriptions", given)]
    processors: list[int] = []
    pipelines: list[int] = []
    if wanted.pipeline is not None or wanted.processor is not None:
        found = tx.rows("dead_letter_processors", given)
        processors = [int(row[1]) for row in found if row[1] is not None]
        pipelines = [] if wanted.processor is not None else sorted({int(row[0]) for row in found})
    given |= {"subscriptions": subscriptions, "processors": processors, "pipelines": pipelines}
    group = _group_keys(tx, wanted.group)
    number = wanted.subscription_number
    if number is None:
        number = _sole(subscriptions) or _sole(group["group_subscriptions"])
    processor = _sole(processors) if wanted.processor is not None else None
    processor = processor or _sole(group["group_processors"])
    error = wanted.error_type or group["group_error"]
    path, used = _path(wanted, number, processor, error)
    others = replace(wanted, **dict.fromkeys(used))  # type: ignore[arg-type]
    is_exact = path != "all" and others == DeadLetterRowFilter(status=None)
    keys = {"path": path, "subscription_key": number, "processor_key": processor}
    return {**given, **group, **keys, "error_key": error}, is_exact


def _path(
    wanted: DeadLetterRowFilter, number: int | None, processor: int | None, error: str | None
) -> tuple[str, set[str]]:
    """Return the name of the index that fits best, and the filters that it covers."""
    is_open = wanted.status == "open"
    of_subscription = {"subscription", "subscription_number", "topic"}
    of_processor = {"pipeline", "processor"}
    if wanted.correlation_id is not None:
        return "cause", {"correlation_id"}
    if number is not None and is_open and error is not None:
        return "subscription_error", {"status", "error_type", *of_subscription}
    if number is not None:
        return "subscription", of_subscription
    if is_open and wanted.customer is not None:
        return "customer", {"status", "customer"}
    if is_open and processor is not None and error is not None:
        is_group = wanted.processor is None and wanted.error_type is None
        used = {"group"} if is_group else {"error_type", *of_processor}
        return "processor_error", {"status", *used}
    if is_open and processor is not None:
        return "processor", {"status", *of_processor}
    if is_open and error is not None:
        return "error", {"status", "error_type"}
    return ("open", {"status"}) if is_open else ("all", set())


def _sole(keys: Sequence[int]) -> int | None:
    """Return the key if there is exactly one; None otherwise."""
    return keys[0] if len(keys) == 1 and keys[0] != NONE else None


def _group_keys(tx: Tx, group: GroupKey | None) -> dict[str, Any]:
    """Return the parameters of a group; a name that is unknown has no key and matches nothing."""
    processors, subscriptions, pipelines = [NONE], [NONE], [NONE]
    if group is not None and group.processor is not None:
        found = tx.rows("dead_letter_processors", group._asdict())
        processors = [int(row[1]) for row in found if row[1] is not None and row[2] == group.phase]
    elif group is not None and group.pipeline is not None:
        found = tx.rows("dead_letter_processors", group._asdict())
        pipelines = sorted({int(row[0]) for row in found})
    if group is not None and group.subscription is not None:
        given = {"subscription": group.subscription, "topic": None}
        subscriptions = [int(row[0]) for row in tx.rows("dead_letter_subscriptions", given)]
    return {
        "group_kind": None if group is None else group.kind,
        "group_error": None if group is None else group.error_type,
        "group_processors": processors,
        "group_subscriptions": subscriptions,
        "group_pipelines": pipelines,
    }


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
    """Close the dead letter of a run that was retried as another run."""
    found = dead_letter_get(tx, run_id=run_id)
    if found is not None:
        closed = [(found.dead_letter_id, f"replayed as {encode('run', new_run_id)}")]
        dead_letter_resolve_many(tx, closed, status="replayed", actor=actor)
