"""Stop a run: cancel a pending one, ask the holder of another, or end it by force."""

from __future__ import annotations

from typing import Literal

from penstock.core.errors import IllegalTransition, NotFound
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Transactions, Tx
from penstock.runs import attempt_result
from penstock.runs.states import RunState
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.runs import (
    ordering_key_lock,
    run_cancel_pending,
    run_cancel_request,
    run_get,
    run_held_get,
)

StopOutcome = Literal["cancelled", "asked", "forced"]


def run_stop(
    tx: Tx,
    store: Transactions,
    number: int,
    *,
    customer_key: CustomerKey | None,
    actor: str,
    reason: str | None,
    force: bool,
) -> StopOutcome:
    """Stop a live run; return the kind of stop. Raise IllegalTransition if it has ended."""
    outcome = run_stop_if_live(
        tx, store, number, customer_key=customer_key, actor=actor, reason=reason, force=force
    )
    if outcome is not None:
        return outcome
    ended = run_get(tx, number, customer_key)
    if ended is None:
        raise NotFound("run", encode("run", number))
    raise IllegalTransition("run", encode("run", number), ended.state, "CANCELLED")


def run_stop_if_live(
    tx: Tx,
    store: Transactions,
    number: int,
    *,
    customer_key: CustomerKey | None,
    actor: str,
    reason: str | None,
    force: bool,
) -> StopOutcome | None:
    """Stop a run unless it has ended; return the kind of stop, None if it has ended.

    For callers that found it live before they locked it: on PostgreSQL it may end between the two.
    Workers are woken after the commit.
    """
    seen = run_get(tx, number, customer_key)
    if seen is not None and seen.ordering_key is not None:
        ordering_key_lock(tx, seen.ordering_key)
    held = run_held_get(tx, number, customer_key)
    if held is None:
        return None
    if held.state != RunState.PENDING and not force:
        run_cancel_request(tx, number, actor, reason)
        tx.after_commit(lambda: store.wake(["cancel"]))
        return "asked"
    if held.state != RunState.PENDING:
        end = attempt_result.forced(held, actor=actor, reason=reason)
        tx.after_commit(lambda: store.wake(["cancel", "admit", "flows"]))
    else:
        token = run_cancel_pending(tx, number)
        assert token is not None, "the row is locked"
        end = attempt_result.cancelled(held._replace(token=token), actor=actor, why=reason)
    ended_runs = run_end_many(tx, [end])
    assert ended_runs, "the row is locked"
    return "cancelled" if held.state == RunState.PENDING else "forced"
