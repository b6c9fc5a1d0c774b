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
        return cast("OverviewOut", self._transport.call("GET", "/api/v1/dashboard/pipeline-status"))

    def customer_metrics(
        self, customer_id: str, *, start_date: str | None = None, end_date: str | None = None
    ) -> MetricsOut:
        """A customer's ended runs over a window, in all and by provider.

        `GET /api/v1/customers/{customer_id}/metrics`

        start_date: Slots from here; 30 days ago unless said.
        end_date: Slots before this; now unless said.
        """
        return cast(
            "MetricsOut",
            self._transport.call(
                "GET",
                f"/api/v1/customers/{quoted(customer_id)}/metrics",
                query={"start_date": start_date, "end_date": end_date},
            ),
        )

    def list_alerts(self, **query: Unpack[ListAlertsQuery]) -> AlertPage:
        """Alerts, newest first.

        `GET /api/v1/alerts`
        """
        return cast("AlertPage", self._transport.call("GET", "/api/v1/alerts", query=query))

    def list_sessions(self) -> list[SessionOut]:
        """Live processes: workers and services.

        `GET /api/v1/sessions`
        """
        return cast("list[SessionOut]", self._transport.call("GET", "/api/v1/sessions"))

    def list_pipelines(self) -> list[PipelineOut]:
        """Registered pipelines, by name.

        `GET /api/v1/pipelines`
        """
        return cast("list[PipelineOut]", self._transport.call("GET", "/api/v1/pipelines"))

    def get_pipeline(self, pipeline: str) -> PipelineOut:
        """One registered pipeline.

        `GET /api/v1/pipelines/{pipeline}`
        """
        return cast(
            "PipelineOut", self._transport.call("GET", f"/api/v1/pipelines/{quoted(pipeline)}")
        )

    def list_pauses(self) -> list[PauseOut]:
        """Pauses in force.

        `GET /api/v1/pauses`
        """
        return cast("list[PauseOut]", self._transport.call("GET", "/api/v1/pauses"))

    def pause(self, body: PauseIn, *, idempotency_key: str | None = None) -> Changed:
        """Stop starting what the pause covers; what runs goes on.

        `POST /api/v1/pauses`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        return cast(
            "Changed",
            self._transport.call(
                "POST", "/api/v1/pauses", body=body, headers={"Idempotency-Key": idempotency_key}
            ),
        )

    def resume(self, body: PauseIn, *, idempotency_key: str | None = None) -> Changed:
        """Lift a pause.

        `POST /api/v1/pauses/resume`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        return cast(
            "Changed",
            self._transport.call(
                "POST",
                "/api/v1/pauses/resume",
                body=body,
                headers={"Idempotency-Key": idempotency_key},
            ),
        )
