"""Inputs of incremental processors that start: the reports of the processors before them.

Pure: `entities.store` determines the input of each from the watermarks and the reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.naming import ProcessorKey
from penstock.entities.rows import InputRequest
from penstock.flows.advance.change_set import Start
from penstock.flows.rows import REPLAY
from penstock.pipelines.modes import MANUAL_SOURCE


def input_requests(
    starts: Sequence[Start], processors: Mapping[tuple[int, str, str], tuple[int, str]]
) -> list[InputRequest]:
    """Return the requests of incremental processors among the starts.

    processors: (key, pool) by pipeline, phase and name. A processor that a person restarts
    processes everything; after a replay, later processors process its changes. A run with
    incomplete data does not move its watermark: it receives the same changes again once the data is
    complete.
    """
    found = []
    for start in starts:
        snapshot, flow = start.snapshot, start.snapshot.flow
        plans = snapshot.planned.incremental
        for name in start.names if plans else ():
            plan = plans.get((start.phase, name))
            if plan is None:
                continue
            keys = {
                (phase, source): processors[flow.pipeline_key, phase, source][0]
                for phase, source in plan.sources
                if (flow.pipeline_key, phase, source) in processors
            }
            row = snapshot.rows.get((start.phase, name)) or snapshot.row(start.phase)
            by_hand = flow.trigger_source == MANUAL_SOURCE or (
                flow.trigger_source == REPLAY and start.phase in (flow.start_phase or "").split(",")
            )
            found.append(
                InputRequest(
                    flow_id=flow.flow_id,
                    processor_key=ProcessorKey(processors[flow.pipeline_key, start.phase, name][0]),
                    customer_key=flow.customer_key,
                    pipeline_key=flow.pipeline_key,
                    config_id=flow.config_id,
                    partition=flow.partition if plan.is_per_partition else "",
                    kinds=plan.kinds,
                    names={key: f"{phase}.{source}" for (phase, source), key in keys.items()},
                    required=frozenset(keys[one] for one in plan.required if one in keys),
                    signature=plan.signature,
                    is_rerun=by_hand and (flow.generation > 1 or start.is_entry),
                    moves=not row.is_degraded,
                )
            )
    return found
