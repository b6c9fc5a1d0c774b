"""Stored configs, and the audit chain of every change to them.

Each audit entry hashes its predecessor under a lock on the customer's row, in the transaction of
the change, so that a changed or missing entry is detected. The journal gets the head of each chain,
so that its seals also cover the ends of chains. The client validates configs; this module only
stores them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypedDict, Unpack

import msgspec

from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx, first
from penstock.runs.attempt_result import FAILURES_ALERT
from penstock.schedules.cadence import Cadence
from penstock.schedules.records import ConfigHealthWord
from penstock.schedules.rows import ConfigRow

LAST: Final = "\U0010ffff"
"""Sorts after every character: a prefix followed by it ends the range of texts with that prefix."""
_BY_HEALTH: Final[Mapping[ConfigHealthWord, tuple[str, Mapping[str, int]]]] = {
    "well": ("config_list_well", {}),
    "at_risk": (
        "config_list_in_trouble",
        {"failures_from": 1, "failures_to": FAILURES_ALERT - 1},
    ),
    "failing": (
        "config_list_in_trouble",
        {"failures_from": FAILURES_ALERT, "failures_to": 2**31 - 1},
    ),
    "off": ("config_list_off", {}),
    "paused": ("config_list_paused", {}),
}
"""The statement that lists configs of each health, and its own parameters."""


class Change(NamedTuple):
    """A change to be audited."""

    customer_key: CustomerKey
    action: str
    config_id: int | None
    actor: str
    reason: str = ""
    old: Mapping[str, Any] | None = None
    new: Mapping[str, Any] | None = None


class AuditRow(NamedTuple):
    """One entry of a customer's audit chain."""

    n: int
    at: int
    action: str
    config_id: int | None
    actor: str
    reason: str
    old_values: str | None
    new_values: str | None
    previous: str
    hash: str


def config_insert_many(tx: Tx, rows: Sequence[tuple[Any, ...]]) -> list[int]:
    """Create configs (columns as in the statement's batch). Return their ids in order."""
    return sorted(row[0] for row in tx.rows("config_insert_many", batch=rows))


def config_set_offset_many(tx: Tx, rows: Sequence[tuple[int, int]]) -> None:
    """Set each config's fixed offset within its jitter."""
    tx.run("config_set_offset_many", batch=rows)


def config_update(tx: Tx, params: Mapping[str, Any]) -> int | None:
    """Replace a config's settings. Return the new version; None if the given one is not current."""
    row = first(tx.rows("config_update", params))
    return None if row is None else int(row[0])


def config_deactivate(tx: Tx, config_id: int, reason: str) -> None:
    """Disable a config, with a reason."""
    tx.run("config_deactivate", {"config_id": config_id, "reason": reason})


def config_delete(tx: Tx, config_id: int) -> bool:
    """Mark a config as deleted. Return False if it already was."""
    return bool(tx.rows("config_delete", {"config_id": config_id}))


def config_get(tx: Tx, config_id: int, customer_key: CustomerKey | None = None) -> ConfigRow | None:
    """Return one config, deleted or not, optionally only if it belongs to a customer."""
    row = first(tx.rows("config_get", {"config_id": config_id, "customer": customer_key}))
    return None if row is None else _config(row)


def config_lock(tx: Tx, config_id: int) -> None:
    """Lock a config to serialize changes to it."""
    tx.rows("config_lock", {"config_id": config_id})


class ConfigRowFilter(TypedDict, total=False):
    """Filter of a list of configs; `after` continues an earlier page."""

    customer_key: CustomerKey | None
    pipeline_key: PipelineKey | None
    is_active: bool | None
    customer_prefix: str | None
    after: int
    limit: int


def config_list(tx: Tx, **wanted: Unpack[ConfigRowFilter]) -> list[ConfigRow]:
    """Return configs in id order."""
    return [_config(row) for row in tx.rows("config_list", _wanted(wanted))]


def config_get_like(
    tx: Tx,
    customers: Sequence[str],
    pipelines: Sequence[str],
    parameters: Sequence[str],
    crons: Sequence[str],
) -> list[ConfigRow]:
    """Return active configs that have one of each, in id order; the cron is "" without one."""
    wanted = {
        "customers": customers,
        "pipelines": pipelines,
        "parameters": parameters,
        "crons": crons,
    }
    return [_config(row) for row in tx.rows("config_get_like", wanted)]


def config_list_failing(tx: Tx, **wanted: Unpack[ConfigRowFilter]) -> list[ConfigRow]:
    """Return configs whose last runs failed, in id order."""
    return [_config(row) for row in tx.rows("config_list_failing", _wanted(wanted))]


def config_list_with_health(
    tx: Tx, health: ConfigHealthWord, **wanted: Unpack[ConfigRowFilter]
) -> list[ConfigRow]:
    """Return configs with a health, in id order."""
    name, params = _BY_HEALTH[health]
    return [_config(row) for row in tx.rows(name, {**_wanted(wanted), **params})]


def config_list_named(
    tx: Tx, *, after_customer: str, **wanted: Unpack[ConfigRowFilter]
) -> list[ConfigRow]:
    """Return configs of customers whose name begins with a text, by customer and id."""
    params = {**_wanted(wanted), "after_customer": after_customer}
    return [_config(row) for row in tx.rows("config_list_named", params)]


def config_list_next(
    tx: Tx, *, after_time: Micros, due_before: Micros, **wanted: Unpack[ConfigRowFilter]
) -> list[ConfigRow]:
    """Return configs that start before a time, the next one first."""
    params = {**_wanted(wanted), "after_time": after_time, "due_before": due_before}
    return [_config(row) for row in tx.rows("config_list_next", params)]


