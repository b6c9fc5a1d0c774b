"""Read, acknowledge and resolve alerts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.alerts.catalog import Fired
from penstock.audit.rows import AlertRow
from penstock.core.clock import DAY
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, first


class NotifiedRow(NamedTuple):
    """A notice about an alert."""

    channel: str
    kind: str
    state: str
    at: int


def alert_get(tx: Tx, alert_id: int, customer_key: CustomerKey | None) -> AlertRow | None:
    """Return an alert; None if there is none, or it belongs to another customer."""
    params = {"alert_id": alert_id, "customer": customer_key}
    row = first(tx.rows("alert_of_customer", params))
    return None if row is None else AlertRow._make(row)


def alert_acknowledge(tx: Tx, ids: Sequence[int], actor: str, note: str | None) -> list[int]:
    """Acknowledge the open ones of these alerts; return their ids."""
    params = {"ids": sorted(set(ids)), "actor": actor, "note": note}
    return [int(row[0]) for row in tx.rows("alert_acknowledge", params)]


def alert_resolve_many(tx: Tx, ids: Sequence[int], actor: str, note: str | None) -> list[int]:
    """Resolve these alerts; return the ids of those that were not already resolved."""
    params = {"ids": sorted(set(ids)), "actor": actor, "note": note}
    return [int(row[0]) for row in tx.rows("alert_resolve_ids", params)]


def alert_notified(tx: Tx, ids: Sequence[int]) -> dict[int, list[NotifiedRow]]:
    """Return the notices about alerts, by alert."""
    found: dict[int, list[NotifiedRow]] = {}
    for alert_id, *rest in tx.rows("alert_notified", {"ids": sorted(set(ids))}) if ids else ():
        found.setdefault(alert_id, []).append(NotifiedRow._make(rest))
    return found


def open_counts(tx: Tx) -> dict[tuple[str, str], int]:
    """Return the number of open alerts by rule and severity."""
    return {(rule, severity): int(n) for rule, severity, n in tx.rows("alert_open_counts")}


def rule_counts(tx: Tx, days: int) -> dict[str, Fired]:
    """Return how often each rule has fired: its last time, its open alerts, and a count per day."""
    since = (tx.now() // DAY - days + 1) * DAY
    by_day: dict[str, list[int]] = {}
    for rule, day, count in tx.rows("alert_rule_days", {"since": since}):
        row = by_day.setdefault(rule, [0] * days)
        row[min(int(day), days - 1)] += int(count)
    return {
        rule: Fired(last_at, int(opened), tuple(by_day.get(rule, [0] * days)))
        for rule, last_at, opened in tx.rows("alert_rule_counts")
    }
