"""The probe request of a gate, for the services that evaluate flows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.flows.advance.snapshot import ProbeOrder
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.plan import FlowPlan
from penstock.flows.rows import FlowRow
from penstock.pipelines.declare.pipeline import Pipeline


def gate_probe_request(
    flow: FlowRow,
    planned: FlowPlan,
    gate_key: tuple[str, str],
    code: Pipeline | None,
    *,
    parameters: Mapping[str, Any],
    since: int | None,
    is_output: bool,
) -> ProbeRequest:
    """Return what to probe for a gate, given by phase and processor.

    code: the pipeline's code if this process has loaded it; JSON holds no functions. parameters:
    those that the runs of the flow receive.
    """
    phase, processor = gate_key
    if code is not None:
        needs = code.needs(planned.mode.name, phase, processor or None, outputs=is_output)
    else:
        needs = planned.outputs(phase) if is_output else planned.needs(phase, processor)
    return ProbeRequest(
        dependencies=[need.dependency for need in needs],
        partition=flow.partition,
        customer=flow.customer_id,
        parameters=parameters,
        since=since,
    )


def ordered_probe_request(order: ProbeOrder, code: Mapping[str, Pipeline]) -> ProbeRequest:
    """Return the request of a leased probe; `code` is keyed by digest of the declaration."""
    return gate_probe_request(
        order.flow,
        order.planned,
        (order.phase, order.processor),
        code.get(order.flow.digest),
        parameters=order.parameters,
        since=order.since,
        is_output=order.is_output,
    )
