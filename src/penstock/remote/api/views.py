"""What is going on; pipelines, alerts, pauses.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Unpack, cast

from penstock.remote.shapes.views import (
    AlertPage,
    Changed,
    ListAlertsQuery,
    MetricsOut,
    OverviewOut,
    PauseIn,
    PauseOut,
    PipelineOut,
    SessionOut,
)
from penstock.remote.transport import Transport, quoted


class ViewsApi:
    """What is going on; pipelines, alerts, pauses."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def pipeline_status(self) -> OverviewOut:
        """What is going on, and what ended since midnight UTC.

        `GET /api/v1/dashboard/pipeline-status`
        """
        told = self._transport.call("GET", "/api/v1/dashboard/pipeline-status")
        return cast("OverviewOut", told)

    def customer_metrics(
        self, customer_id: str, *, start_date: str | None = None, end_date: str | None = None
    ) -> MetricsOut:
        """A customer's ended runs over a window, in all and by provider.

        `GET /api/v1/customers/{customer_id}/metrics`

        start_date: Slots from here; 30 days ago unless said.
        end_date: Slots before this; now unless said.
        """
        told = self._transport.call(
            "GET",
            f"/api/v1/customers/{quoted(customer_id)}/metrics",
            query={"start_date": start_date, "end_date": end_date},
        )
        return cast("MetricsOut", told)

    def list_alerts(self, **query: Unpack[ListAlertsQuery]) -> AlertPage:
        """Alerts, newest first.

        `GET /api/v1/alerts`
        """
        told = self._transport.call("GET", "/api/v1/alerts", query=query)
        return cast("AlertPage", told)

    def list_sessions(self) -> list[SessionOut]:
        """Live processes: workers and services.

        `GET /api/v1/sessions`
        """
        told = self._transport.call("GET", "/api/v1/sessions")
        return cast("list[SessionOut]", told)

    def list_pipelines(self) -> list[PipelineOut]:
        """Registered pipelines, by name.

        `GET /api/v1/pipelines`
        """
        told = self._transport.call("GET", "/api/v1/pipelines")
        return cast("list[PipelineOut]", told)

    def get_pipeline(self, pipeline: str) -> PipelineOut:
        """One registered pipeline.

        `GET /api/v1/pipelines/{pipeline}`
        """
        told = self._transport.call("GET", f"/api/v1/pipelines/{quoted(pipeline)}")
        return cast("PipelineOut", told)

    def list_pauses(self) -> list[PauseOut]:
        """Pauses in force.

        `GET /api/v1/pauses`
        """
        told = self._transport.call("GET", "/api/v1/pauses")
        return cast("list[PauseOut]", told)

    def pause(self, body: PauseIn, *, idempotency_key: str | None = None) -> Changed:
        """Stop starting what the pause covers; what runs goes on.

        `POST /api/v1/pauses`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST", "/api/v1/pauses", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast("Changed", told)

    def resume(self, body: PauseIn, *, idempotency_key: str | None = None) -> Changed:
        """Lift a pause.

        `POST /api/v1/pauses/resume`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST", "/api/v1/pauses/resume", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast("Changed", told)
