"""Leases of holders on runs, with expiry by the database's clock.

A built-in process renews one session row; a run held externally has its own lease row. Both have
fencing tokens: a holder with a stale token can change nothing. Any number of sweepers may look for
expired leases at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.db.store import Tx, first, one
from penstock.runs.rows import HeldRun, Progress


class SessionRow(NamedTuple):
    """A live process."""

    session_id: int
    kind: str
    name: str
    host: str
    pid: int
    pool: str | None
    concurrency: int
    is_draining: bool
    started_at: int
    heartbeat_at: int
    until_at: int
    held: int
    leaked: int


def session_open(tx: Tx, params: dict[str, Any]) -> int:
    """Insert a session and return its id.

    params: boot_id, kind, name, host, pid, pool, slots, lease_us.
    """
    return int(one(tx.rows("session_open", params))[0])


def revision_put(tx: Tx, holder: str, service: str, revision: str) -> None:
    """Record the service and revision that a holder of runs belongs to."""
    tx.later("revision_put", {"holder": holder, "service": service, "revision": revision})


def session_heartbeat(
    tx: Tx, session_id: int, lease_us: int, *, is_draining: bool = False, leaked: int = 0
) -> bool:
    """Renew a session. Return False if it expired and a sweeper deleted it."""
    params = {
        "session_id": session_id,
        "lease_us": lease_us,
        "is_draining": is_draining,
        "leaked": leaked,
    }
    return first(tx.rows("session_heartbeat", params)) is not None


def session_held(tx: Tx, session_id: int) -> dict[int, bool]:
    """Return the tokens of a session's runs, and whether each has a cancel request."""
    rows = tx.rows("session_held", {"session_id": session_id})
    return {row[0]: bool(row[1]) for row in rows}


def session_close(tx: Tx, session_id: int) -> None:
    """Delete a session."""
    tx.run("session_close", {"session_id": session_id})


def session_expire(tx: Tx) -> list[tuple[int, str, str]]:
    """Delete expired sessions. Return (id, kind, name) of each."""
    return [(row[0], row[1], row[2]) for row in tx.rows("session_expire")]


def session_list(tx: Tx) -> list[SessionRow]:
    """Return live processes."""
    return [
        SessionRow._make(row)._replace(is_draining=bool(row[7])) for row in tx.rows("session_list")
    ]


def run_orphans(tx: Tx, n: int) -> list[HeldRun]:
    """Return held runs whose session is gone."""
    return [HeldRun._make(row) for row in tx.rows("run_orphans", {"n": n})]


def run_unleased(tx: Tx, n: int) -> list[HeldRun]:
    """Return externally held runs (no session) whose lease is gone."""
    return [HeldRun._make(row) for row in tx.rows("run_unleased", {"n": n})]


def run_overdue(tx: Tx, n: int, grace_us: int) -> list[HeldRun]:
    """Return runs that exceed their maximum duration by more than the grace period."""
    return [HeldRun._make(row) for row in tx.rows("run_overdue", {"n": n, "grace_us": grace_us})]


def lease_take_many(tx: Tx, rows: Sequence[tuple[str, int, int, str, int]]) -> dict[int, int]:
    """Insert leases (kind, subject, token, holder, lease_us). Return expiry by subject."""
    return dict(tx.rows("lease_take_many", batch=rows))


def lease_extend_many(tx: Tx, rows: Sequence[tuple[str, int, int, int]]) -> dict[int, int]:
    """Renew leases (kind, subject, token, lease_us). Lost leases are missing from the result."""
    return dict(tx.rows("lease_extend_many", batch=rows))


def lease_release_many(tx: Tx, rows: Sequence[tuple[str, int, int]]) -> set[int]:
    """Delete leases by (kind, subject, token). A late release changes nothing."""
    return {row[0] for row in tx.rows("lease_release_many", batch=rows)}


def lease_expire(tx: Tx) -> int:
    """Delete expired leases. Until then, a late heartbeat still renews them."""
    return len(tx.rows("lease_expire"))


def progress_put_many(tx: Tx, rows: Sequence[tuple[int, int, Progress]]) -> set[int]:
    """Write (run, token, progress) for current tokens only; the last row per run and token wins."""
    rows = list({row[:2]: row for row in rows}.values())
    batch = [
        (
            run_id, token, p.current_state, p.stage, p.percent, p.worker, p.pod, p.region,
            p.estimated_completion_at, p.records_extracted, p.records_transformed,
            p.records_loaded, p.bytes_processed,
        )
        for run_id, token, p in rows
    ]  # fmt: skip
    return {row[0] for row in tx.rows("progress_put_many", batch=batch)}


def progress_get(tx: Tx, run_id: int) -> tuple[Progress, int] | None:
    """Return (progress, last heartbeat) of a run."""
    row = first(tx.rows("run_progress_get", {"run_id": run_id}))
    if row is None:
        return None
    names = ("current_state", "stage", "percent", "worker", "pod", "region",
             "estimated_completion_at", "records_extracted", "records_transformed",
             "records_loaded", "bytes_processed")  # fmt: skip
    return Progress(**dict(zip(names, row, strict=False))), row[11]
