"""Gates: probe leases, decisions, triggers, breakers.

A probe is leased with a fencing token before it reads any data; results under a token that was
replaced in the meantime are discarded. A trigger is one row per flow, phase and (where each
processor has its own gate) processor. The transaction that inserts it also creates the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.db.store import Tx, one
from penstock.flows.gates.breaker import Breaker
from penstock.flows.gates.rows import DecisionFilter, DecisionRow, NewDecision, NewTrigger, Trigger
from penstock.runs.store.leases import lease_release_many


def probe_lease_many(tx: Tx, gates: Iterable[int], holder: str, lease_us: int) -> dict[int, int]:
    """Lease the probes of gates that are not leased yet. Return gate → token."""
    batch = [(gate_id,) for gate_id in sorted(set(gates))]
    rows = tx.rows("probe_lease_many", {"holder": holder, "lease_us": lease_us}, batch)
    return {row[0]: row[1] for row in rows}


def probe_release_many(tx: Tx, held: Iterable[tuple[int, int]]) -> set[int]:
    """Release leases by (gate, token). Return the gates whose token was still current."""
    return lease_release_many(tx, [("look", gate_id, token) for gate_id, token in held])


def trigger_put_many(tx: Tx, triggers: Sequence[NewTrigger]) -> set[tuple[int, str, str]]:
    """Insert triggers. Return the (flow, phase, processor) keys that were not yet triggered."""
    return {(row[0], row[1], row[2]) for row in tx.rows("trigger_put_many", batch=triggers)}


def triggers_of(tx: Tx, ids: Sequence[int]) -> list[Trigger]:
    """Return the recorded triggers of the given flows."""
    rows = tx.rows("trigger_rows_for_flows", {"ids": list(ids)})
    return [Trigger._make(row)._replace(is_observed=bool(row[6])) for row in rows]


def decision_put_many(tx: Tx, decisions: Sequence[NewDecision]) -> None:
    """Insert decisions."""
    tx.later("decision_put_many", batch=decisions)


def decision_list(tx: Tx, wanted: DecisionFilter) -> list[DecisionRow]:
    """Return decisions, newest first."""
    return [DecisionRow._make(row) for row in tx.rows("decision_list", wanted._asdict())]


def decision_count(tx: Tx, wanted: DecisionFilter) -> int:
    """Return how many decisions match, whatever the page."""
    params = {name: value for name, value in wanted._asdict().items() if name != "limit"}
    return int(one(tx.rows("decision_count", params))[0])


def breakers_of(tx: Tx, ids: Sequence[int]) -> dict[tuple[int, str], Breaker]:
    """Return breakers by (flow, phase)."""
    rows = tx.rows("breaker_rows_for_flows", {"ids": list(ids)})
    return {
        (row[0], row[1]): Breaker(failures=row[2], opened_at=row[3], probe_at=row[4])
        for row in rows
    }


def breaker_lock_many(tx: Tx, ids: Sequence[int]) -> None:
    """Lock the breakers of flows before reading them for update: only one trial may start."""
    tx.rows("breaker_lock_for_flows", {"ids": list(ids)})


def breaker_put_many(tx: Tx, breakers: Sequence[tuple[tuple[int, int, str, str], Breaker]]) -> None:
    """Write breakers by (customer, pipeline, partition, phase)."""
    batch: list[tuple[Any, ...]] = [
        (*key, b.failures, b.opened_at, b.probe_at) for key, b in breakers
    ]
    tx.later("breaker_put_many", batch=batch)
