"""Facts of `flows.explain.why_customer`, read in one transaction."""

from __future__ import annotations

from typing import Final

from penstock.access.store.names import NameResolver
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, one
from penstock.flows.explain.store.load import WAITS, FactLoader
from penstock.flows.explain.why_customer import CustomerFact, StoppedConfig, StoppedPhase
from penstock.runs.states import Admission

COUNT_MAX: Final = 10_000
LISTED_MAX: Final = 5


def customer_fact(
    tx: Tx, names: NameResolver, customer_id: str, customer_key: CustomerKey
) -> CustomerFact:
    """Load a customer with its pauses, stopped configs, waiting runs and flows."""
    own = {"customer": customer_key}
    rows = tx.rows("customer_why_runs", {**own, "bound": COUNT_MAX})
    counts = {int(row[0]): int(row[1]) for row in rows}
    configs = tx.rows("customer_why_configs", {**own, "limit": LISTED_MAX})
    phases = tx.rows("customer_why_flows", {**own, "limit": LISTED_MAX})
    total = one(tx.rows("customer_why_open", {**own, "bound": COUNT_MAX}))
    known = {int(admission): reason for admission, reason in WAITS.items()}
    return CustomerFact(
        customer=customer_id,
        configs=int(total[0]),
        waiting={known[key]: count for key, count in counts.items() if key in known},
        running=counts.get(int(Admission.NONE), 0),
        concurrency=total[4],
        next_run_time=total[3],
        pauses=FactLoader(tx, names).pauses_of(customer_id, "", None),
        stopped=tuple(
            StoppedConfig(encode("cfg", row[0]), row[1], bool(row[2]), row[3], int(row[4]))
            for row in configs
        ),
        phases=tuple(StoppedPhase(encode("flow", row[0]), *row[1:]) for row in phases),
        dead_letters=int(total[1]),
        interventions=int(total[2]),
    )
