"""Names and their numeric keys: customers, pools, pipelines, processors.

Hot tables store small integers; this module maps names to them. Keys never change, so callers may
cache them for the life of a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey, PipelineKey, PoolKey, ProcessorKey
from penstock.db.store import Tx, first, one


def customer_ensure_many(tx: Tx, names: Iterable[str]) -> dict[str, CustomerKey]:
    """Return the keys of customers by name; missing customers are created."""
    batch = [(name,) for name in sorted(set(names))]
    assert all(name for (name,) in batch), "a customer id is never empty"
    return {name: number for number, name in tx.rows("customer_ensure_many", batch=batch)}


def customer_get(tx: Tx, customer_id: str) -> CustomerKey | None:
    """Return the key of a customer, or None if it does not exist."""
    row = first(tx.rows("customer_get", {"customer_id": customer_id}))
    return None if row is None else CustomerKey(row[0])


def customer_names(tx: Tx, keys: Sequence[CustomerKey]) -> dict[CustomerKey, str]:
    """Return the names of customers by key."""
    rows = tx.rows("customer_names", {"ids": list(keys)})
    return {CustomerKey(row[0]): str(row[1]) for row in rows}


def pool_ensure(tx: Tx, name: str) -> PoolKey:
    """Return the key of a worker pool; a missing pool is created."""
    return PoolKey(one(tx.rows("pool_ensure", {"name": name}))[0])


def pipeline_put(
    tx: Tx,
    *,
    name: str,
    digest: str,
    definition: str,
    has_flow: bool,
    partition_rule: str | None = None,
) -> PipelineKey:
    """Register or update a pipeline declaration. Return its key."""
    params = {
        "name": name,
        "digest": digest,
        "definition": definition,
        "has_flow": has_flow,
        "partition_rule": partition_rule,
    }
    number = int(one(tx.rows("pipeline_put", params))[0])
    text = {"pipeline": number, "digest": digest, "definition": definition}
    tx.run("definition_put", text)
    tx.run("processor_retire", {"pipeline": number})
    return PipelineKey(number)


def processor_put(tx: Tx, params: Mapping[str, Any]) -> ProcessorKey:
    """Register or update one processor of a pipeline. Return its key."""
    unset = {"limits": None, "endpoint": None, "expires_us": None, "entity_role": 0}
    return ProcessorKey(one(tx.rows("processor_put", {**unset, **params}))[0])


def pipeline_get(tx: Tx, name: str) -> tuple[PipelineKey, str, str, bool] | None:
    """Return (key, digest, definition, has_flow) of a registered pipeline, or None."""
    row = first(tx.rows("pipeline_get", {"name": name}))
    return None if row is None else (row[0], row[1], row[2], bool(row[3]))


def pipeline_list(
    tx: Tx,
) -> list[tuple[PipelineKey, str, str, str, bool, CustomerKey | None]]:
    """Return all registered pipelines: (key, name, digest, definition, has_flow, sole customer)."""
    return [(r[0], r[1], r[2], r[3], bool(r[4]), r[5]) for r in tx.rows("pipeline_list")]


def pipeline_sole_get(tx: Tx, pipeline: PipelineKey) -> CustomerKey | None:
    """Return the customer that claimed a pipeline; None if none did."""
    row = first(tx.rows("pipeline_sole_get", {"pipeline": pipeline}))
    return None if row is None else row[0]


def pipeline_claim(tx: Tx, pipeline: PipelineKey, customer: CustomerKey) -> CustomerKey:
    """Return the only customer of a pipeline; set it to this one if there is none."""
    params = {"pipeline": pipeline, "customer": customer}
    return CustomerKey(one(tx.rows("pipeline_claim", params))[0])


def pipeline_sole_put(tx: Tx, pipeline: PipelineKey, customer: CustomerKey) -> None:
    """Set the only customer of a pipeline."""
    tx.run("pipeline_sole_put", {"pipeline": pipeline, "customer": customer})


def processor_list(tx: Tx) -> list[ProcessorRow]:
    """Return all registered processors."""
    return [
        ProcessorRow(
            processor_key=r[0], pipeline_key=r[1], pipeline=r[2], phase=r[3], name=r[4], pool=r[5],
            pool_key=r[6], is_entry=bool(r[7]), is_current=bool(r[8]), max_execution_us=r[9],
            entity_role=r[10],
        )
        for r in tx.rows("processor_list")
    ]  # fmt: skip


def topic_ensure(tx: Tx, topic: str) -> None:
    """Create a system topic: from now on its messages are written to the outbox."""
    tx.run("topic_ensure", {"topic": topic})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorRow:
    """A registered processor: its key and its names."""

    processor_key: ProcessorKey
    pipeline_key: PipelineKey
    pipeline: str
    phase: str
    name: str
    pool: str
    pool_key: PoolKey
    is_entry: bool
    is_current: bool
    max_execution_us: Micros
    entity_role: int = 0
    """Bits that say whether it receives or reports changed entities (`pipelines.declare`)."""