def _wanted(wanted: ConfigRowFilter) -> dict[str, Any]:
    prefix = wanted.get("customer_prefix")
    return {
        "first": prefix,
        "last": None if prefix is None else prefix + LAST,
        "customer": wanted.get("customer_key"),
        "pipeline": wanted.get("pipeline_key"),
        "is_active": wanted.get("is_active"),
        "after": wanted.get("after", 0),
        "limit": wanted.get("limit", 50),
    }


def schedule_cadences(tx: Tx) -> dict[int, Cadence]:
    """Return the cadences that configs use, by key."""
    return {
        int(key): Cadence(cron=cron or None, timezone=zone, interval_us=interval or None)
        for key, cron, zone, interval in tx.rows("schedule_cadences")
    }


def config_list_by_cadence(
    tx: Tx,
    cadences: Sequence[int],
    *,
    customer_key: CustomerKey | None,
    pipeline_key: PipelineKey | None,
    after: int,
    limit: int,
) -> list[ConfigRow]:
    """Return active configs that use one of these cadences, in id order."""
    params = {
        "cadences": list(cadences),
        "customer": customer_key,
        "pipeline": pipeline_key,
        "after": after,
        "limit": limit,
    }
    return [_config(row) for row in tx.rows("config_list_by_cadence", params)]


def config_health_reset(tx: Tx, config_id: int) -> None:
    """Reset a config's failure count."""
    tx.run("config_health_reset", {"config_id": config_id})


def audit_append(tx: Tx, changes: Sequence[Change]) -> None:
    """Append changes to their customers' audit chains."""
    customers = sorted({change.customer_key for change in changes})
    heads = {
        customer: (n, head)
        for customer, n, head in tx.rows("customer_lock_many", batch=[(c,) for c in customers])
    }
    at = tx.now()
    rows = []
    for change in changes:
        n, previous = heads[change.customer_key]
        old = _canonical(change.old)
        new = _canonical(change.new)
        body = (n + 1, at, change.action, change.config_id, change.actor, change.reason, old, new)
        digest = audit_hash(previous, change.customer_key, body)
        rows.append((change.customer_key, *body, previous, digest))
        heads[change.customer_key] = (n + 1, digest)
    tx.run("audit_append_many", batch=rows)
    actors = {change.customer_key: change.actor for change in changes}
    journal_append_many(
        tx,
        [
            Entry(
                "audit", c, c, "appended", actors[c], token=heads[c][0], detail=f'"{heads[c][1]}"'
            )
            for c in customers
        ],
    )


def audit_list(
    tx: Tx,
    customer_key: CustomerKey,
    *,
    config_id: int | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[AuditRow]:
    """Return a customer's audit entries, oldest first."""
    params = {"customer": customer_key, "config_id": config_id, "after": after, "limit": limit}
    return [AuditRow._make(row) for row in tx.rows("audit_list", params)]


def audit_verify(
    tx: Tx, customer_key: CustomerKey | None = None, limit: int = 5_000
) -> tuple[int, str | None]:
    """Recompute one chain, or those of all customers. Return (number of entries, first problem).

    Heads are compared in one statement, so that entries appended in the meantime are not reported
    as a problem, at any isolation level.
    """
    customer, links, previous, total = CustomerKey(0), 0, "", 0
    only = {"only": customer_key}
    while page := tx.rows(
        "audit_chains", {"customer": customer, "after": links, "limit": limit, **only}
    ):
        for *columns, key, name in page:
            if key != customer:
                customer, links, previous = CustomerKey(key), 0, ""
            row = AuditRow._make(columns)
            if row.n != links + 1:
                return total, f"audit of {name}: link {links + 1} is missing"
            body = tuple(row)[:8]
            if row.previous != previous or row.hash != audit_hash(previous, customer, body):
                return total, f"audit of {name}: link {row.n} was changed"
            previous, links, total = row.hash, row.n, total + 1
    if headless := first(tx.rows("audit_headless", only)):
        return total, f"audit of {headless[0]}: the newest links are missing"
    return total, None


def audit_links(
    tx: Tx, numbers: Mapping[CustomerKey, int]
) -> list[tuple[CustomerKey, str, str | None]]:
    """Return (customer, name, hash) of one link of each chain; hash is None if it is missing."""
    wanted = {"ids": sorted(numbers), "numbers": sorted(set(numbers.values()))}
    names: dict[CustomerKey, str] = {}
    hashes: dict[CustomerKey, str] = {}
    for customer, name, n, digest in tx.rows("audit_links", wanted):
        names[customer] = name
        if n == numbers[customer]:
            hashes[customer] = digest
    return [(customer, name, hashes.get(customer)) for customer, name in names.items()]


def audit_hash(previous: str, customer_key: CustomerKey, body: tuple[Any, ...]) -> str:
    """Return the hash that chains an entry to its predecessor."""
    return hashlib.sha256(msgspec.json.encode([previous, customer_key, *body])).hexdigest()


def _canonical(values: Mapping[str, Any] | None) -> str | None:
    return None if values is None else msgspec.json.encode(values, order="sorted").decode()


def _config(row: tuple[Any, ...]) -> ConfigRow:
    config = ConfigRow._make(row)
    return config._replace(
        is_active=bool(config.is_active),
        schedule_cron=config.schedule_cron or None,
        interval_us=config.interval_us or None,
    )
