"""Stored actions, artifacts and checkpoints of runs.

Written in batches, with the end of the runs. A key that a caller gave to an action is unique per
customer, processor and kind, so that only one of two concurrent runs with the same key performs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey, ProcessorKey
from penstock.db.store import Tx, first
from penstock.runs.action_records import ACTIONS_MAX, ARTIFACTS_MAX, ActionKind


class ActionRow(NamedTuple):
    """An action to store (batch of `run_action_put_many`); `subject` is the id of the created
    message, run or flow.
    """

    run_id: int
    n: int
    customer_key: CustomerKey
    processor_key: ProcessorKey
    kind: str
    target: str
    partition: str | None
    action_key: str | None
    subject: int | None = None
    is_repeat: bool = False


class KeptAction(NamedTuple):
    """An action as read."""

    kind: ActionKind
    target: str
    partition: str | None
    action_key: str | None
    subject: int | None
    is_repeat: bool
    at: Micros


class ArtifactRow(NamedTuple):
    """An artifact to store (batch of `run_artifact_put_many`)."""

    run_id: int
    name: str
    customer_key: CustomerKey
    uri: str
    size: int | None
    checksum: str | None
    media_type: str | None


class KeptArtifact(NamedTuple):
    """An artifact as read."""

    name: str
    uri: str
    size: int | None
    checksum: str | None
    media_type: str | None
    at: Micros


class StateRow(NamedTuple):
    """The checkpoint of a run that ended or was released (batch of `run_state_put_ended`)."""

    root_run_id: int
    customer_key: CustomerKey
    run_id: int
    token: int
    state: str


class KeptState(NamedTuple):
    """A checkpoint as read: the attempt that saved it, and when."""

    state: str
    run_id: int
    saved_at: Micros


def action_reserve_many(tx: Tx, rows: Sequence[ActionRow]) -> set[tuple[int, int]]:
    """Add actions that have keys; return (run, n) of those whose key was not used before."""
    # Ordered by key, so that two transactions cannot deadlock.
    ordered = sorted(rows, key=lambda r: (r.customer_key, r.processor_key, r.kind, r.action_key))
    return {(run_id, n) for run_id, n in tx.rows("run_action_put_many", batch=ordered)}


def action_add_many(tx: Tx, rows: Sequence[ActionRow]) -> None:
    """Add actions that were performed, or repeats of others."""
    if rows:
        tx.later("run_action_put_many", batch=rows)


def action_found(tx: Tx, rows: Sequence[ActionRow]) -> dict[tuple[int, int, str, str], int]:
    """Return earlier results of actions by customer, processor, kind and key."""
    keys = {(r.customer_key, r.processor_key, r.kind, r.action_key) for r in rows}
    found = tx.rows("run_action_find_many", batch=sorted(keys))
    return {(row[0], row[1], row[2], row[3]): row[4] for row in found}


def action_made_many(tx: Tx, made: Sequence[tuple[int, int, int]]) -> None:
    """Record the results of actions with keys: (run, n, subject)."""
    if made:
        tx.later("run_action_made_many", batch=made)


def action_list(tx: Tx, run_id: int) -> list[KeptAction]:
    """Return the actions of a run, in order."""
    rows = tx.rows("run_action_list", {"run_id": run_id, "limit": ACTIONS_MAX})
    return [KeptAction._make(row)._replace(is_repeat=bool(row[5])) for row in rows]


def action_cause(tx: Tx, kind: str, subject: int) -> int | None:
    """Return the run that created a run, a flow or a message; None if no run did."""
    row = first(tx.rows("run_action_cause", {"kind": kind, "subject": subject}))
    return None if row is None else int(row[0])


def artifact_put_many(tx: Tx, rows: Sequence[ArtifactRow]) -> None:
    """Add artifacts of runs that this transaction ended."""
    if rows:
        tx.later("run_artifact_put_many", batch=rows)


def artifact_list(tx: Tx, run_id: int) -> list[KeptArtifact]:
    """Return the artifacts of a run, by name."""
    params = {"run_id": run_id, "limit": ARTIFACTS_MAX}
    return [KeptArtifact._make(row) for row in tx.rows("run_artifact_list", params)]


def state_put_held(tx: Tx, rows: Sequence[tuple[int, int, str]]) -> set[int]:
    """Save checkpoints (run, token, state) of live runs; return the runs with a current token."""
    return {row[0] for row in tx.rows("run_state_put_held", batch=rows)} if rows else set()


def state_put_ended(tx: Tx, rows: Sequence[StateRow]) -> None:
    """Save checkpoints of runs that this transaction ended or released."""
    if rows:
        tx.later("run_state_put_ended", batch=rows)


def state_get(tx: Tx, root_run_id: int, parent_run_id: int | None) -> KeptState | None:
    """Return the checkpoint that a run continues from; None if there is none."""
    row = first(tx.rows("run_state_get", {"root": root_run_id, "parent": parent_run_id}))
    return None if row is None else KeptState._make(row)
