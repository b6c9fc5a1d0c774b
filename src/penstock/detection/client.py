"""Use cases of detection: current detections, the risk of a flow, the freshness of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from penstock.access.store.names import NameResolver
from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.core.errors import NotFound
from penstock.core.ids import decode_or_not_found, encode
from penstock.core.records.parameters import CustomerFilter, FlowId, PipelineFilter
from penstock.core.records.record import Meta, Page
from penstock.db.store import Transactions, Tx
from penstock.detection.finding import Finding
from penstock.detection.from_rows import detection_record, freshness_record, risk_record
from penstock.detection.records import Detection, FlowRisk, TableFreshness
from penstock.detection.store import (
    freshness_findings,
    freshness_list,
    live_findings,
    trend_findings,
)
from penstock.flows.forecast.forecast import frontier_of
from penstock.flows.forecast.store import forecasts_of, history_read, weekday_of
from penstock.flows.store.flows import flow_get, phases_of
from penstock.flows.store.plans import planned

__all__ = ["Detections"]

Rule = Literal[
    "phase_stuck", "phase_untriggered", "flow_stalled", "dependency_blocking",
    "dependency_missing", "gate_cycle", "deadline_risk", "runs_stale", "dependency_late",
    "optional_missing", "producer_silent", "table_stale",
]  # fmt: skip
_RULE = Meta(description="Return only detections of this rule.")


class Detections:
    """Use cases of detection."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def list(
        self,
        *,
        rule: Annotated[Rule | None, _RULE] = None,
        customer: CustomerFilter = None,
        pipeline: PipelineFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[Detection]:
        """List what is late, stuck, missing or at risk now, most severe first.

        The rules are evaluated on each call. The monitor opens an alert for each detection.
        """

        def body(tx: Tx) -> Sequence[Finding]:
            number = self._names.customer_key(tx, customer)
            if pipeline is not None:
                self._names.pipeline(pipeline, "pipeline", tx)
            found = [
                *live_findings(tx, number),
                *trend_findings(tx, number),
                *freshness_findings(tx),
            ]
            if customer is not None:
                found = [one for one in found if one.customer_id == customer]
            return sorted(
                (
                    one
                    for one in found
                    if rule in (None, one.rule) and pipeline in (None, one.pipeline)
                ),
                key=lambda one: one.rank,
            )

        def read(after: Sequence[Any] | None) -> Sequence[Finding]:
            found = self._store.read(body)
            last = None if after is None else (after[0], after[1], after[2])
            return [one for one in found if last is None or one.rank > last][:limit]

        return paged(
            self._names,
            "detections",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda one: list(one.rank),
            record=detection_record,
            filters={"rule": rule, "customer": customer, "pipeline": pipeline},
        )

    def risk(self, flow_id: FlowId) -> FlowRisk:
        """Return when a flow will probably end, and how likely it is to miss its service level.

        The forecast uses the phase durations of earlier flows of the same pipeline and mode, on the
        same weekday if there are enough.
        """
        number = decode_or_not_found("flow", "flow", flow_id)

        def body(tx: Tx) -> FlowRisk:
            flow = flow_get(tx, number, self._names.customer_key(tx, None))
            if flow is None:
                raise NotFound("flow", encode("flow", number))
            seen, target_at = forecasts_of(tx, [flow]).get(number, (None, None))
            of_flow = planned(tx, flow.pipeline_key, flow.digest, flow.mode)
            rows = phases_of(tx, [number])[number]
            states = {row.phase: (row.state, row.ended_at) for row in rows if not row.processor}
            frontier = frontier_of(of_flow.plan, states, flow.begun_at) if flow.is_open else []
            history = history_read(tx, flow.pipeline_key, of_flow)
            weekday = weekday_of(flow.created_at, of_flow.timezone)
            return risk_record(flow, seen, target_at, (history, frontier, weekday), tx.now())

        return self._store.read(body)

    def freshness(self, *, pipeline: PipelineFilter = None) -> Sequence[TableFreshness]:
        """List the tables that have a freshness policy, with the newest check of each."""
        self._names.require_unscoped("freshness policies")

        def body(tx: Tx) -> Sequence[TableFreshness]:
            info = None if pipeline is None else self._names.pipeline(pipeline, "pipeline", tx)
            key = None if info is None else info.pipeline_key
            return [freshness_record(row) for row in freshness_list(tx, key)]

        return self._store.read(body)
