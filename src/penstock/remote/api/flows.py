"""Flows: trigger, report, explain, why, trace, cancel.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Unpack, cast

from penstock.remote.shapes.flows import (
    EventIn,
    ExplainOut,
    ExplainPartitionQuery,
    FlowCancelOut,
    FlowDetailOut,
    FlowIn,
    FlowPage,
    FlowPreviewOut,
    ListFlowsQuery,
    OpenedOut,
    ReceptionOut,
    TraceOut,
    WhyOut,
)
from penstock.remote.shapes.runs import CancelIn
from penstock.remote.transport import Transport, quoted


class FlowsApi:
    """Flows: trigger, report, explain, why, trace, cancel."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_flows(self, **query: Unpack[ListFlowsQuery]) -> FlowPage:
        """Flows, newest first.

        `GET /api/v1/flows`
        """
        told = self._transport.call("GET", "/api/v1/flows", query=query)
        return cast("FlowPage", told)

    def trigger_flow(self, body: FlowIn, *, idempotency_key: str | None = None) -> OpenedOut:
        """Open a flow and start what may start; the flow that is there, unless it is forced.

        `POST /api/v1/flows`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST", "/api/v1/flows", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast("OpenedOut", told)

    def preview_flow(self, body: FlowIn, *, idempotency_key: str | None = None) -> FlowPreviewOut:
        """What a trigger would do; nothing is changed.

        `POST /api/v1/flows/preview`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST", "/api/v1/flows/preview", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast("FlowPreviewOut", told)

    def get_flow(self, flow_id: str) -> FlowDetailOut:
        """A flow with its phases, completions, triggers, decisions and journal.

        `GET /api/v1/flows/{flow_id}`
        """
        told = self._transport.call("GET", f"/api/v1/flows/{quoted(flow_id)}")
        return cast("FlowDetailOut", told)

    def explain_flow(self, flow_id: str) -> ExplainOut:
        """For every phase what was decided, when, why, on what evidence, and what is awaited.

        `GET /api/v1/flows/{flow_id}/explain`
        """
        told = self._transport.call("GET", f"/api/v1/flows/{quoted(flow_id)}/explain")
        return cast("ExplainOut", told)

    def why_flow(self, flow_id: str, *, phase: str | None = None) -> WhyOut:
        """Why a flow, or one phase of it, has not ended: a tree of causes.

        `GET /api/v1/flows/{flow_id}/why`

        phase: Of this phase alone.
        """
        told = self._transport.call(
            "GET", f"/api/v1/flows/{quoted(flow_id)}/why", query={"phase": phase}
        )
        return cast("WhyOut", told)

    def cancel_flow(
        self, flow_id: str, body: CancelIn | None = None, *, idempotency_key: str | None = None
    ) -> FlowCancelOut:
        """End a flow now: waiting runs are cancelled, running ones asked to stop.

        `POST /api/v1/flows/{flow_id}/cancel`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/flows/{quoted(flow_id)}/cancel",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("FlowCancelOut", told)

    def explain_partition(self, **query: Unpack[ExplainPartitionQuery]) -> ExplainOut:
        """Explain the newest flow of a partition; without one, what would start it.

        `GET /api/v1/explain`
        """
        told = self._transport.call("GET", "/api/v1/explain", query=query)
        return cast("ExplainOut", told)

    def why_run(self, run_id: str) -> WhyOut:
        """Why a run has not started, or has not ended: a tree of causes.

        `GET /api/v1/pipeline-runs/{run_id}/why`
        """
        told = self._transport.call("GET", f"/api/v1/pipeline-runs/{quoted(run_id)}/why")
        return cast("WhyOut", told)

    def trace(self, correlation_id: str) -> TraceOut:
        """The whole path of one cause across phases and flows, with what never happened.

        `GET /api/v1/traces/{correlation_id}`
        """
        told = self._transport.call("GET", f"/api/v1/traces/{quoted(correlation_id)}")
        return cast("TraceOut", told)

    def report_completion(
        self, body: EventIn, *, idempotency_key: str | None = None
    ) -> ReceptionOut:
        """Report the completion of a processor that Penstock does not run.

        It goes to the newest open flow of its partition and mode, else it opens the next one.

        `POST /api/v1/events`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST", "/api/v1/events", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast("ReceptionOut", told)
