"""Alerts, and stored responses of idempotent requests.

An alert is one row while it is open, however often its condition recurs. A request key is stored
with the hash of its body and its response.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.audit.rows import AlertFilter, AlertRow, NewAlert
from penstock.core.errors import Conflict, DuplicateRequest
from penstock.db.store import Tx, first, one

REQUEST_TTL_US = 24 * 3_600_000_000


def alert_open(tx: Tx, alert: NewAlert) -> int:
    """Open an alert or count its recurrence.

    Triggers of the table announce alerts that open or are resolved (`penstock.alerts`).
    """
    params: dict[str, Any] = {
        "rule": alert.rule,
        "dedupe_key": alert.dedupe_key,
        "severity": alert.severity,
        "customer": alert.customer_key,
        "subject_kind": alert.subject_kind,
        "subject": alert.subject,
        "message": alert.message,
        "detail": msgspec.json.encode(alert.detail).decode(),
        "pipeline": alert.pipeline,
    }
    return int(one(tx.rows("alert_open", params))[0])


def alert_count(tx: Tx, dedupe_key: str) -> int:
    """Lock an open alert and return the `count` in its detail; 0 if there is no such alert."""
    row = first(tx.rows("alert_detail", {"dedupe_key": dedupe_key}))
    return 0 if row is None else int(msgspec.json.decode(row[0]).get("count", 0))


def alert_resolve(tx: Tx, dedupe_key: str, actor: str) -> bool:
    """Resolve an open alert. Return False if there was none."""
    return bool(tx.rows("alert_resolve", {"dedupe_key": dedupe_key, "actor": actor}))


def alert_resolve_healthy(tx: Tx) -> int:
    """Resolve alerts about configs and consumers that have recovered. Return how many."""
    return tx.run("alert_resolve_healthy")


def alert_resolve_quiet(tx: Tx, rule: str, quiet_us: int) -> int:
    """Resolve alerts of a rule that have not recurred for a given time. Return how many."""
    return tx.run("alert_resolve_quiet", {"rule": rule, "quiet_us": quiet_us})


def alert_list(
    tx: Tx,
    wanted: AlertFilter | None = None,
    *,
    before: int = 2**62,
    limit: int = 50,
) -> list[AlertRow]:
    """Return alerts, newest first."""
    wanted = wanted or AlertFilter()
    params = {
        "state": wanted.state,
        "customer": wanted.customer_key,
        "severity": wanted.severity,
        "rule": wanted.rule,
        "pipeline": wanted.pipeline,
        "since": wanted.since,
        "before": before,
        "limit": limit,
    }
    return [AlertRow._make(row) for row in tx.rows("alert_list", params)]


def alert_rows(tx: Tx, ids: Sequence[int]) -> dict[int, AlertRow]:
    """Return alerts by id."""
    rows = tx.rows("alert_rows", {"ids": sorted(set(ids))})
    return {row[0]: AlertRow._make(row) for row in rows}


def request_begin(tx: Tx, scope: str, key: str, body: bytes) -> Any | None:
    """Claim a request key. Return the stored response if it was used with the same body.

    Raises an error if the key was used with another body, or its first request has not finished.
    """
    digest = hashlib.sha256(body).hexdigest()
    params = {"scope": scope, "key": key, "body_hash": digest, "ttl_us": REQUEST_TTL_US}
    if tx.rows("request_put", params):
        return None
    row = first(tx.rows("request_get", {"scope": scope, "key": key}))
    if row is None:
        raise Conflict("A request with this key is in progress: try again.")
    if row[0] != digest:
        raise DuplicateRequest
    if row[1] is None:
        raise Conflict("A request with this key is in progress: try again.")
    return msgspec.json.decode(row[1])


def request_finish(tx: Tx, scope: str, key: str, response: Any) -> None:
    """Store the response, in the transaction that did the work."""
    text = msgspec.json.encode(response).decode()
    tx.run("request_finish", {"scope": scope, "key": key, "response": text})
