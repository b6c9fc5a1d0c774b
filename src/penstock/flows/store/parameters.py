"""The parameters that the runs of a flow receive, for its gates and the sources of its items."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.db.store import Tx
from penstock.flows.plan import FlowPlan
from penstock.flows.rows import FlowRow
from penstock.pipelines.parameters import defaults, run_parameters


def flow_parameters(tx: Tx, flows: Iterable[tuple[FlowRow, FlowPlan]]) -> dict[int, dict[str, Any]]:
    """Return the parameters by flow: its own, else its config's, over the schema's defaults.

    A run reads those of its config in the same way when it is first claimed. References to secrets
    are not resolved.
    """
    given = list(flows)
    ids = {flow.config_id for flow, _ in given if flow.parameters is None and flow.config_id}
    found = config_parameters(tx, ids)
    return {
        flow.flow_id: run_parameters(
            defaults(plan.definition.get("parameters")),
            found.get(flow.config_id) if flow.parameters is None else flow.parameters,
        )
        for flow, plan in given
    }


def config_parameters(tx: Tx, ids: Iterable[int]) -> dict[int, str]:
    """Return the current parameters of configs, as JSON."""
    wanted = sorted(ids)
    return dict(tx.rows("config_parameters_list", {"ids": wanted})) if wanted else {}
